//! `baton trace paper`: reproduces Figures 4 to 8 of the paper on Receive Side Coalescing (RSC)
//! from real transfers.

use crate::commands::measuring::{Output, extent, in_lab, plans};
use baton_apps::fail::usage;
use baton_lab::experiment::Axis;
use baton_lab::papers::rsc2006;
use baton_lab::report::origin::Origin;
use std::path::PathBuf;

/// Arguments of `baton trace paper`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Needs root, for its two network namespaces, which end with the command.\n\n\
        Examples:\n  \
        baton trace paper\n  \
        baton trace paper --html out/rsc.html --csv out/rsc.csv\n  \
        baton trace paper --senders 16 --messages 8192 --keep out")]
pub struct Args {
    /// How much to measure: quick looks, and whole has the paper's axes
    #[arg(long, value_name = "PLAN", default_value = "whole", value_parser = plans())]
    plan: String,

    /// Numbers of senders to measure [default: the plan's]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = number(1, 1000))]
    senders: Vec<usize>,

    /// Message sizes to measure, in bytes [default: the plan's]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = number(1, 1 << 20))]
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
    if let Some(dir) = &args.keep {
        std::fs::create_dir_all(dir).map_err(|error| {
            usage(format!("cannot make {}: {error}", dir.display()), "name another place with --keep")
        })?;
    }
    let mut extent = extent(&args.plan, rsc2006::EXPERIMENT.id)?;
    for (axis, values) in [("senders", &args.senders), (Axis::MESSAGES.name, &args.messages)] {
        if !values.is_empty() {
            extent.set(axis, values)?;
        }
    }
    let outcome = in_lab(|lab| rsc2006::run(lab, &extent, args.keep.as_deref()))?;
    args.output.give(&outcome.findings(&Origin::of_this_process())?)
}
