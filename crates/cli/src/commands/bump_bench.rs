//! `baton bump bench`: measures what coalescing saves the kernel's stack, next to the papers' figures.

use super::measuring::{Amount, Output, in_lab};
use baton_apps::fail::usage;
use baton_lab::experiment::Extent;
use baton_lab::papers::bump::{self, Chapter};

/// Arguments of `baton bump bench`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Needs root, for its network namespaces, which end with the command.\n\n\
    Examples:\n  \
    baton bump bench\n  \
    baton bump bench --only limit --rounds 5 --report out/bump.html --csv out/bump.csv")]
pub struct Args {
    #[command(flatten)]
    amount: Amount,

    /// Run only chapters whose name contains this: limit, receiver, connections, messages, latency
    /// [default: all]
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,

    #[command(flatten)]
    output: Output,
}

/// Runs the benchmark between two network namespaces of its own.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let chapters = bump::CHAPTERS.iter().filter(|chapter| chapter.name.contains(&args.only));
    let chapters: anyhow::Result<Vec<(&Chapter, Extent)>> =
        chapters.map(|chapter| Ok((chapter, args.amount.of(chapter.experiment.id)?))).collect();
    let chapters = chapters?;
    if chapters.is_empty() {
        let names: Vec<&str> = bump::CHAPTERS.iter().map(|chapter| chapter.name).collect();
        return Err(usage(format!("there is no chapter {}", args.only), format!("name one of {}", names.join(", "))));
    }
    let results = in_lab(|lab| bump::run(lab, &chapters))?;
    args.output.give(&results.findings()?)
}
