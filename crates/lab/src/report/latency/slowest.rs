//! The slowest messages of connections, each with its time in every layer.

use super::{Report, time};
use baton_apps::html_text::escape;
use baton_latency::{Direction, Exemplar};
use serde::{Serialize, Serializer};
use std::fmt::Write as _;

/// Width of a message's bar, in units of its drawing.
const WIDTH: f64 = 600.0;
/// Space between two layers of a bar.
const GAP: f64 = 1.0;

/// A message that is among the slowest.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Slow<'a> {
    /// Addresses and ports of its connection, ours first.
    pub connection: &'a str,
    /// The connection's program, as `NAME[PID]`.
    pub program: &'a str,
    /// Where the connection was: `kernel` or `engine`.
    pub place: &'static str,
    /// Seconds from the report's beginning to the message's.
    #[serde(skip)]
    pub after_s: f64,
    /// Nanoseconds since 1970 at which it began.
    pub unix_ns: u64,
    /// The message with its layers.
    #[serde(flatten, serialize_with = "as_json")]
    pub message: &'a Exemplar,
}

#[derive(Serialize)]
struct Message {
    direction: &'static str,
    whole_ns: u64,
    /// The sequence number behind its last byte.
    end_seq: u32,
    layers: Vec<Part>,
    between_ns: u64,
}

#[derive(Serialize)]
struct Part {
    layer: &'static str,
    ns: u64,
}

fn as_json<S: Serializer>(message: &Exemplar, to: S) -> Result<S::Ok, S::Error> {
    let layers = message.layers().map(|(layer, ns)| Part { layer: layer.name(), ns }).collect();
    let (direction, between_ns) = (message.direction.name(), message.between());
    Message { direction, whole_ns: message.whole, end_seq: message.end, layers, between_ns }.serialize(to)
}

impl Report {
    /// The slowest messages of each way, as many as are shown, the slowest first.
    pub fn slowest(&self) -> Vec<Slow<'_>> {
        let of_way = |direction: Direction| {
            let pairs = self.entries.iter().flat_map(|entry| entry.slowest.iter().map(move |slow| (entry, slow)));
            let mut all: Vec<_> = pairs.filter(|(_, slow)| slow.direction == direction).collect();
            all.sort_by_key(|(_, slow)| std::cmp::Reverse(slow.whole));
            all.truncate(self.show_slowest);
            all
        };
        let mut all = Vec::new();
        for (entry, message) in Direction::ALL.into_iter().flat_map(of_way) {
            all.push(Slow {
                connection: &entry.connection,
                program: &entry.program,
                place: entry.place,
                after_s: message.begun.saturating_sub(self.began_ns) as f64 / 1e9,
                unix_ns: message.begun.saturating_add(self.unix_offset_ns),
                message,
            });
        }
        all
    }
}

/// A message in one line: its way, how long it took, and its layers.
pub fn told(slow: &Exemplar) -> String {
    format!("{} took {}: {}", slow.direction.name(), time(slow.whole), course(slow))
}

/// The layers of a message in the order of its way, with the time in each.
fn course(slow: &Exemplar) -> String {
    let mut words: Vec<String> = slow.layers().map(|(layer, ns)| format!("{} {}", layer.name(), time(ns))).collect();
    if slow.between() > 0 {
        words.push(format!("between {}", time(slow.between())));
    }
    words.join(", ")
}

