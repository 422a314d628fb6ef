//! `baton bench list`: all experiments of the lab.

use baton_lab::experiment::Experiment;
use baton_lab::papers::{ALL, exhibits};
use std::fmt::Write as _;
use std::io::Write as _;

/// Arguments of `baton bench list`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton bench list")]
pub struct Args {}

/// Prints the list.
pub fn run(_args: &Args) -> anyhow::Result<()> {
    let text: String = ALL.iter().map(describe).collect();
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn describe(experiment: &Experiment) -> String {
    let Experiment { id, title, needs, axes, command, .. } = experiment;
    let mut out = format!("{id}\n  measures  {title}\n");
    for exhibit in exhibits::of(experiment.id) {
        let _ = writeln!(out, "  repeats   {exhibit}: {}", exhibit.about);
    }
    for need in *needs {
        let without = need.without.map_or(String::new(), |without| format!("; otherwise {without}"));
        let _ = writeln!(out, "  needs     {}{without}", need.what);
    }
    for axis in *axes {
        let _ = writeln!(out, "  varies    {}: {}", axis.name, axis.about);
    }
    let _ = writeln!(out, "  command   {command}");
    out
}
