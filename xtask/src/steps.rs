//! A list of steps, run one after another, and its summary.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::counts::Counts;
use crate::run;

/// How a step ended.
#[derive(Debug)]
pub enum Outcome {
    /// The check passed.
    Passed,
    /// The check failed; the reason in a line.
    Failed(String),
    /// The check could not run here; the reason.
    Skipped(String),
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    outcome: Outcome,
    counts: Counts,
    duration: Duration,
}

/// The steps so far.
#[derive(Debug, Default)]
pub struct Steps {
    rows: Vec<Row>,
    /// Lines for the end of the summary, such as names of failed tests.
    notes: Vec<String>,
}

impl Steps {
    /// Runs a step that counts as one check. An error is a failure.
    pub fn check(&mut self, name: &'static str, body: impl FnOnce() -> Result<Outcome>) {
        self.count(name, || {
            let outcome = body()?;
            let counts = match outcome {
                Outcome::Passed => Counts::PASSED,
                Outcome::Failed(_) => Counts::FAILED,
                Outcome::Skipped(_) => Counts::SKIPPED,
            };
            Ok((outcome, counts))
        });
    }

    /// Runs a step that counts its own checks. An error is one failure.
    pub fn count(&mut self, name: &'static str, body: impl FnOnce() -> Result<(Outcome, Counts)>) {
        println!("\n── {name}");
        let start = Instant::now();
        let (outcome, counts) = body().unwrap_or_else(|e| (Outcome::Failed(format!("{e:#}")), Counts::FAILED));
        match &outcome {
            Outcome::Passed => println!("── {name}: ok, {}", run::seconds(start)),
            Outcome::Failed(why) => println!("── {name}: FAILED, {}: {why}", run::seconds(start)),
            Outcome::Skipped(why) => println!("── {name}: SKIPPED: {why}"),
        }
        self.rows.push(Row { name, outcome, counts, duration: start.elapsed() });
    }

    /// Adds a line to the end of the summary.
    pub fn note(&mut self, line: String) {
        self.notes.push(line);
    }

    /// The sum of all steps.
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        for row in &self.rows {
            total += row.counts;
        }
        total
    }

    /// The table of steps, the notes, and the line of totals, which is last.
    pub fn summary(&self) -> String {
        let mut text = String::from("\nSummary\n");
        let all: Duration = self.rows.iter().map(|row| row.duration).sum();
        for Row { name, outcome, counts, duration } in &self.rows {
            let (word, why) = match outcome {
                Outcome::Passed => ("ok", ""),
                Outcome::Failed(why) => ("FAILED", why.as_str()),
                Outcome::Skipped(why) => ("SKIPPED", why.as_str()),
            };
            let checks = if counts.passed + counts.failed + counts.skipped > 1 {
                format!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped)
            } else {
                String::new()
            };
            let tail = [checks.as_str(), why].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join("; ");
            text.push_str(format!("  {name:<16} {word:<8} {:>7.1} s  {tail}", duration.as_secs_f64()).trim_end());
            text.push('\n');
        }
        text.push_str(&format!("  {:<16} {:<8} {:>7.1} s\n", "all", "", all.as_secs_f64()));
        for note in &self.notes {
            text.push_str(&format!("  {note}\n"));
        }
        let Counts { passed, failed, skipped } = self.total();
        text.push_str(&format!("\n{passed} passed, {failed} failed, {skipped} skipped\n"));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_ends_with_the_totals() {
        let mut steps = Steps::default();
        steps.check("format", || Ok(Outcome::Passed));
        steps.check("broken", || anyhow::bail!("no such file"));
        steps.check("browser", || Ok(Outcome::Skipped("no chromium".into())));
        steps.count("tests", || Ok((Outcome::Passed, Counts { passed: 40, failed: 0, skipped: 2 })));
        steps.note("SKIPPED no zero-copy: xdp::zc".into());
        let text = steps.summary();
        assert!(text.ends_with("\n41 passed, 1 failed, 3 skipped\n"), "{text}");
        assert!(text.contains("FAILED") && text.contains("no such file"), "{text}");
        assert!(text.contains("SKIPPED      0.0 s  no chromium"), "{text}");
        assert!(text.contains("40 passed, 0 failed, 2 skipped"), "{text}");
        assert!(text.contains("xdp::zc"), "{text}");
    }
}
