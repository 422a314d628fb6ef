//! What commands that measure share: the length of a run, and what was found, on the terminal
//! and in files as the options ask for it.

use baton_apps::fail::usage;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The length of a run.
///
/// # Errors
/// If it is none.
pub fn length(seconds: f64) -> anyhow::Result<Duration> {
    let length = Duration::try_from_secs_f64(seconds).ok().filter(|length| !length.is_zero());
    length.ok_or_else(|| usage(format!("a run cannot take {seconds} s"), "give it 0.1 or more"))
}

/// Options that say where it goes.
#[derive(clap::Args, Debug)]
pub struct Output {
    /// Print the outcome as JSON instead of a table
    #[arg(long)]
    json: bool,

    /// Write all figures as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write a page with plots
    #[arg(long, visible_alias = "report", value_name = "FILE")]
    html: Option<PathBuf>,
}

/// How an outcome is written: as a table, as comma-separated values, as a page.
pub type Forms<T> = [fn(&T) -> String; 3];

impl Output {
    /// Writes and prints an outcome.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn give<T: Serialize>(&self, outcome: &T, [table, csv, page]: Forms<T>) -> anyhow::Result<()> {
        if let Some(path) = &self.csv {
            write(path, &csv(outcome))?;
        }
        if let Some(path) = &self.html {
            write(path, &page(outcome))?;
        }
        print(self.json, outcome, table)
    }
}

/// Prints an outcome as JSON, or else as its table.
///
/// # Errors
/// If nobody reads it.
pub fn print<T: Serialize>(json: bool, outcome: &T, table: fn(&T) -> String) -> anyhow::Result<()> {
    let text = if json { serde_json::to_string_pretty(outcome)? + "\n" } else { table(outcome) };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Writes a file, and makes its directory.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let refuse = |error| usage(format!("cannot write {}: {error}", path.display()), "name another file");
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir).map_err(refuse)?;
    }
    std::fs::write(path, text).map_err(refuse)
}
