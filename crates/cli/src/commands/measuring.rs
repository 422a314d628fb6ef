//! Shared by the commands that measure: the length of a run, and output to the terminal and to
//! files as the options ask.

use baton_apps::fail::usage;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Checks the length of a run.
///
/// # Errors
/// A usage error if it is not a positive number of seconds.
pub fn length(seconds: f64) -> anyhow::Result<Duration> {
    let length = Duration::try_from_secs_f64(seconds).ok().filter(|length| !length.is_zero());
    length.ok_or_else(|| usage(format!("a run cannot take {seconds} s"), "give --seconds 0.1 or more"))
}

/// Options that choose the form of the results and where they go.
#[derive(clap::Args, Debug)]
pub struct Output {
    /// Print the results as JSON instead of a table
    #[arg(long)]
    json: bool,

    /// Write all results to this file as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write an HTML page with plots to this file
    #[arg(long, visible_alias = "report", value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The functions that render results: as a table, as comma-separated values, as an HTML page.
pub type Forms<T> = [fn(&T) -> String; 3];

impl Output {
    /// Writes the requested files and prints the results.
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

/// Prints results as JSON or as a table.
///
/// # Errors
/// If standard output is closed.
pub fn print<T: Serialize>(json: bool, outcome: &T, table: fn(&T) -> String) -> anyhow::Result<()> {
    let text = if json { serde_json::to_string_pretty(outcome)? + "\n" } else { table(outcome) };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Writes a file, and creates its directory if necessary.
///
/// # Errors
/// A usage error if the file cannot be written.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let refuse = |error| usage(format!("cannot write {}: {error}", path.display()), "name another file");
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir).map_err(refuse)?;
    }
    std::fs::write(path, text).map_err(refuse)
}
