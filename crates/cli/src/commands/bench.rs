//! `baton bench`: measurements to compare with a paper's, with the kernel, or with a bare device.

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
#[command(after_help = "Examples:\n  baton bench tce\n  baton bench tap --only echo\n  \
                        baton bench programs --only redis")]
pub struct Args {
    /// The measurement to run
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
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
    /// Number of measured runs of each load on each wire
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,

    /// Length of one run in seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,

    /// Bytes per write and per read of the bulk loads, at both ends
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10, value_parser = clap::value_parser!(u32).range(1..=4 << 20))]
    message: u32,

    /// Run only loads whose name contains this: bulk, receive, send, echo, 256 [default: all]
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,

    /// Print the results as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Arguments of `baton bench programs`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Needs root, for its network namespaces, which end with the command.\n\n\
                  Examples:\n  baton bench programs\n  \
                  baton bench programs --only redis,ping --way service-tc --rounds 3")]
struct ProgramsArgs {
    /// Number of measured runs of each load in each way of serving
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,

    /// Length of one run in seconds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,

    /// Run only loads whose names contain one of these: redis, nginx, 1k, send, receive-16,
    /// ping-pong, idle [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,

    /// Compare only these ways of serving with the kernel: again (the kernel a second time, over
    /// another wire, which shows the noise), unmoved, service-tc, direct-tc, run (as `baton run`
    /// chooses), service-xdp [default: all]
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
    /// Number of measured runs of each size and direction
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,

    /// Length of one run in seconds
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,

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
        What::Tce(args) => run_tce(&args),
        What::Tap(args) => run_tap(&args),
        What::Programs(args) => run_programs(&args),
    }
}

/// The directory for raw results, if `cargo xtask bench` runs this command.
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
