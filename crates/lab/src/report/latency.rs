//! Where the time of connections goes, by layer: for a terminal, as JSON and as an HTML page.

mod answers;
mod moves;
mod slowest;

use super::html;
use super::nanoseconds::time;
use answers::Answers;
use baton_apps::html_text::escape;
use baton_kernel::latency::LEFT_OUT_MAX;
use baton_latency::{Direction, Exemplar, Layer, Row, Table};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;

pub use slowest::{Slow, told};

/// A connection with what it had in one place.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its addresses and ports, ours first: `LOCAL,REMOTE`.
    pub connection: String,
    /// Its program and process, as `NAME[PID]`; empty if not known.
    pub program: String,
    /// The process; 0 if not known.
    pub pid: u32,
    /// Where it was: `kernel` or `engine`.
    pub place: &'static str,
    /// It has closed, or left an engine.
    pub closed: bool,
    /// Messages that were not followed, out and in, because another of their way was.
    pub skipped: [u64; 2],
    /// Messages of which the end was not seen, out and in.
    pub lost: [u64; 2],
    /// The engine records one message in this many, on average. Above 1, counts are estimates.
    pub one_in: u32,
    /// The times of its messages by layer.
    pub table: Table,
    /// The slowest of its recorded messages on each way.
    pub slowest: Vec<Exemplar>,
}

/// Sums of connections that are no longer listed.
#[derive(Clone, Debug)]
pub struct Earlier {
    /// Where they were: `kernel` or `engine`.
    pub place: &'static str,
    /// The times of their messages.
    pub table: Table,
    /// How many they are.
    pub count: u64,
}

/// All that was seen in a time.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How long, in seconds.
    pub seconds: f64,
    /// When it began, in nanoseconds of `CLOCK_MONOTONIC`.
    pub began_ns: u64,
    /// Nanoseconds since 1970 at the zero of that clock.
    pub unix_offset_ns: u64,
    /// How many of the slowest messages of each way are shown.
    pub show_slowest: usize,
    /// The connections that were seen, each with its times.
    pub entries: Vec<Entry>,
    /// Sums of connections that are no longer listed, by place.
    pub earlier: Vec<Earlier>,
    /// Connections that were not watched, because all slots were taken.
    pub left_out: u64,
    /// Sentences about layers that cannot be seen, with the reason.
    pub notes: Vec<String>,
}

/// A way of a table in JSON.
#[derive(Serialize)]
struct Way {
    direction: &'static str,
    layers: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    layer: &'static str,
    count: u64,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    max_ns: Option<u64>,
    share: f64,
}

impl From<Row> for Line {
    fn from(Row { name, count, quantiles, longest, share }: Row) -> Line {
        let [p50_ns, p90_ns, p99_ns, p999_ns] = quantiles.map_or([None; 4], |all| all.map(Some));
        Line { layer: name, count, p50_ns, p90_ns, p99_ns, p999_ns, max_ns: longest, share }
    }
}

#[derive(Serialize)]
struct Connection<'a> {
    connection: &'a str,
    program: &'a str,
    pid: u32,
    place: &'static str,
    closed: bool,
    skipped: [u64; 2],
    lost: [u64; 2],
    one_in: u32,
    ways: Vec<Way>,
    answers: Option<Answers>,
}

#[derive(Serialize)]
struct Place {
    place: &'static str,
    connections: u64,
    ways: Vec<Way>,
    answers: Option<Answers>,
}

#[derive(Serialize)]
struct Whole<'a> {
    seconds: f64,
    notes: &'a [String],
    left_out: u64,
    together: Vec<Way>,
    answers: Option<Answers>,
    slowest: Vec<Slow<'a>>,
    places: Vec<Place>,
    connections: Vec<Connection<'a>>,
    earlier_connections: u64,
}

fn ways(table: &Table) -> Vec<Way> {
    let way = |direction: Direction| Way {
        direction: direction.name(),
        layers: table.rows(direction).into_iter().map(Line::from).collect(),
    };
    Direction::ALL.into_iter().map(way).collect()
}

impl Report {
    /// All messages of a place together, and of how many connections they are. `None`: of all places, where a
    /// connection that was in both counts twice.
    pub fn together(&self, place: Option<&str>) -> (Table, u64) {
        let is_there = |it: &str| place.is_none_or(|place| place == it);
        let (mut all, mut count) = (Table::default(), 0);
        for entry in self.entries.iter().filter(|entry| is_there(entry.place)) {
            all.add(&entry.table);
            count += 1;
        }
        for earlier in self.earlier.iter().filter(|earlier| is_there(earlier.place)) {
            all.add(&earlier.table);
            count += earlier.count;
        }
        (all, count)
    }

