//! Alternated rounds: every contender runs once a round, so that a slow moment
//! of the machine falls on all of them; medians and ratios come from the rounds.

use std::time::Instant;

/// One contender: a name, and what it took in each round, in ns an operation.
pub struct Contender<'a> {
    name: String,
    run: Box<dyn FnMut() + 'a>,
    ns: Vec<f64>,
}

/// A set of contenders, the first of which the others are compared with.
pub struct Rounds<'a> {
    title: String,
    operations: usize,
    contenders: Vec<Contender<'a>>,
}

impl<'a> Rounds<'a> {
    /// Contenders that do `operations` operations a call.
    pub fn new(title: &str, operations: usize) -> Rounds<'a> {
        Rounds { title: title.to_owned(), operations, contenders: Vec::new() }
    }

    /// Adds a contender.
    pub fn add(&mut self, name: impl Into<String>, run: impl FnMut() + 'a) {
        self.contenders.push(Contender { name: name.into(), run: Box::new(run), ns: Vec::new() });
    }

    /// Runs `rounds` rounds after one that is not counted.
    pub fn run(&mut self, rounds: usize) {
        for round in 0..=rounds {
            for contender in &mut self.contenders {
                let start = Instant::now();
                (contender.run)();
                let ns = start.elapsed().as_nanos() as f64 / self.operations as f64;
                if round > 0 {
                    contender.ns.push(ns);
                }
            }
        }
    }

    /// Prints a table, or with `json` one line of JSON a contender: median and
    /// quartiles in ns an operation, and the median over the rounds of the ratio
    /// to the first contender.
    pub fn print(&self, json: bool) {
        if !json {
            println!("\n{}\n  {:<34} {:>9} {:>9} {:>9} {:>8}", self.title, "", "median ns", "q1", "q3", "ratio");
        }
        for contender in &self.contenders {
            let [q1, median, q3] = quartiles(contender.ns.clone());
            let base = &self.contenders[0].ns;
            let [_, ratio, _] = quartiles(contender.ns.iter().zip(base).map(|(ns, base)| ns / base).collect());
            let name = &contender.name;
            if json {
                let title = &self.title;
                println!(
                    r#"{{"set":"{title}","name":"{name}","ns":{median:.2},"q1":{q1:.2},"q3":{q3:.2},"ratio":{ratio:.3}}}"#
                );
            } else {
                println!("  {name:<34} {median:>9.1} {q1:>9.1} {q3:>9.1} {ratio:>8.3}");
            }
        }
    }
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// What `cargo bench` asked for: `None` when it was not `cargo bench` but
/// `cargo test --benches`, else whether to print JSON.
pub fn arguments() -> Option<bool> {
    let arguments: Vec<String> = std::env::args().collect();
    arguments
        .iter()
        .any(|argument| argument == "--bench")
        .then(|| arguments.iter().any(|argument| argument == "--json"))
}
