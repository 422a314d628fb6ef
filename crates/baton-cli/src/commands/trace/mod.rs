//! `baton trace`: what a capture, or live traffic, would gain from coalescing.

mod analyse;
mod files;
mod paper;
mod rules;
mod sweep;

/// Arguments of `baton trace`.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
        baton trace capture.pcap\n  \
        baton trace --profile ra --limit 44 day-*.pcapng.gz --json\n  \
        tcpdump -i eth0 -w - | baton trace - --html out/trace.html\n  \
        baton trace -i eth0 --seconds 10\n  \
        baton trace sweep capture.pcap --html out/sweep.html\n\n\
        Exit code: 0; 1 if a capture is damaged or was not read to its end (the rest is reported);\n\
        2 if a file is not there."
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    analyse: analyse::Args,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// How the outcome depends on connections, cache, buffer, window and limit, in one pass
    Sweep(sweep::Args),
    /// RSC Figures 4 to 8, rebuilt from real transfers between two namespaces
    Paper(paper::Args),
}

/// Runs the analysis.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.what {
        Some(What::Sweep(args)) => sweep::run(&args),
        Some(What::Paper(args)) => paper::run(&args),
        None => analyse::run(&args.analyse),
    }
}