    /// The places where connections were, each once.
    fn places(&self) -> Vec<&'static str> {
        let earlier = self.earlier.iter().filter(|earlier| earlier.count > 0).map(|earlier| earlier.place);
        let all = self.entries.iter().map(|entry| entry.place).chain(earlier);
        // Alphabetically the engine would be first.
        all.collect::<BTreeSet<_>>().into_iter().rev().collect()
    }

    /// How many connections are no longer listed.
    pub fn earlier_count(&self) -> u64 {
        self.earlier.iter().map(|earlier| earlier.count).sum()
    }

    /// Heads and tables of what is together in each place, unless that is one connection.
    fn sums(&self) -> Vec<(String, Table)> {
        if self.entries.len() == 1 && self.earlier_count() == 0 {
            return Vec::new();
        }
        let places = self.places();
        let several = places.len() > 1;
        let sum = |place: Option<&str>| {
            let (table, count) = self.together(place);
            let place = place.filter(|_| several).map(|place| format!(" in the {place}")).unwrap_or_default();
            (format!("{count} connections together{place}"), table)
        };
        if several { places.into_iter().map(|place| sum(Some(place))).collect() } else { vec![sum(None)] }
    }

    /// As JSON, on one line.
    ///
    /// # Errors
    /// If it cannot be written so, which does not happen with these types.
    pub fn json(&self) -> serde_json::Result<String> {
        let connection = |entry: &'_ Entry| -> Vec<Way> { ways(&entry.table) };
        let connections = self.entries.iter().map(|entry| Connection {
            connection: &entry.connection,
            program: &entry.program,
            pid: entry.pid,
            place: entry.place,
            closed: entry.closed,
            skipped: entry.skipped,
            lost: entry.lost,
            one_in: entry.one_in,
            ways: connection(entry),
            answers: Answers::of(&entry.table),
        });
        let place = |place| {
            let (table, connections) = self.together(Some(place));
            Place { place, connections, ways: ways(&table), answers: Answers::of(&table) }
        };
        let together = self.together(None).0;
        serde_json::to_string(&Whole {
            seconds: self.seconds,
            notes: &self.notes,
            left_out: self.left_out,
            together: ways(&together),
            answers: Answers::of(&together),
            places: self.places().into_iter().map(place).collect(),
            slowest: self.slowest(),
            connections: connections.collect(),
            earlier_connections: self.earlier_count(),
        })
    }

    /// For a terminal: all together, then each connection with a table (`each`) or a line.
    pub fn text(&self, each: bool) -> String {
        let mut out = String::new();
        let sums = self.sums();
        let one = sums.is_empty();
        for (head, table) in &sums {
            let _ = writeln!(out, "{head}, {:.1} s", self.seconds);
            tables(&mut out, table);
        }
        for entry in &self.entries {
            if one || each {
                let _ = writeln!(out, "{}, {:.1} s", title(entry), self.seconds);
                tables(&mut out, &entry.table);
                out.push_str(&unfollowed(entry));
            } else {
                let _ = writeln!(out, "{}\n  {}", title(entry), line(&entry.table));
            }
        }
        out.push_str(&slowest::text(&self.slowest(), self.entries.len() > 1, self.places().len() > 1));
        self.remarks().iter().for_each(|remark| {
            let _ = writeln!(out, "{remark}");
        });
        out
    }

    /// Sentences beside the tables.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = self.notes.clone();
        let earlier = self.earlier_count();
        if earlier > 0 {
            remarks.push(format!("{earlier} connections closed before and are only in the sums"));
        }
        if self.left_out > 0 {
            let least = if self.left_out < LEFT_OUT_MAX { "" } else { "at least " };
            remarks.push(format!("{least}{} connections were not watched: all slots were taken", self.left_out));
        }
        remarks
    }

    /// As an HTML page.
    pub fn page(&self) -> String {
        let mut body = String::new();
        for (head, table) in self.sums() {
            section(&mut body, &head, &table);
        }
        for entry in &self.entries {
            section(&mut body, &title(entry), &entry.table);
            let rest = unfollowed(entry);
            if !rest.is_empty() {
                let _ = write!(body, "<p class=\"soft\">{}</p>", escape(rest.trim()));
            }
        }
        body.push_str(&slowest::section(&self.slowest()));
        for remark in self.remarks() {
            let _ = write!(body, "<p class=\"soft\">{}</p>", escape(&remark));
        }
        let lead = format!("Where the time of messages went, by layer, in {:.1} seconds.", self.seconds);
        html::page("Latency by layer", &lead, &body)
    }
}

