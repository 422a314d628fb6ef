//! `baton trace sweep FILE…`: applies many sets of rules in one pass.

use super::files::{self, Captures};
use super::rules::Rules;
use crate::commands::measuring::Output;
use baton_analyse::Analysis;
use baton_analyse::coalesce::Profile;
use baton_analyse::cost::Prices;
use baton_analyse::grid::Grid;
use baton_analyse::per_file::Figures;
use baton_analyse::report;
use baton_analyse::sweep::Sweep;
use baton_analyse::verdict::Verdict;
use baton_lab::experiment::Findings;
use baton_lab::report::grid::{self, Unit};
use baton_lab::report::origin::Origin;
use baton_lab::report::sweep::Outcome;
use std::path::PathBuf;

/// Arguments of `baton trace sweep`.
#[derive(clap::Args, Debug)]
#[command(after_help = "The options set the base. Each axis varies one number and keeps the others at the base.\n\
        The grid varies the runs held at a time and the size of each: bytes for rsc, segments for ra.\n\n\
        Examples:\n  \
        baton trace sweep capture.pcap\n  \
        baton trace sweep --window-packets 64 --csv out/sweep.csv --html out/sweep.html day-*.pcap.zst")]
pub struct Args {
    /// Captures to read: pcap or pcapng, plain or compressed with gzip or zstd, or directories of them; - is standard
    /// input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    rules: Rules,

    #[command(flatten)]
    output: Output,
}

/// Reads the captures and reports.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (limits, checksums) = (args.rules.limits()?, args.rules.checksums());
    let captures = Captures::named(&args.files)?;
    let make = || {
        let classifier = args.rules.classifier();
        let (grid, analysis) = (Grid::new(limits, classifier.clone()), Analysis::new(limits, classifier.clone()));
        (Sweep::new(limits, classifier), (grid, analysis))
    };
    let digest = |(_, (_, analysis)): &(Sweep, (Grid, Analysis))| Figures::of(analysis.tally(), Prices::default());
    let ((sweep, (cells, analysis)), files) = files::read(&captures, make, digest, |_, _| Ok(()), &files::stop()?)?;
    let unit = if limits.profile == Profile::Rsc { Unit::Bytes } else { Unit::Segments };
    let grid = grid::Grid::new(unit, cells.cells().copied().collect());
    // The memory that is enough does not depend on the CPU time that is saved.
    let verdict = grid.verdict(&Verdict::of(analysis.tally(), 0.0));
    let outcome = Outcome {
        verdict,
        rules: report::Rules::of(&limits.into(), checksums),
        points: sweep.points().copied().collect(),
        grid,
        unknown_links: sweep.unknown_links().clone(),
        reserved_bits: sweep.reserved_bits(),
        tunnelled: sweep.tunnelled().clone(),
        files,
    };
    let page = outcome.page(&Origin::of_this_process());
    let findings = Findings::new(&outcome, outcome.table(), Vec::new())?.with(outcome.csv(), page);
    args.output.give(&findings)?;
    files::complain(&outcome.files)
}
