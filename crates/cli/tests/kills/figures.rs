//! Results of the rounds: a line for each round, a table at the end, and JSON on request.

use crate::census::Growth;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The environment variable that names the directory for JSON files.
const OUT_VARIABLE: &str = "BATON_KILLS_OUT";

/// Results of one kind of kill, each over many connections and rounds.
pub struct Figures {
    kind: &'static str,
    seed: u64,
    times: BTreeMap<&'static str, Histogram<u64>>,
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Figures {
    pub fn new(kind: &'static str, seed: u64) -> Figures {
        Figures { kind, seed, times: BTreeMap::new() }
    }

    /// Records times in ns, and returns the longest.
    pub fn times(&mut self, what: &'static str, all: impl IntoIterator<Item = u64>) -> u64 {
        let make = || Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("bounds that it takes");
        let histogram = self.times.entry(what).or_insert_with(make);
        let mut longest = 0;
        for ns in all {
            histogram.saturating_record(ns.max(1));
            longest = longest.max(ns);
        }
        longest
    }

    /// Prints a line of progress.
    pub fn tell(&self, round: usize, rounds: usize, text: &str) {
        println!("{} {}/{rounds}: {text}", self.kind, round + 1);
    }

    /// Prints the table, and writes the JSON.
    pub fn report(&self, growth: &Growth) {
        println!("\n{}, seed {}", self.kind, self.seed);
        println!("  {:<44} {:>8} {:>9} {:>9} {:>9}", "ms", "number", "p50", "p99", "longest");
        for (what, times) in &self.times {
            let at = |quantile| ms(times.value_at_quantile(quantile));
            let (p50, p99, longest) = (at(0.5), at(0.99), ms(times.max()));
            println!("  {what:<44} {:>8} {p50:>9.1} {p99:>9.1} {longest:>9.1}", times.len());
        }
        for (who, first, last) in growth.summary() {
            println!("  {who}, first: {first:?}\n  {who}, last:  {last:?}");
        }
        if let Some(directory) = std::env::var_os(OUT_VARIABLE) {
            std::fs::create_dir_all(&directory).unwrap();
            let path = Path::new(&directory).join(format!("{}.json", self.kind));
            std::fs::write(path, serde_json::to_string_pretty(&self.json()).unwrap()).unwrap();
        }
    }

    fn json(&self) -> Value {
        let time = |times: &Histogram<u64>| {
            let at = |quantile| times.value_at_quantile(quantile);
            json!({ "number": times.len(), "p50_ns": at(0.5), "p99_ns": at(0.99), "longest_ns": times.max() })
        };
        let times: BTreeMap<_, _> = self.times.iter().map(|(what, times)| (what, time(times))).collect();
        json!({ "kind": self.kind, "seed": self.seed, "times": times })
    }
}
