//! `baton bump bench`: measures what coalescing saves the kernel's stack, next to the papers' figures.

use super::measuring::{Output, length};
use anyhow::Context;
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use baton_lab::papers::bump;
use baton_lab::papers::bump::Findings;
use baton_lab::world::World;

/// Arguments of `baton bump bench`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Needs root, for its network namespaces, which end with the command.\n\n\
    Examples:\n  \
    baton bump bench\n  \
    baton bump bench --only limit --rounds 5 --report out/bump.html --csv out/bump.csv")]
pub struct Args {
    /// Number of measured runs of each experiment
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,

    /// Length of one run in seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,

    /// Run only chapters whose name contains this: limit, receiver, connections, messages, latency
    /// [default: all]
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,

    #[command(flatten)]
    output: Output,
}

/// Runs the benchmark between two network namespaces of its own.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let length = length(args.seconds)?;
    if !bump::CHAPTERS.iter().any(|chapter| chapter.name.contains(&args.only)) {
        let names: Vec<&str> = bump::CHAPTERS.iter().map(|chapter| chapter.name).collect();
        return Err(usage(format!("there is no chapter {}", args.only), format!("name one of {}", names.join(", "))));
    }
    let stop = Stop::install().context("cannot catch signals")?;
    let world = World::new().map_err(|why| usage(why.to_string(), "run as root"))?;
    let options = bump::Options { rounds: args.rounds.into(), length, only: args.only.clone() };
    let findings = bump::run(&world, &options, &stop, &|what| eprintln!("{what}"))?;
    drop(world);
    args.output.give(&findings, [Findings::table, Findings::csv, Findings::page])
}
