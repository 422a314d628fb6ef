//! The effect of a move: a connection's times in the kernel and in the engine, side by side.

use super::{Entry, Report, time};
use baton_latency::{Direction, Layer, Table};
use std::fmt::Write as _;

/// The quantiles that are compared, with their names.
const COMPARED: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

/// A connection's entries in both places.
struct Moved<'a> {
    kernel: &'a Entry,
    engine: &'a Entry,
}

impl Report {
    fn moved(&self) -> Vec<Moved<'_>> {
        let at = |place: &'static str| self.entries.iter().filter(move |entry| entry.place == place);
        let same = |kernel: &Entry| at("engine").find(|engine| engine.connection == kernel.connection);
        at("kernel").filter_map(|kernel| Some(Moved { kernel, engine: same(kernel)? })).collect()
    }

    /// For a terminal: the connections that were in both places, with a table a way that has the kernel's times,
    /// the engine's, and how much longer the engine takes. Several are together, then each with a table (`each`)
    /// or a line. `None` if there is no such connection.
    pub fn moves(&self, each: bool) -> Option<String> {
        let moved = self.moved();
        let mut out = String::new();
        if moved.len() > 1 {
            let _ = writeln!(out, "{} connections that moved, together, {:.1} s", moved.len(), self.seconds);
            let (mut kernel, mut engine) = (Table::default(), Table::default());
            for it in &moved {
                kernel.add(&it.kernel.table);
                engine.add(&it.engine.table);
            }
            compare_ways(&mut out, [&kernel, &engine]);
        }
        for Moved { kernel, engine } in &moved {
            let program = if kernel.program.is_empty() { &engine.program } else { &kernel.program };
            let tables = [&kernel.table, &engine.table];
            if each || moved.len() == 1 {
                let _ = writeln!(out, "{}  {program}, {:.1} s", kernel.connection, self.seconds);
                compare_ways(&mut out, tables);
            } else {
                let _ = writeln!(out, "{}  {program}  {}", kernel.connection, line(tables));
            }
        }
        (!moved.is_empty()).then_some(out)
    }
}

/// Medians of a connection in both places, in one line.
fn line(tables: [&Table; 2]) -> String {
    let medians = [Layer::Answer, Layer::Transmit, Layer::Receive].into_iter().filter_map(|layer| {
        let [kernel, engine] = tables.map(|table| table.layer(layer).quantile(0.5));
        Some(format!("{} {} and {}", layer.name(), time(kernel?), time(engine?)))
    });
    let medians: Vec<String> = medians.collect();
    if medians.is_empty() {
        return "no message was seen whole in both places".to_owned();
    }
    format!("p50 in the kernel and in the engine: {}", medians.join(", "))
}

fn compare_ways(out: &mut String, tables: [&Table; 2]) {
    Direction::ALL.into_iter().for_each(|way| compare(out, way, tables));
}

/// A way in both places.
fn compare(out: &mut String, way: Direction, tables: [&Table; 2]) {
    let whole = Layer::whole(way);
    let [kernel, engine] = tables.map(|table| table.layer(whole).count);
    let _ = writeln!(out, "  {:<18}{kernel} messages in the kernel, {engine} in the engine", way.name());
    let mut heads = String::new();
    for (name, _) in COMPARED {
        for head in [format!("kernel {name}"), format!("engine {name}"), "difference".to_owned()] {
            let _ = write!(heads, "{head:>13}");
        }
    }
    let _ = writeln!(out, "    {:<18}{heads}", "");
    // The whole is the last line, as in the other tables.
    let layers = Layer::ALL.into_iter().filter(|layer| layer.direction() == way && *layer != Layer::Stack);
    for layer in layers.filter(|layer| *layer != whole).chain([whole]) {
        let counts = tables.map(|table| table.layer(layer));
        if counts.iter().all(|counts| counts.count == 0) {
            continue;
        }
        let name = if layer == whole { "whole" } else { layer.name() };
        let mut cells = String::new();
        for (_, q) in COMPARED {
            let times = counts.map(|counts| counts.quantile(q));
            let cell = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), time);
            for cell in [cell(times[0]), cell(times[1]), difference(times)] {
                let _ = write!(cells, "{cell:>13}");
            }
        }
        let _ = writeln!(out, "    {name:<18}{cells}");
    }
}

/// How much longer the second time is.
fn difference(times: [Option<u64>; 2]) -> String {
    match times {
        [Some(kernel), Some(engine)] if engine >= kernel => format!("+{}", time(engine - kernel)),
        [Some(kernel), Some(engine)] => format!("-{}", time(kernel - engine)),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_latency::Spans;

    fn entry(place: &'static str, connection: &str, times: &[(Layer, u64)]) -> Entry {
        let spans = Spans::default();
        times.iter().for_each(|(layer, ns)| spans.record(*layer, *ns));
        let (program, table) = ("redis[7]".to_owned(), Table::of(&spans));
        let (connection, skipped, lost) = (connection.to_owned(), [0; 2], [0; 2]);
        Entry {
            connection,
            program,
            pid: 7,
            place,
            closed: false,
            skipped,
            lost,
            one_in: 1,
            table,
            slowest: Vec::new(),
        }
    }

    #[test]
    fn a_moved_connection_has_both_places_side_by_side() {
        let entries = vec![
            entry("kernel", "a", &[(Layer::Write, 2000), (Layer::Transmit, 3000)]),
            entry("kernel", "b", &[(Layer::Write, 1)]),
            entry("engine", "a", &[(Layer::Write, 500), (Layer::Segment, 40), (Layer::Transmit, 3100)]),
        ];
        let report = Report { seconds: 2.0, entries, ..Report::default() };
        let text = report.moves(false).unwrap();
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "a redis[7], 2.0 s",
            "transmit 1 messages in the kernel, 1 in the engine",
            "kernel p50 engine p50 difference kernel p99 engine p99 difference",
            "write 2.00 µs 500 ns -1.50 µs 2.00 µs 500 ns -1.50 µs",
            "segment - 40 ns - - 40 ns -",
            "whole 3.00 µs 3.10 µs +100 ns 3.00 µs 3.10 µs +100 ns",
            "receive 0 messages in the kernel, 0 in the engine",
            "kernel p50 engine p50 difference kernel p99 engine p99 difference",
        ];
        assert_eq!(lines, expected);
        assert!(Report { entries: Vec::new(), ..report }.moves(false).is_none());
    }

    #[test]
    fn several_that_moved_are_together_and_each_has_a_line_or_a_table() {
        let times = |ns| vec![(Layer::Answer, ns)];
        let mut entries: Vec<Entry> =
            ["a", "b"].into_iter().map(|name| entry("kernel", name, &times(40_000))).collect();
        entries.extend([("a", 20_000), ("b", 10_000)].map(|(name, ns)| entry("engine", name, &times(ns))));
        let report = Report { seconds: 2.0, entries, ..Report::default() };
        let text = report.moves(false).unwrap();
        assert!(text.starts_with("2 connections that moved, together, 2.0 s\n"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("    answer")).count(), 1, "{text}");
        assert!(
            text.ends_with("b  redis[7]  p50 in the kernel and in the engine: answer 40.0 µs and 10.0 µs\n"),
            "{text}"
        );
        let tables = report.moves(true).unwrap();
        assert_eq!(tables.lines().filter(|line| line.starts_with("    answer")).count(), 3, "{tables}");
    }
}
