//! `cargo xtask test`: everything that must hold, step by step.
//!
//! Every step runs, even after failures, so that one round shows everything that is wrong. The
//! cheap ones come first.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;
use std::{env, fs, process};

use anyhow::{Context, Result};

use crate::counts::{Counts, Runner, Skips};
use crate::run::{self, cargo};
use crate::setup::{self, Setup};
use crate::steps::{Outcome, Steps};
use crate::{chores, packages, python, rfc, tidy};

/// Longest a step may take in CI, where nobody sees it hang. The longest, building and running
/// the tests, takes some 32 minutes on two cores; the others four together, of 60 for all.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Seeds of the simulator that are tried each time.
const SEEDS: &str = "10000";

/// Runs all steps and prints the summary.
pub fn command(flags: &[&str]) -> Result<ExitCode> {
    let quick = flags.contains(&"--quick");
    let mut steps = Steps::default();
    steps.check("set-up", || match setup::ensure(false)? {
        Setup::Complete => Ok(Outcome::Passed),
        Setup::Incomplete(why) => {
            println!("{why}");
            Ok(Outcome::Skipped("some system packages are missing, see above".into()))
        }
    });
    steps.check("format", || component("fmt", "rustfmt", &["--all", "--check"]));
    steps.check("tidy", || tidy::check().map(failed_if("findings")));
    steps.check("packages", || packages::check().map(failed_if("findings")));
    steps.check("requirements", || rfc::check().map(failed_if("requirements are not accounted for")));
    steps.check("clippy", || {
        component("clippy", "clippy", &["--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
    });
    tests(&mut steps, "tests", &mut workspace_tests());
    steps.count("Python module", python::test);
    if !quick {
        tests(&mut steps, "rings under loom", &mut model_checks());
        steps.check("documentation", documentation);
        steps.check("simulator", || chores::sim_available().map_or_else(skipped, |()| passes(&mut simulator())));
    }
    print!("{}", steps.summary());
    Ok(if steps.total().failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `cargo test`, with the tests that found that they cannot run here counted as
/// skipped.
fn tests(steps: &mut Steps, name: &'static str, command: &mut Command) {
    let mut runner = Runner::default();
    let mut skips = Skips::default();
    steps.count(name, || {
        let log = SkipLog::new();
        command.env("BATON_SKIP_LOG", &log.path);
        let status = run::watch(command, run::in_ci().then_some(LIMIT), |line| runner.see(line))?;
        skips = log.read()?;
        let mut counts = runner.counts;
        counts.passed = counts.passed.saturating_sub(skips.whole.len());
        counts.skipped += skips.whole.len();
        let failure = match status {
            None => format!("took longer than {} minutes", LIMIT.as_secs() / 60),
            Some(status) if !status.success() => status.to_string(),
            Some(_) => return Ok((Outcome::Passed, counts)),
        };
        if counts.failed == 0 {
            // The runner counted nothing: the build failed, or it was killed.
            counts += Counts::FAILED;
        }
        Ok((Outcome::Failed(failure), counts))
    });
    for name in runner.failures {
        steps.note(format!("FAILED {name}"));
    }
    for (why, tests) in skips.reasons {
        let tests: Vec<String> = tests.into_iter().collect();
        steps.note(format!("SKIPPED {why}: {}", tests.join(", ")));
    }
}

fn workspace_tests() -> Command {
    let mut command = cargo();
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    command
}

/// The rings and the wake-up protocol under loom. It replaces atomics in the
/// whole build, so it has a target directory of its own: otherwise each build would undo
/// the other.
fn model_checks() -> Command {
    let mut command = cargo();
    command.args(["test", "--locked", "--package", "baton-engine", "--package", "baton-pair"]);
    command.args(["--package", "baton-port"]);
    command.args(["--lib", "--test", "ring_loom", "under_loom"]);
    command.arg("--target-dir").arg(run::target().join("loom")).env("RUSTFLAGS", "--cfg loom");
    command
}

fn documentation() -> Result<Outcome> {
    let mut command = cargo();
    command.args(["doc", "--workspace", "--no-deps", "--locked"]);
    passes(command.env("RUSTDOCFLAGS", "-D warnings"))
}

fn simulator() -> Command {
    let mut command = chores::sim_command();
    command.args(["--seeds", SEEDS]);
    command
}

/// A cargo subcommand that rustup may have left out.
fn component(subcommand: &str, name: &str, arguments: &[&str]) -> Result<Outcome> {
    if !available(subcommand) && run::on_path("rustup") {
        run::succeed(&mut run::program("rustup", &["component", "add", name]))?;
    }
    if !available(subcommand) {
        return skipped(format!("cargo {subcommand} is not installed: rustup component add {name}"));
    }
    passes(cargo().arg(subcommand).args(arguments))
}

fn available(subcommand: &str) -> bool {
    cargo().args([subcommand, "--version"]).output().is_ok_and(|out| out.status.success())
}

fn passes(command: &mut Command) -> Result<Outcome> {
    Ok(match run::watch(command, run::in_ci().then_some(LIMIT), |_| ())? {
        None => Outcome::Failed(format!("took longer than {} minutes", LIMIT.as_secs() / 60)),
        Some(status) if status.success() => Outcome::Passed,
        Some(status) => Outcome::Failed(format!("{}: {status}", run::line(command))),
    })
}

fn skipped(why: String) -> Result<Outcome> {
    Ok(Outcome::Skipped(why))
}

fn failed_if(what: &'static str) -> impl Fn(usize) -> Outcome {
    move |number| match number {
        0 => Outcome::Passed,
        n => Outcome::Failed(format!("{n} {what}")),
    }
}

/// The file that tests write their skips to; removed in the end.
struct SkipLog {
    path: PathBuf,
}

impl SkipLog {
    fn new() -> SkipLog {
        SkipLog { path: env::temp_dir().join(format!("baton-skips-{}", process::id())) }
    }

    fn read(&self) -> Result<Skips> {
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok(Skips::parse(&text)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Skips::default()),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", self.path.display())),
        }
    }
}

impl Drop for SkipLog {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
