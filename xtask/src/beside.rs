//! `cargo xtask beside`: every cell of the matrix of `crates/cli/tests/beside`.
//!
//! Results are kept in a file, so that an interrupted run continues where it stopped.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::run;
use crate::run::cargo;
use crate::setup::{self, Setup};

/// Options of the command line.
#[derive(PartialEq, Eq, Debug, Default)]
struct Wishes {
    again: bool,
    failed: bool,
    at_once: Option<usize>,
    cells: Vec<String>,
}

/// Plays cells and prints a row for each.
pub fn command(arguments: &[String]) -> Result<ExitCode> {
    let Wishes { again, failed, at_once, mut cells } = wishes(arguments)?;
    if let Setup::Incomplete(why) = setup::ensure(false)? {
        println!("{why}\n");
    }
    let log = std::path::absolute(run::target())?.join("beside");
    let played = fs::read_to_string(&log).unwrap_or_default();
    if failed {
        cells.extend(last_failed(&played));
        if cells.is_empty() {
            println!("No cell has failed.");
            return Ok(ExitCode::SUCCESS);
        }
    } else if again {
        // None may have been played yet.
        let _ = fs::remove_file(&log);
    }
    let mut command = cargo();
    command.args(["test", "--locked", "--package", "baton-cli", "--test", "beside"]);
    command.args(["--", "--nocapture", "--test-threads=4"]);
    command.env("BATON_BESIDE", "all").env("BATON_BESIDE_ONLY", cells.join(",")).env("BATON_BESIDE_LOG", &log);
    command.envs(at_once.map(|number| ("BATON_BESIDE_AT_ONCE", number.to_string())));
    let status = run::watch(&mut command, None, |_| ())?.context("it has no limit")?;
    let failed = last_failed(&fs::read_to_string(&log).unwrap_or_default());
    println!("\n{} cells failed; play them again: cargo xtask beside --failed", failed.len());
    failed.iter().for_each(|cell| println!("  {cell}"));
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Cells that failed when they were played last.
fn last_failed(played: &str) -> Vec<String> {
    let mut failed = Vec::new();
    for (word, cell) in played.lines().filter_map(|line| line.split_once(' ')) {
        failed.retain(|other| other != cell);
        if word == "failed" {
            failed.push(cell.to_owned());
        }
    }
    failed
}

fn wishes(arguments: &[String]) -> Result<Wishes> {
    let mut wishes = Wishes::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--again" => wishes.again = true,
            "--failed" => wishes.failed = true,
            "--at-once" => {
                let number = rest.next().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
                wishes.at_once = Some(number.context("--at-once needs a number above 0")?);
            }
            flag if flag.starts_with('-') => {
                bail!("unknown argument {flag}; known: --again --failed --at-once N CELL...")
            }
            cell => wishes.cells.push(cell.to_owned()),
        }
    }
    Ok(wishes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_flags_and_cells() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let taken = wishes(&words("--again --at-once 3 redirect/idle")).unwrap();
        assert_eq!(taken, Wishes { again: true, failed: false, at_once: Some(3), cells: words("redirect/idle") });
        for bad in ["--at-once", "--at-once 0", "--only"] {
            assert!(wishes(&words(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cell_counts_as_it_was_played_last() {
        assert_eq!(last_failed("failed a\nok b\nfailed c\nok a\nfailed c\n"), ["c"]);
    }
}
