//! How many tests passed, failed and were skipped.
//!
//! Read from the lines of Rust's test runner and from the log that
//! `baton-testkit` writes for tests that found that they cannot run here.

use std::collections::BTreeSet;
use std::ops::AddAssign;

/// Numbers of tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// That ran and held.
    pub passed: usize,
    /// That ran and did not.
    pub failed: usize,
    /// That did not run.
    pub skipped: usize,
}

impl Counts {
    /// One check that passed.
    pub const PASSED: Counts = Counts { passed: 1, failed: 0, skipped: 0 };
    /// One check that failed.
    pub const FAILED: Counts = Counts { passed: 0, failed: 1, skipped: 0 };
    /// One check that was skipped.
    pub const SKIPPED: Counts = Counts { passed: 0, failed: 0, skipped: 1 };
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Results in the output of `cargo test`, read line by line.
#[derive(Debug, Default)]
pub struct Runner {
    /// The sum of its `test result:` lines.
    pub counts: Counts,
    /// Names of the tests that failed.
    pub failures: Vec<String>,
}

impl Runner {
    /// Takes one line.
    pub fn see(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result:") {
            self.counts += Counts {
                passed: number_before(result, "passed"),
                failed: number_before(result, "failed"),
                skipped: number_before(result, "ignored"),
            };
        } else if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.push(name.to_owned());
        }
    }
}

fn number_before(text: &str, word: &str) -> usize {
    text.split([';', '.'])
        .find_map(|part| part.trim().strip_suffix(word))
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

/// Contents of the log of skips.
#[derive(Debug, Default)]
pub struct Skips {
    /// Tests (binary and name) that are skipped as a whole.
    pub whole: BTreeSet<(String, String)>,
    /// Each reason with the tests that gave it.
    pub reasons: std::collections::BTreeMap<String, BTreeSet<String>>,
}

impl Skips {
    /// Reads a log; lines that are not in its form are a bug of the test kit.
    pub fn parse(log: &str) -> Skips {
        let mut skips = Skips::default();
        for line in log.lines() {
            let mut fields = line.splitn(4, '\t');
            let (Some(extent), Some(binary), Some(test), Some(why)) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                panic!("not a line of the log of skips: {line}");
            };
            if extent == "whole" {
                skips.whole.insert((binary.to_owned(), test.to_owned()));
            }
            skips.reasons.entry(why.to_owned()).or_default().insert(format!("{binary}::{test}"));
        }
        skips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_add_up() {
        let mut runner = Runner::default();
        for line in [
            "running 13 tests",
            "test a::b ... ok",
            "test a::c ... FAILED",
            "test crates/x/src/lib.rs - f (line 3) ... FAILED",
            "test result: FAILED. 10 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 2.20s",
            "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s",
        ] {
            runner.see(line);
        }
        assert_eq!(runner.counts, Counts { passed: 15, failed: 2, skipped: 1 });
        assert_eq!(runner.failures, ["a::c", "crates/x/src/lib.rs - f (line 3)"]);
    }

    #[test]
    fn a_test_that_skips_twice_is_one_skip_with_two_reasons() {
        let skips =
            Skips::parse("whole\ttap\topens\tno tun\nwhole\ttap\topens\tno veth\npart\txdp\tzc\tno zero-copy\n");
        assert_eq!(skips.whole.len(), 1);
        assert_eq!(skips.reasons.len(), 3);
        assert!(skips.reasons["no zero-copy"].contains("xdp::zc"));
    }
}
