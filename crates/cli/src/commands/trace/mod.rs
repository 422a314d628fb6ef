//! `baton trace`: computes what receive coalescing would save on a capture or on live traffic.

mod analyse;
mod files;
mod many;
mod merge;
mod paper;
mod rules;
mod sweep;
mod verdicts;

/// Arguments of `baton trace`.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
        baton trace capture.pcap\n  \
        baton trace --profile ra --limit 44 day-*.pcapng.gz --json\n  \
        tcpdump -i eth0 -w - | baton trace - --html out/trace.html\n  \
        baton trace capture.pcap --top 30 --sort gain --verdicts out/frames.csv\n  \
        baton trace -i eth0 --seconds 10\n  \
        baton trace sweep capture.pcap --html out/sweep.html\n  \
        baton trace --ndjson out/day.ndjson captures/\n  \
        baton trace merge out/*.ndjson\n\n\
        Exit code: 0 on success; 1 if a capture is damaged or was not read to its end (the report\n\
        covers the rest); 2 if a file cannot be opened."
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    analyse: analyse::Args,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Report on captures from the records that --ndjson wrote
    Merge(merge::Args),
    /// Vary connections, cache, buffer, window and limit, in one pass over the captures
    Sweep(sweep::Args),
    /// Reproduce Figures 4 to 8 of Receive Side Coalescing (RSC) with transfers between two namespaces
    Paper(paper::Args),
}

/// Runs the analysis.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.what {
        Some(What::Merge(args)) => merge::run(&args),
        Some(What::Sweep(args)) => sweep::run(&args),
        Some(What::Paper(args)) => paper::run(&args),
        None => analyse::run(&args.analyse),
    }
}
