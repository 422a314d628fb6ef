//! `baton lab`: tables and figures of the papers, repeated.

use super::measuring::{Amount, bar, keep, write};
use anyhow::{Context, bail};
use baton_apps::fail::{one_line, usage};
use baton_apps::signal::Stop;
use baton_lab::experiment::{Axis, Exhibit, Experiment, Findings, Lab};
use baton_lab::papers::{ALL, exhibits};
use baton_lab::report::Machine;
use baton_lab::report::claim::Claim;
use baton_lab::results::{self, Shown};
use indicatif::ProgressBar;
use std::io::Write as _;
use std::path::PathBuf;

/// Arguments of `baton lab`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Each table or figure is measured with real traffic, simulated in virtual time, or not possible here, with the\n\
                  reason. What is measured needs root, for its network namespaces, which end with the command.\n\n\
                  Examples:\n  baton lab list\n  baton lab ch --html out/ch.html\n  baton lab ch --only fig6,table1\n  \
                  baton lab rsc --plan quick --json"
)]
pub struct Args {
    /// The paper whose tables and figures to repeat
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// List all tables and figures: how each is repeated, and by which experiments
    List(ListArgs),
    /// Receive aggregation and ACK offload (Menon and Zwaenepoel, 2008)
    Ra(PaperArgs),
    /// Receive side coalescing (Makineni, Iyer and others, 2006)
    Rsc(PaperArgs),
    /// The loosely coupled split (Shalev, Makhervaks and others, 2006)
    Lc(PaperArgs),
    /// Latency analysis: layers, copies, checksums, searches, round trips (Wolman and others, 1994)
    La(PaperArgs),
    /// Handoff policies, on a simulated NIC (Kim and Rixner, 2006)
    Ch(PaperArgs),
}

/// Arguments of `baton lab list`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton lab list\n  baton lab list --json")]
struct ListArgs {
    /// Print the list as JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Arguments of `baton lab ra` and the others.
#[derive(clap::Args, Debug)]
struct PaperArgs {
    #[command(flatten)]
    amount: Amount,

    /// Repeat only these tables and figures: fig6, table1, ch-figure-6 [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,

    /// Print the results as JSON instead of tables
    #[arg(long)]
    json: bool,

