//! `baton bench`: measurements that stand beside a paper's.

use super::measuring::{Output, length, print};
use anyhow::Context;
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use baton_lab::papers::lc2006;
use baton_lab::papers::lc2006::Outcome;
use baton_lab::papers::{programs, tap};
use baton_lab::world::World;
use std::path::PathBuf;

/// Arguments of `baton bench`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What is measured
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// How busy the TCP Control Engine is, by message size and direction
    Tce(TceArgs),
    /// Bulk transfer and echo over a TAP device, next to the kernel and the bare device
    Tap(TapArgs),
    /// Unmodified programs under `baton run`, next to the kernel
    Programs(ProgramsArgs),
}

/// Arguments of `baton bench tap`.
#[derive(clap::Args, Debug)]
struct TapArgs {
    /// Measured runs of every load on every wire
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,

    /// Seconds of one run
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,

    /// Bytes of a bulk write and of a bulk read, at both ends
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10, value_parser = clap::value_parser!(u32).range(1..=4 << 20))]
    message: u32,

    /// Only loads whose name contains this: bulk, receive, send, echo, 256
    #[arg(long, default_value = "")]
    only: String,

    /// Print the outcome as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Arguments of `baton bench programs`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton bench programs\n  \
                  baton bench programs --only redis,ping --way service-tc --rounds 3")]
struct ProgramsArgs {
    /// Measured runs of every load on every way
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,

    /// Seconds of one run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,

    /// Only loads whose names contain one of these: redis, nginx, 1k, send, receive-16, ping-pong,
    /// idle
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,

    /// Only these ways to serve, next to the kernel: again (the kernel over another wire: what a
    /// ratio is worth), unmoved, service-tc, direct-tc, run (as `baton run` chooses), service-xdp
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    way: Vec<String>,

    /// Print the outcome as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Arguments of `baton bench tce`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton bench tce\n  baton bench tce --report out/tce.html --csv out/tce.csv")]
struct TceArgs {
    /// Measured runs of every size and direction
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,

    /// Seconds of one run
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,

    /// Between two engines over a wire in memory, instead of a TAP device and the kernel
    #[arg(long)]
    in_memory: bool,

    /// Let segments of up to 64 KB pass whole, instead of frames of 1500 bytes as in the paper
    #[arg(long)]
    offloads: bool,

    #[command(flatten)]
    output: Output,
}

/// Runs the measurement.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.what {
        What::Tce(args) => run_tce(&args),
        What::Tap(args) => run_tap(&args),
        What::Programs(args) => run_programs(&args),
    }
}

/// Where `cargo xtask bench` wants raw figures, if it runs us.
fn raw_directory() -> Option<PathBuf> {
    std::env::var_os("BATON_BENCH_OUT").map(PathBuf::from)
}

fn run_tap(args: &TapArgs) -> anyhow::Result<()> {
    let stop = Stop::install().context("cannot catch signals")?;
    let world = World::new().map_err(|why| usage(why.to_string(), "run as root"))?;
    let options = tap::Options {
        rounds: args.rounds.into(),
        length: length(args.seconds)?,
        message: args.message as usize,
        only: args.only.clone(),
    };
    let report = tap::run(&world, &options, &stop, &|what| eprintln!("{what}"))?;
    if let Some(directory) = raw_directory() {
        report.write_raw(&directory)?;
    }
    print(args.json, &report, tap::Report::table)
}

fn run_programs(args: &ProgramsArgs) -> anyhow::Result<()> {
    let stop = Stop::install().context("cannot catch signals")?;
    let world = World::new().map_err(|why| usage(why.to_string(), "run as root"))?;
    let options = programs::Options {
        rounds: args.rounds.into(),
        seconds: args.seconds,
        loads: args.only.clone(),
        ways: args.way.clone(),
    };
    let report = programs::run(&world, &options, &stop, &|what| eprintln!("{what}"))?;
    if let Some(directory) = raw_directory() {
        report.write_raw(&directory)?;
    }
    print(args.json, &report, programs::Report::table)
}

fn run_tce(args: &TceArgs) -> anyhow::Result<()> {
    let length = length(args.seconds)?;
    let stop = Stop::install().context("cannot catch signals")?;
    let world = match World::new() {
        _ if args.in_memory => None,
        Ok(world) => Some(world),
        Err(why) => {
            eprintln!("baton: {why}; measuring over a wire in memory instead");
            None
        }
    };
    let options = lc2006::Options { rounds: args.rounds.into(), length, offloads: args.offloads };
    let tell = |what: &str| eprintln!("{what}");
    let outcome = lc2006::run(world.as_ref(), &options, &stop, &tell)?;
    drop(world);
    args.output.give(&outcome, [Outcome::table, Outcome::csv, Outcome::page])
}
