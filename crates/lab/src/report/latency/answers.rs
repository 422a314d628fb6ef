//! How long answers took: from a call that sends to the call that gets the next bytes.

use super::{HEADS, time};
use baton_latency::{Layer, QUANTILES, Table};
use serde::Serialize;

/// The times of answers.
#[derive(Serialize)]
pub(super) struct Answers {
    count: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
}

impl Answers {
    /// `None` if nothing was answered.
    pub fn of(table: &Table) -> Option<Answers> {
        let times = table.layer(Layer::Answer);
        let [p50_ns, p90_ns, p99_ns, p999_ns] = QUANTILES.map(|q| times.quantile(q).unwrap_or(0));
        let answers = Answers { count: times.count, p50_ns, p90_ns, p99_ns, p999_ns, max_ns: times.longest };
        (times.count > 0).then_some(answers)
    }

    /// The cells of its row; it is no share of a way.
    fn cells(&self) -> [String; 7] {
        let times = [self.p50_ns, self.p90_ns, self.p99_ns, self.p999_ns, self.max_ns].map(time);
        let [p50, p90, p99, p999, longest] = times;
        [self.count.to_string(), p50, p90, p99, p999, longest, "-".to_owned()]
    }

    /// Its line under the tables of both ways.
    pub fn text(&self) -> String {
        let cells: String = self.cells().iter().map(|cell| format!("{cell:>11}")).collect();
        format!("  {:<18}{cells}\n", Layer::Answer.name())
    }

    /// A table of its own on the page.
    pub fn table(&self) -> String {
        let heads: String = HEADS.iter().map(|head| format!("<th>{head}</th>")).collect();
        let cells: String = self.cells().iter().map(|cell| format!("<td>{cell}</td>")).collect();
        let name = Layer::Answer.name();
        format!(
            "<table><thead><tr><th>call to call</th>{heads}</tr></thead><tbody><tr><td>{name}</td>{cells}</tr></tbody></table>"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_latency::Spans;

    #[test]
    fn answers_are_a_line_an_object_and_a_table() {
        let spans = Spans::default();
        assert!(Answers::of(&Table::of(&spans)).is_none());
        spans.record(Layer::Answer, 2000);
        let answers = Answers::of(&Table::of(&spans)).unwrap();
        let words: Vec<String> = answers.text().split_whitespace().map(str::to_owned).collect();
        assert_eq!((words[0].as_str(), words[1].as_str(), words.last().unwrap().as_str()), ("answer", "1", "-"));
        let json = serde_json::to_value(&answers).unwrap();
        assert_eq!((&json["count"], &json["max_ns"]), (&1.into(), &2000.into()));
        assert!(answers.table().contains("<td>answer</td><td>1</td>"));
    }
}
