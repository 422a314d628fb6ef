//! `baton trace paper`: reproduces Figures 4 to 8 of the paper on Receive Side Coalescing (RSC)
//! from real transfers.

use super::files;
use crate::commands::measuring::Output;
use anyhow::Context;
use baton_apps::fail::usage;
use baton_apps::measure::Cpu;
use baton_lab::papers::rsc2006;
use baton_lab::papers::rsc2006::report::Outcome;
use baton_lab::papers::rsc2006::{MESSAGES, Options, SENDERS};
use baton_lab::report::Machine;
use baton_lab::world::World;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `baton trace paper`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Needs root, for its two network namespaces, which end with the command.\n\n\
        Examples:\n  \
        baton trace paper\n  \
        baton trace paper --html out/rsc.html --csv out/rsc.csv\n  \
        baton trace paper --senders 16 --messages 8192 --keep out")]
pub struct Args {
    /// Numbers of senders to measure
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = SENDERS, value_parser = number(1, 1000))]
    senders: Vec<usize>,

    /// Message sizes to measure, in bytes
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_values_t = MESSAGES, value_parser = number(1, 1 << 20))]
    messages: Vec<usize>,

    /// Keep the captures of all experiments, headers only, in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    #[command(flatten)]
    output: Output,
}

fn number(least: usize, most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().map_err(|_| "not a number".to_owned())?;
        if (least..=most).contains(&number) { Ok(number) } else { Err(format!("from {least} to {most}")) }
    }
}

/// Runs the experiments and reports.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let stop = files::stop()?;
    if let Some(dir) = &args.keep {
        std::fs::create_dir_all(dir).map_err(|error| {
            usage(format!("cannot make {}: {error}", dir.display()), "name another place with --keep")
        })?;
    }
    let world = World::new().map_err(|why| usage(why.to_string(), "run as root"))?;
    let background = Cpu::idle_check(Duration::from_millis(300)).context("cannot read /proc/stat")?;
    let options = Options { senders: args.senders.clone(), messages: args.messages.clone(), keep: args.keep.clone() };
    let cells = rsc2006::run(&world, &options, &stop, &|what| eprintln!("{what}"))?;
    drop(world);
    let outcome = Outcome::new(Machine::here(background), cells);
    args.output.give(&outcome, [Outcome::table, Outcome::csv, Outcome::page])
}
