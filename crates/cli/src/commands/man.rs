//! `baton man`: the manual pages, which a package installs.

use crate::cli::Cli;
use anyhow::Context;
use clap::CommandFactory;
use std::path::PathBuf;

/// Arguments of `baton man`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory for the pages, which must exist
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Writes `baton.1` and a page for each command that help shows.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // A page for `baton help`, which clap adds, would say nothing.
    let command = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, &args.directory)
        .with_context(|| format!("writing manual pages into {}", args.directory.display()))
}
