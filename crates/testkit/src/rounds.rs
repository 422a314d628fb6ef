//! Benchmarks in alternated rounds: every contender runs once a round, so that a
//! slow moment of the machine falls on all of them; medians and ratios come from
//! the rounds.
//!
//! ```no_run
//! use baton_testkit::rounds::{Effort, Rounds};
//!
//! let mut page = [0u8; 4096];
//! let mut set = Rounds::new("fill 4096 bytes", 1000);
//! set.add("zeros", || (0..1000).for_each(|_| std::hint::black_box(&mut page).fill(0)));
//! set.run(Effort::asked().rounds(301));
//! set.report();
//! ```

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, io};

/// The environment variable that names the directory for raw figures.
pub const OUT_VARIABLE: &str = "BATON_BENCH_OUT";

/// How much work a benchmark should do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// `cargo bench`: measure.
    Measure,
    /// Anything else, such as `cargo test --benches`: only show that it runs.
    Smoke,
}

impl Effort {
    /// The effort that the command line asks for.
    pub fn asked() -> Effort {
        if env::args().any(|argument| argument == "--bench") { Effort::Measure } else { Effort::Smoke }
    }

    /// The number of rounds, given how many a measurement takes.
    pub fn rounds(self, measured: usize) -> usize {
        self.pick(measured, 1)
    }

    /// The first when measuring, else the second.
    pub fn pick<T>(self, measure: T, smoke: T) -> T {
        match self {
            Effort::Measure => measure,
            Effort::Smoke => smoke,
        }
    }
}

/// A name, what to run and time, and what it took in each round, in ns an operation.
struct Contender<'a> {
    name: String,
    run: Box<dyn FnMut() -> Duration + 'a>,
    ns: Vec<f64>,
}

/// A set of contenders, the first of which the others are compared with.
pub struct Rounds<'a> {
    title: String,
    operations: usize,
    contenders: Vec<Contender<'a>>,
}

impl<'a> Rounds<'a> {
    /// A set of contenders that do `operations` operations per call.
    pub fn new(title: &str, operations: usize) -> Rounds<'a> {
        Rounds { title: title.to_owned(), operations, contenders: Vec::new() }
    }

    /// Adds a contender.
    pub fn add(&mut self, name: impl Into<String>, mut run: impl FnMut() + 'a) {
        self.add_timed(name, move || {
            let start = Instant::now();
            run();
            start.elapsed()
        });
    }

    /// Adds a contender that returns how long its operations took, without their preparation.
    pub fn add_timed(&mut self, name: impl Into<String>, run: impl FnMut() -> Duration + 'a) {
        self.contenders.push(Contender { name: name.into(), run: Box::new(run), ns: Vec::new() });
    }

    /// Runs `rounds` rounds after one that is not counted.
    pub fn run(&mut self, rounds: usize) {
        for round in 0..=rounds {
            for contender in &mut self.contenders {
                let ns = (contender.run)().as_nanos() as f64 / self.operations as f64;
                if round > 0 {
                    contender.ns.push(ns);
                }
            }
        }
    }

    /// Prints a table: median and quartiles in ns an operation, and the median
    /// over the rounds of the ratio to the first contender. Writes the raw figures
    /// as csv into the directory that `BATON_BENCH_OUT` names, if it does.
    ///
    /// # Panics
    /// If the set has not been run, or the file cannot be written.
    pub fn report(&self) {
        println!("\n{}\n  {:<34} {:>9} {:>9} {:>9} {:>8}", self.title, "", "median ns", "q1", "q3", "ratio");
        for contender in &self.contenders {
            let [q1, median, q3] = quartiles(contender.ns.clone());
            let base = &self.contenders[0].ns;
            let [_, ratio, _] = quartiles(contender.ns.iter().zip(base).map(|(ns, base)| ns / base).collect());
            println!("  {:<34} {median:>9.1} {q1:>9.1} {q3:>9.1} {ratio:>8.3}", contender.name);
        }
        if let Some(directory) = env::var_os(OUT_VARIABLE) {
            let path = self.csv_path(Path::new(&directory), &crate::binary_name());
            self.write_csv(&path).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
        }
    }

    /// The median of each contender, in ns an operation, in their order.
    ///
    /// # Panics
    /// If the set has not been run.
    pub fn medians(&self) -> Vec<f64> {
        self.contenders.iter().map(|contender| quartiles(contender.ns.clone())[1]).collect()
    }

    fn csv_path(&self, directory: &Path, bench: &str) -> PathBuf {
        let words: String = self.title.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { ' ' }).collect();
        let slug: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
        directory.join(format!("{bench}-{}.csv", slug.join("-")))
    }

    /// `contender,round,ns`, a line a figure.
    fn write_csv(&self, path: &Path) -> io::Result<()> {
        let mut file = io::BufWriter::new(fs::File::create(path)?);
        writeln!(file, "contender,round,ns")?;
        for contender in &self.contenders {
            let name = contender.name.replace('"', "'");
            for (round, ns) in contender.ns.iter().enumerate() {
                writeln!(file, "\"{name}\",{round},{ns:.3}")?;
            }
        }
        file.flush()
    }
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn contenders_alternate_and_the_first_round_does_not_count() {
        let order = RefCell::new(Vec::new());
        let mut set = Rounds::new("order", 1);
        set.add("a", || order.borrow_mut().push('a'));
        set.add("b", || order.borrow_mut().push('b'));
        set.run(2);
        assert_eq!(set.contenders[0].ns.len(), 2);
        set.report();
        drop(set);
        assert_eq!(order.into_inner(), ['a', 'b', 'a', 'b', 'a', 'b']);
    }

    #[test]
    fn quartiles_are_of_the_sorted_values() {
        assert_eq!(quartiles(vec![5.0, 1.0, 4.0, 2.0, 3.0]), [2.0, 3.0, 4.0]);
        assert_eq!(quartiles(vec![7.0]), [7.0, 7.0, 7.0]);
    }

    #[test]
    fn raw_figures_are_kept_under_a_plain_name() {
        let mut set = Rounds::new("copy, in order (1448)", 1);
        set.add("a, \"b\"", || ());
        set.run(2);
        let path = set.csv_path(&env::temp_dir(), &format!("rounds{}", std::process::id()));
        assert!(path.to_str().unwrap().ends_with("-copy-in-order-1448.csv"), "{path:?}");
        set.write_csv(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], "contender,round,ns");
        assert!(lines[1].starts_with("\"a, 'b'\",0,"), "{text}");
    }
}