/// A line for each: its way, how long it took, when it began, its layers; with `names` its connection, with `places`
/// where that was.
pub(super) fn text(all: &[Slow<'_>], names: bool, places: bool) -> String {
    let mut out = String::new();
    if !all.is_empty() {
        out.push_str("the slowest messages\n");
    }
    for slow in all {
        let mut name = if names { format!("  {}", slow.connection) } else { String::new() };
        if places {
            let _ = write!(name, "  in the {}", slow.place);
        }
        let (way, whole) = (slow.message.direction.name(), time(slow.message.whole));
        let _ = writeln!(out, "  {way:<9}{whole:>9} at {:.3} s: {}{name}", slow.after_s, course(slow.message));
    }
    out
}

/// A bar for each, whose parts are the layers.
pub(super) fn section(all: &[Slow<'_>]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut body = "<section><h2>The slowest messages</h2>".to_owned();
    for slow in all {
        let (way, whole) = (slow.message.direction.name(), time(slow.message.whole));
        let head = format!("{way} {whole}, {} in the {}", slow.connection, slow.place);
        let course = escape(&course(slow.message));
        let bar = bar(slow.message, &course);
        let _ = write!(
            body,
            "<figure><h3>{}</h3>{bar}<figcaption>began after {:.3} s: {course}</figcaption></figure>",
            escape(&head),
            slow.after_s
        );
    }
    body + "</section>"
}

/// The layers of a message side by side, each as wide as its time.
fn bar(slow: &Exemplar, course: &str) -> String {
    let mut out =
        format!("<svg class=\"plot\" viewBox=\"0 0 {WIDTH} 14\" role=\"img\" aria-label=\"{}\">", escape(course));
    let (mut x, scale) = (0.0, WIDTH / slow.whole.max(1) as f64);
    for (at, (layer, ns)) in slow.layers().enumerate() {
        // A layer that another process wrote may be longer than the whole.
        let width = (ns as f64 * scale).min(WIDTH - x);
        let side = if at % 2 == 0 { "kernel" } else { "baton" };
        let _ = write!(
            out,
            "<g class=\"{side}\"><rect class=\"mark\" x=\"{x:.1}\" y=\"0\" width=\"{:.1}\" height=\"14\"><title>{} \
             {}</title></rect></g>",
            (width - GAP).max(0.5),
            layer.name(),
            time(ns)
        );
        x += width;
    }
    out + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn the_slowest_messages_are_a_line_an_object_and_a_bar_each() {
        let report = report(2);
        let text = report.text(false);
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let at = lines.iter().position(|line| line == "the slowest messages").expect(&text);
        let line = |connection, whole, write| {
            format!(
                "transmit {whole} µs at 0.500 s: write {write} µs, send-queue 500 ns, between 100 ns \
                 10.0.0.1:{connection},10.0.0.2:80"
            )
        };
        assert_eq!(lines[at + 1..at + 3], [line(1, "2.50", "1.90"), line(0, "2.50", "1.90")]);
        assert!(!lines[at + 3].starts_with("transmit"), "no more than two are shown: {text}");
        let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["slowest"][0]["connection"], "10.0.0.1:1,10.0.0.2:80");
        assert_eq!(
            (json["slowest"][0]["unix_ns"].as_u64(), json["slowest"][0]["end_seq"].as_u64()),
            (Some(1_500_000_007), Some(4711))
        );
        assert_eq!(json["slowest"][1]["layers"][1], serde_json::json!({"layer": "send-queue", "ns": 500}));
        let page = report.page();
        assert_eq!(page.matches("<figure>").count(), 2);
        assert!(page.contains("10.0.0.1:1,10.0.0.2:80 in the kernel</h3>"), "{page}");
        assert!(!Report { show_slowest: 0, ..report }.text(false).contains("slowest"));
    }

    #[test]
    fn those_of_an_engine_stand_beside_the_kernels() {
        let mut report = report(2);
        report.entries[0].place = "engine";
        let text = report.text(false);
        assert!(text.contains("10.0.0.1:0,10.0.0.2:80  in the engine\n"), "{text}");
        assert!(text.contains("10.0.0.1:1,10.0.0.2:80  in the kernel\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(
            (json["slowest"][0]["place"].as_str(), json["slowest"][1]["place"].as_str()),
            (Some("kernel"), Some("engine"))
        );
    }

    #[test]
    fn a_bar_is_no_longer_than_its_message() {
        let false_one = Exemplar::new(Direction::Receive, 1, 100, 0, [90, 80, u64::MAX, 0, 0, 0, 0, 0]);
        let bar = bar(&false_one, "");
        let numbers = |name: &str| -> Vec<f64> {
            bar.split(&format!(" {name}=\""))
                .skip(1)
                .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
                .collect()
        };
        // The first width is none of a layer's.
        for (x, width) in numbers("x").into_iter().zip(numbers("width")) {
            assert!(x + width <= WIDTH + 1.0, "{bar}");
        }
    }
}
