//! Shared by the commands that measure: how much, and output to the terminal and to files as the
//! options ask.

use anyhow::Context;
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use baton_lab::experiment::{Extent, Findings, Lab, PLANS, plan};
use baton_lab::watch::Watch;
use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options that choose how much to measure.
#[derive(clap::Args, Debug)]
pub struct Amount {
    /// How much to measure: quick looks, and whole repeats what is published
    #[arg(long, value_name = "PLAN", default_value = "whole", value_parser = plans())]
    plan: String,

    /// Number of measured runs of each point [default: the plan's]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: Option<u16>,

    /// Length of one run in seconds [default: the plan's]
    #[arg(long)]
    seconds: Option<f64>,
}

/// The names of the plans.
pub fn plans() -> PossibleValuesParser {
    PossibleValuesParser::new(PLANS.map(|(name, _)| name))
}

/// The extent of an experiment in a plan.
///
/// # Errors
/// If the plan does not have it.
pub fn extent(name: &str, id: &str) -> anyhow::Result<Extent> {
    plan(name)?.remove(id).with_context(|| format!("plan {name} does not have {id}"))
}

impl Amount {
    /// How much of an experiment is wanted.
    ///
    /// # Errors
    /// A usage error if runs of this length are not possible.
    pub fn of(&self, id: &str) -> anyhow::Result<Extent> {
        let mut extent = extent(&self.plan, id)?;
        extent.rounds = self.rounds.map_or(extent.rounds, usize::from);
        if let Some(seconds) = self.seconds {
            extent.seconds = length(seconds)?.as_secs_f64();
        }
        Ok(extent)
    }
}

/// Keeps those values of an axis that an option names.
///
/// # Errors
/// If the axis does not have words as values.
pub fn keep(extent: &mut Extent, axis: &str, wanted: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let mut values: Vec<String> = extent.values(axis)?;
    values.retain(|value| wanted(value));
    extent.set(axis, &values)
}

/// Measures in a lab with namespaces, and says on standard error what is going on.
///
/// # Errors
/// If it fails, or signals cannot be caught.
pub fn in_lab<T>(measure: impl FnOnce(&Lab<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let stop = Stop::install().context("cannot catch signals")?;
    measure(&Lab::new(&stop, &|what| eprintln!("{what}")))
}

/// Checks the length of a run.
///
/// # Errors
/// A usage error if it is not a positive number of seconds.
pub fn length(seconds: f64) -> anyhow::Result<Duration> {
    let length = Duration::try_from_secs_f64(seconds).ok().filter(|length| !length.is_zero());
    length.ok_or_else(|| usage(format!("a run cannot take {seconds} s"), "give --seconds 0.1 or more"))
}

/// A progress bar on standard error.
pub fn bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} {elapsed} {wide_msg}");
    let bar = ProgressBar::new(steps as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// A bar that counts the steps of a measurement. Without a terminal each step is a line instead.
pub struct Steps(pub ProgressBar);

impl Watch for Steps {
    fn plan(&self, steps: usize) {
        self.0.set_length(steps as u64);
    }

    fn step(&self, what: &str) {
        self.0.inc(1);
        self.0.set_message(what.to_owned());
        if self.0.is_hidden() {
            eprintln!("{what}");
        }
    }
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

impl Output {
    /// Writes the requested files and prints the findings.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn give(&self, findings: &Findings) -> anyhow::Result<()> {
        let files = [(&self.csv, &findings.csv), (&self.html, &findings.page)];
        for (path, text) in files {
            if let (Some(path), Some(text)) = (path, text) {
                write(path, text)?;
            }
        }
        show(self.json, findings)
    }
}

/// Prints findings as JSON or as a table.
///
/// # Errors
/// If standard output is closed.
pub fn show(json: bool, findings: &Findings) -> anyhow::Result<()> {
    let text = if json { findings.json.clone() + "\n" } else { findings.table.clone() };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Writes a file, and creates its directory if necessary.
///
/// # Errors
/// A usage error if the file cannot be written.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return Err(usage("a page cannot go to standard output, which has the report", "name a file"));
    }
    create(path, |path| std::fs::write(path, text))
}

/// Makes a file by `make`, and its directory if necessary.
///
/// # Errors
/// A usage error if it cannot be made.
pub fn create<T>(path: &Path, make: impl FnOnce(&Path) -> std::io::Result<T>) -> anyhow::Result<T> {
    let refuse = |error| usage(format!("cannot write {}: {error}", path.display()), "name another file");
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir).map_err(refuse)?;
    }
    make(path).map_err(refuse)
}
