//! `baton bump bench`: what coalescing saves the kernel's stack, beside the papers' figures.

use crate::bump::bench;
use crate::demo::World;
use crate::fail::usage;
use crate::signal::Stop;
use anyhow::Context;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `baton bump bench`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    baton bump bench\n  \
    baton bump bench --only limit --rounds 5 --report out/bump.html --csv out/bump.csv")]
pub struct Args {
    /// Measured runs of everything
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,

    /// Seconds of one run
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,

    /// Only chapters whose name contains this: limit, connections, messages, latency
    #[arg(long, default_value = "")]
    only: String,

    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Write every run as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Print the outcome as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs it, between two namespaces of its own.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let length = Duration::try_from_secs_f64(args.seconds).ok().filter(|length| !length.is_zero());
    let length = length.ok_or_else(|| usage(format!("a run cannot take {} s", args.seconds), "give it 0.1 or more"))?;
    if !bench::CHAPTERS.iter().any(|chapter| chapter.name.contains(&args.only)) {
        let names: Vec<&str> = bench::CHAPTERS.iter().map(|chapter| chapter.name).collect();
        return Err(usage(format!("there is no chapter {}", args.only), format!("name one of {}", names.join(", "))));
    }
    let stop = Stop::install().context("cannot catch signals")?;
    let world = World::new().map_err(|why| usage(why.to_string(), "run as root"))?;
    let options = bench::Options { rounds: args.rounds.into(), length, only: args.only.clone() };
    let findings = bench::run(&world, &options, &stop, &|what| eprintln!("{what}"))?;
    drop(world);
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text)
            .map_err(|error| usage(format!("cannot write {}: {error}", path.display()), "name another file"))
    };
    if let Some(path) = &args.report {
        write(path, findings.page())?;
    }
    if let Some(path) = &args.csv {
        write(path, findings.csv())?;
    }
    let text = if args.json { serde_json::to_string_pretty(&findings)? + "\n" } else { findings.table() };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