    /// Write every row to this file as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write an HTML page with plots to this file
    #[arg(long, visible_alias = "report", value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.what {
        What::List(args) => list(args),
        What::Ra(args) => repeat("RA", args),
        What::Rsc(args) => repeat("RSC", args),
        What::Lc(args) => repeat("LC", args),
        What::La(args) => repeat("LA", args),
        What::Ch(args) => repeat("CH", args),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let text = if args.json {
        let shown: Vec<Shown> = exhibits::all().map(|exhibit| Shown { exhibit, rows: Vec::new() }).collect();
        results::json(&shown)? + "\n"
    } else {
        exhibits::all().map(describe).collect()
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn describe(exhibit: &Exhibit) -> String {
    let Exhibit { id, about, method, from, .. } = exhibit;
    let from = if from.is_empty() { String::new() } else { format!(": experiments {}", from.join(", ")) };
    format!("{id:18} {about}\n{:18} {method}{from}\n", "")
}

/// Repeats what is wanted of a paper. An experiment that fails does not keep the others from running.
fn repeat(paper: &str, args: &PaperArgs) -> anyhow::Result<()> {
    let wanted = wanted(paper, &args.only)?;
    let stop = Stop::install().context("cannot catch signals")?;
    let mine = |experiment: &&Experiment| wanted.iter().any(|exhibit| exhibit.from.contains(&experiment.id));
    let experiments: Vec<&Experiment> = ALL.iter().filter(mine).collect();
    let bar = bar(experiments.len());
    let (mut found, mut claims, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for experiment in experiments {
        match one(experiment, &wanted, args, &stop, &bar) {
            Ok(findings) => {
                found.extend(findings.rows);
                claims
                    .extend(findings.claims.into_iter().filter(|claim| claim.source.split(' ').next() == Some(paper)));
            }
            Err(error) if stop.requested() => return Err(error),
            Err(error) => {
                bar.suspend(|| eprintln!("baton: {}: {}", experiment.id, one_line(&error)));
                failed.push(experiment.id);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let rows =
        |exhibit: &Exhibit| found.iter().filter(|(id, _)| *id == exhibit.id).map(|(_, row)| row.clone()).collect();
    let shown: Vec<Shown> = wanted.iter().map(|&exhibit| Shown { exhibit, rows: rows(exhibit) }).collect();
    give(args, &shown, &claims)?;
    if failed.is_empty() { Ok(()) } else { bail!("these experiments failed: {}", failed.join(" ")) }
}

/// Runs one experiment as far as the wanted exhibits need it.
fn one(
    experiment: &Experiment,
    wanted: &[&'static Exhibit],
    args: &PaperArgs,
    stop: &Stop,
    bar: &ProgressBar,
) -> anyhow::Result<Findings> {
    let mut extent = args.amount.of(experiment.id)?;
    if experiment.axes.iter().any(|axis| axis.name == Axis::EXHIBIT.name) {
        keep(&mut extent, Axis::EXHIBIT.name, |id| wanted.iter().any(|exhibit| exhibit.id == id))?;
    }
    let tell = |what: &str| {
        bar.set_message(format!("{}: {what}", experiment.id));
        if bar.is_hidden() {
            eprintln!("{}: {what}", experiment.id);
        }
    };
    let lab = if experiment.needs.is_empty() { Lab::in_memory(stop, &tell) } else { Lab::new(stop, &tell) };
    (experiment.run)(&lab, &extent)
}

/// The tables and figures of a paper that these names mean, or all.
fn wanted(paper: &str, names: &[String]) -> anyhow::Result<Vec<&'static Exhibit>> {
    let of_paper: Vec<&Exhibit> = exhibits::all().filter(|exhibit| exhibit.paper.key == paper).collect();
    if names.is_empty() {
        return Ok(of_paper);
    }
    let known = || of_paper.iter().map(|exhibit| exhibit.id).collect::<Vec<_>>().join(", ");
    for name in names {
        if !of_paper.iter().any(|exhibit| means(name, exhibit)) {
            return Err(usage(
                format!("{paper} has no {name} that is repeated here"),
                format!("name one of {}", known()),
            ));
        }
    }
    Ok(of_paper.into_iter().filter(|exhibit| names.iter().any(|name| means(name, exhibit))).collect())
}

/// Returns true if a name means an exhibit: `ch-figure-6`, `figure-6`, `figure6`, `fig6` and `Fig. 6` are
/// the same.
fn means(name: &str, exhibit: &Exhibit) -> bool {
    let letters = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let (name, id, place) = (letters(name), letters(exhibit.id), letters(exhibit.what));
    name == id || name == place || name == place.replacen("figure", "fig", 1)
}

fn give(args: &PaperArgs, shown: &[Shown], claims: &[Claim]) -> anyhow::Result<()> {
    if let Some(path) = &args.csv {
        write(path, &results::csv(shown))?;
    }
    if let Some(path) = &args.html {
        write(path, &results::page(shown, claims, &Machine::here(0.0)))?;
    }
    let text = if args.json { results::json(shown)? + "\n" } else { results::table(shown, claims) };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_mean_the_same_as_long_ones() {
        for name in ["fig6", "Figure 6", "figure-6", "ch-figure-6", "Fig. 6"] {
            let found = wanted("CH", &[name.to_owned()]).unwrap();
            assert_eq!(found.iter().map(|exhibit| exhibit.id).collect::<Vec<_>>(), ["ch-figure-6"], "{name}");
        }
        assert_eq!(wanted("RA", &["table1".to_owned(), "fig12".to_owned()]).unwrap().len(), 2);
        let error = wanted("RA", &["fig99".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("fig99"), "{error}");
    }
}
