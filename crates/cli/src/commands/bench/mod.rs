//! `baton bench`: measurements to compare with a paper's, with the kernel, or with a bare device.

mod all;
mod list;

use super::measuring::{Amount, Output, in_lab, keep, show};
use anyhow::Context;
use baton_apps::signal::Stop;
use baton_lab::experiment::{Axis, Experiment, Lab};
use baton_lab::papers::{lc2006, programs, tap};

/// Arguments of `baton bench`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton bench list\n  baton bench run tce rsc --plan quick\n  \
                        baton bench tap --only echo\n  baton bench programs --only redis")]
pub struct Args {
    /// The measurement to run
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// List all experiments: what they measure, which papers' figures they repeat, what they need
    List(list::Args),
    /// Run experiments as a plan says, and compare their results with the papers' statements
    Run(all::Args),
    /// Measure how busy the TCP Control Engine is, by message size and direction
    Tce(TceArgs),
    /// Compare bulk transfer and echo over a TAP device with the kernel and with the bare device
    Tap(TapArgs),
    /// Compare unmodified programs under `baton run` with the same programs on the kernel
    Programs(ProgramsArgs),
}

/// Arguments of `baton bench tap`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Needs root, for its network namespaces, which end with the command.\n\n\
                  Examples:\n  baton bench tap\n  baton bench tap --only echo --rounds 3 --json")]
struct TapArgs {
    #[command(flatten)]
    amount: Amount,

    /// Bytes per write and per read of the bulk loads, at both ends [default: the plan's]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=4 << 20))]
    message: Option<u32>,

    /// Run only loads whose name contains this: bulk, receive, send, echo, 256 [default: all]
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,

    /// Print the results as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Arguments of `baton bench programs`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Needs root, for its network namespaces, which end with the command. A run takes whole seconds.\n\n\
                  Examples:\n  baton bench programs\n  \
                  baton bench programs --only redis,ping --way service-tc --rounds 3\n  \
                  baton bench programs --local --only redis --way pair,unix"
)]
struct ProgramsArgs {
    #[command(flatten)]
    amount: Amount,

    /// Run client and server on one machine, both under `baton run`, and compare that with the kernel's loopback and
    /// with Unix domain sockets
    #[arg(long)]
    local: bool,

    /// Run only loads whose names contain one of these: redis, nginx, 1k, send, receive-16, iperf3-1,
    /// ping-pong, idle [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,

    /// Compare only these ways of serving with the kernel: again (the kernel a second time, over
    /// another wire, which shows the noise), unmoved, service-tc, direct-tc, run (as `baton run`
    /// chooses), service-xdp; with --local: kernel-again, pair, unix, pipelined (256 requests at once, an
    /// estimate of what the programs cost without a network) [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    way: Vec<String>,

    /// Print the results as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Arguments of `baton bench tce`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton bench tce\n  baton bench tce --report out/tce.html --csv out/tce.csv")]
struct TceArgs {
    #[command(flatten)]
    amount: Amount,

    /// Measure two engines over a wire in memory, instead of one on a TAP device and the kernel
    #[arg(long)]
    in_memory: bool,

    /// Let segments of up to 64 KB pass unsplit, instead of the paper's frames of 1500 bytes
    #[arg(long)]
    offloads: bool,

    #[command(flatten)]
    output: Output,
}

/// Runs the measurement.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.what {
        What::List(args) => list::run(&args),
        What::Run(args) => all::run(&args),
        What::Tce(args) => run_tce(&args),
        What::Tap(args) => run_tap(&args),
        What::Programs(args) => run_programs(&args),
    }
}

fn run_tap(args: &TapArgs) -> anyhow::Result<()> {
    let Experiment { id, run, .. } = tap::EXPERIMENT;
    let mut extent = args.amount.of(id)?;
    keep(&mut extent, "load", |load| load.contains(&args.only))?;
    if let Some(message) = args.message {
        extent.set(Axis::MESSAGES.name, &[message])?;
    }
    show(args.json, &in_lab(|lab| run(lab, &extent))?)
}

fn run_programs(args: &ProgramsArgs) -> anyhow::Result<()> {
    let Experiment { id, run, .. } = if args.local { programs::local::EXPERIMENT } else { programs::EXPERIMENT };
    let mut extent = args.amount.of(id)?;
    if !args.only.is_empty() {
        keep(&mut extent, "load", |load| args.only.iter().any(|part| load.contains(part.as_str())))?;
    }
    if !args.way.is_empty() {
        keep(&mut extent, "way", |way| args.way.iter().any(|name| name == way))?;
    }
    show(args.json, &in_lab(|lab| run(lab, &extent))?)
}

fn run_tce(args: &TceArgs) -> anyhow::Result<()> {
    let Experiment { id, run, .. } = lc2006::EXPERIMENT;
    let mut extent = args.amount.of(id)?;
    extent.set("offloads", &[args.offloads])?;
    let findings = if args.in_memory {
        let stop = Stop::install().context("cannot catch signals")?;
        run(&Lab::in_memory(&stop, &|what| eprintln!("{what}")), &extent)?
    } else {
        in_lab(|lab| run(lab, &extent))?
    };
    args.output.give(&findings)
}
