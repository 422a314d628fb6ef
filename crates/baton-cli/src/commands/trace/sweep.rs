//! `baton trace sweep FILE…`: many sets of rules in one pass.

use super::files;
use super::rules::Rules;
use crate::commands::measuring::Output;
use baton_analyse::report;
use baton_analyse::sweep::Sweep;
use baton_lab::report::sweep::Outcome;
use std::path::PathBuf;

/// Arguments of `baton trace sweep`.
#[derive(clap::Args, Debug)]
#[command(after_help = "The options are the base: each axis varies one number and holds the others.\n\n\
        Examples:\n  \
        baton trace sweep capture.pcap\n  \
        baton trace sweep --window-packets 64 --csv out/sweep.csv --html out/sweep.html day-*.pcap.zst")]
pub struct Args {
    /// Captures: pcap or pcapng, plain, gzip or zstd; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    rules: Rules,

    #[command(flatten)]
    output: Output,
}

/// Reads and reports.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (limits, checksums) = (args.rules.limits(), args.rules.checksums());
    let (sweep, files) = files::read(&args.files, || Sweep::new(limits, checksums), &files::stop()?)?;
    let outcome =
        Outcome { rules: report::Rules::of(&limits, checksums), points: sweep.points().copied().collect(), files };
    args.output.give(&outcome, [Outcome::table, Outcome::csv, Outcome::page])?;
    files::complain(&outcome.files)
}
