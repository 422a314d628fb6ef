//! `baton bench run`: experiments one after another, as a plan says.

use crate::commands::measuring::{Amount, write};
use anyhow::{Context, bail};
use baton_apps::fail::{one_line, usage};
use baton_apps::signal::Stop;
use baton_lab::experiment::{Experiment, Findings, Lab};
use baton_lab::papers::{ALL, find};
use std::io::Write as _;
use std::path::PathBuf;

/// Arguments of `baton bench run`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Most experiments need root, for their network namespaces, which end with the command.\n\n\
                  Examples:\n  baton bench run --plan quick\n  baton bench run rsc bump-limit --out out")]
pub struct Args {
    /// The experiments to run, as `baton bench list` names them [default: all]
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    #[command(flatten)]
    amount: Amount,

    /// Directory for the results of each experiment: ID.json, ID.csv, ID.html
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs them. One that fails does not keep the others from running.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let stop = Stop::install().context("cannot catch signals")?;
    let (mut claims, mut failed) = (Vec::new(), Vec::new());
    for experiment in wanted(&args.ids)? {
        let extent = args.amount.of(experiment.id)?;
        say(&format!("{}: {}\n", experiment.id, experiment.title))?;
        let lab = Lab::new(&stop, &|what| eprintln!("{what}"));
        match (experiment.run)(&lab, &extent) {
            Ok(findings) => {
                say(&format!("{}\n", findings.table))?;
                keep(args, experiment, &findings)?;
                claims.extend(findings.claims);
            }
            Err(error) if stop.requested() => return Err(error),
            Err(error) => {
                eprintln!("baton: {}: {}", experiment.id, one_line(&error));
                failed.push(experiment.id);
            }
        }
    }
    let count = |holds| claims.iter().filter(|claim| claim.holds == holds).count();
    let (same, differ, missing) = (count(Some(true)), count(Some(false)), count(None));
    say(&format!("statements of papers: {same} the same here, {differ} different, {missing} not measured\n"))?;
    if !failed.is_empty() {
        bail!("these experiments failed: {}", failed.join(" "));
    }
    Ok(())
}

/// The experiments with these ids, or all.
fn wanted(ids: &[String]) -> anyhow::Result<Vec<&'static Experiment>> {
    let unknown = |id: &String| usage(format!("there is no experiment {id}"), "'baton bench list' lists them");
    if ids.is_empty() {
        return Ok(ALL.iter().collect());
    }
    ids.iter().map(|id| find(id).ok_or_else(|| unknown(id))).collect()
}

/// Writes the files of an experiment, if they are wanted.
fn keep(args: &Args, experiment: &Experiment, findings: &Findings) -> anyhow::Result<()> {
    let Some(dir) = &args.out else { return Ok(()) };
    findings.named(experiment.id).into_iter().try_for_each(|(name, text)| write(&dir.join(name), text))
}

fn say(text: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