fn title(entry: &Entry) -> String {
    let program = if entry.program.is_empty() { String::new() } else { format!("  {}", entry.program) };
    let place = match (entry.place, entry.closed) {
        ("engine", true) => "was in the engine".to_owned(),
        (place, true) => format!("in the {place}, closed"),
        (place, false) => format!("in the {place}"),
    };
    format!("{}{program}  {place}", entry.connection)
}

fn unfollowed(entry: &Entry) -> String {
    let mut out = String::new();
    for (at, way) in Direction::ALL.into_iter().enumerate() {
        let (skipped, lost) = (entry.skipped[at], entry.lost[at]);
        if skipped + lost > 0 {
            let name = way.name();
            let _ =
                writeln!(out, "  {name}: {skipped} came while another was followed; of {lost} the end was not seen");
        }
    }
    out
}

/// A connection in one line: medians, and the layers that take most.
fn line(table: &Table) -> String {
    let words = Direction::ALL.into_iter().filter_map(|way| {
        let whole = table.layer(Layer::whole(way));
        let (median, p99) = (whole.quantile(0.5)?, whole.quantile(0.99)?);
        let rows = table.rows(way);
        let most = rows.iter().filter(|row| row.name != "whole").max_by(|a, b| a.share.total_cmp(&b.share))?;
        Some(format!(
            "{} p50 {}, p99 {}, most in {} ({:.0} %)",
            way.name(),
            time(median),
            time(p99),
            most.name,
            most.share * 100.0
        ))
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "no message was seen whole".to_owned() } else { words.join("; ") }
}

const HEADS: [&str; 7] = ["messages", "p50", "p90", "p99", "p99.9", "max", "share"];

/// The cells of a row.
fn cells(row: &Row) -> [String; 7] {
    let none = || "-".to_owned();
    let [p50, p90, p99, p999] = row.quantiles.map_or_else(|| [(); 4].map(|()| none()), |all| all.map(time));
    let longest = row.longest.map_or_else(none, time);
    [row.count.to_string(), p50, p90, p99, p999, longest, format!("{:.1} %", row.share * 100.0)]
}

fn tables(out: &mut String, table: &Table) {
    for way in Direction::ALL {
        let rows = table.rows(way);
        if rows.is_empty() {
            let _ = writeln!(out, "  {}: no message was seen whole", way.name());
            continue;
        }
        let heads: String = HEADS.iter().map(|head| format!("{head:>11}")).collect();
        let _ = writeln!(out, "  {:<18}{heads}", way.name());
        for row in &rows {
            let cells: String = cells(row).iter().map(|cell| format!("{cell:>11}")).collect();
            let _ = writeln!(out, "    {:<16}{cells}", row.name);
        }
    }
    if let Some(answers) = Answers::of(table) {
        out.push_str(&answers.text());
    }
}

fn section(body: &mut String, title: &str, table: &Table) {
    let _ = write!(body, "<section><h2>{}</h2>", escape(title));
    for way in Direction::ALL {
        let rows = table.rows(way);
        if rows.is_empty() {
            let _ = write!(body, "<p>{}: no message was seen whole</p>", way.name());
            continue;
        }
        let heads: String = HEADS.iter().map(|head| format!("<th>{head}</th>")).collect();
        let _ = write!(body, "<table><thead><tr><th>{}</th>{heads}<th></th></tr></thead><tbody>", way.name());
        for row in &rows {
            let cells: String = cells(row).iter().map(|cell| format!("<td>{cell}</td>")).collect();
            let width = (row.share * 120.0).clamp(0.0, 120.0);
            let bar = format!(
                "<td><svg width=\"120\" height=\"10\" role=\"img\" aria-label=\"share\"><rect width=\"{width:.0}\" \
                 height=\"10\" fill=\"currentColor\"/></svg></td>"
            );
            let _ = write!(body, "<tr><td>{}</td>{cells}{bar}</tr>", row.name);
        }
        body.push_str("</tbody></table>");
    }
    if let Some(answers) = Answers::of(table) {
        body.push_str(&answers.table());
    }
    body.push_str("</section>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_latency::{KEPT_WORDS, Spans};

    pub(super) fn report(connections: usize) -> Report {
        let spans = Spans::default();
        for (layer, ns) in [(Layer::Write, 1500), (Layer::Output, 500), (Layer::Transmit, 2500)] {
            spans.record(layer, ns);
        }
        let entry = |at: usize| Entry {
            connection: format!("10.0.0.1:{at},10.0.0.2:80"),
            program: "a<b[7]".to_owned(),
            pid: 7,
            place: "kernel",
            closed: at == 1,
            skipped: [3, 0],
            lost: [0, 0],
            one_in: 1,
            table: Table::of(&spans),
            slowest: vec![slow(2500 + at as u64), slow(1000)],
        };
        Report {
            seconds: 2.0,
            began_ns: 1_000_000_000,
            unix_offset_ns: 7,
            show_slowest: 2,
            entries: (0..connections).map(entry).collect(),
            left_out: 5,
            ..Report::default()
        }
    }

    /// A message that was sent half a second after the report's beginning.
    fn slow(whole: u64) -> Exemplar {
        let mut words = [0; KEPT_WORDS];
        words[3..8].copy_from_slice(&[1_500_000_000, whole, 4711, whole - 600, 500]);
        Exemplar::of_words(Direction::Transmit, &words).unwrap()[0]
    }

    #[test]
    fn one_connection_is_a_table() {
        let text = report(1).text(false);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0].join(" "), "10.0.0.1:0,10.0.0.2:80 a<b[7] in the kernel, 2.0 s");
        assert_eq!(lines[2].join(" "), "write 1 1.50 µs 1.50 µs 1.50 µs 1.50 µs 1.50 µs 60.0 %");
        assert_eq!(lines[4].join(" "), "between 1 - - - - - 20.0 %");
        assert_eq!(lines[6].join(" "), "receive: no message was seen whole");
        assert!(text.contains("transmit: 3 came while another was followed; of 0 the end was not seen"));
        assert!(text.ends_with("5 connections were not watched: all slots were taken\n"), "{text}");
        let text = Report { left_out: LEFT_OUT_MAX, ..report(1) }.text(false);
        assert!(text.ends_with("\nat least 65536 connections were not watched: all slots were taken\n"), "{text}");
    }

    #[test]
    fn many_are_a_table_and_lines_or_tables() {
        let report = |count| Report { show_slowest: 0, ..report(count) };
        let text = report(2).text(false);
        assert!(text.starts_with("2 connections together, 2.0 s\n"), "{text}");
        assert!(
            text.contains("10.0.0.1:1,10.0.0.2:80  a<b[7]  in the kernel, closed\n  transmit p50 2.50 µs"),
            "{text}"
        );
        assert_eq!(text.matches("between").count(), 1);
        assert_eq!(report(2).text(true).matches("between").count(), 3);
    }

    #[test]
    fn json_has_every_layer_and_the_page_is_escaped() {
        let json: serde_json::Value = serde_json::from_str(&report(2).json().unwrap()).unwrap();
        let write = &json["together"][0]["layers"][0];
        assert_eq!((write["layer"].as_str(), write["count"].as_u64()), (Some("write"), Some(2)));
        assert_eq!(json["connections"][1]["ways"][0]["layers"][3]["p50_ns"], 2500);
        assert_eq!(json["left_out"], 5);
        let page = report(1).page();
        assert!(page.contains("a&lt;b[7]") && !page.contains("a<b"));
    }

    #[test]
    fn each_place_has_its_sum() {
        let mut both = report(3);
        both.entries[0].place = "engine";
        both.entries[1].place = "engine";
        let earlier = both.entries[2].table.clone();
        both.earlier.push(Earlier { place: "kernel", table: earlier, count: 4 });
        let text = both.text(false);
        let kernel = text.find("5 connections together in the kernel, 2.0 s\n").expect(&text);
        assert!(kernel < text.find("2 connections together in the engine, 2.0 s\n").expect(&text));
        assert!(text.contains("10.0.0.1:1,10.0.0.2:80  a<b[7]  was in the engine\n"), "{text}");
        assert!(text.contains("4 connections closed before and are only in the sums"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&both.json().unwrap()).unwrap();
        let place =
            |at: usize| (json["places"][at]["place"].as_str().unwrap(), json["places"][at]["connections"].as_u64());
        assert_eq!([place(0), place(1)], [("kernel", Some(5)), ("engine", Some(2))]);
        assert_eq!(json["places"][0]["ways"][0]["layers"][0]["count"], 2);
        assert_eq!(json["together"][0]["layers"][0]["count"], 4);
    }
}
