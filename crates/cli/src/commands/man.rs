//! `baton man`: the manual pages, which a package installs.

use anyhow::Context;
use clap::Command;
use std::path::PathBuf;

/// Arguments of `baton man`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory for the pages, which must exist
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Writes `baton.1`, the page of `command`, and a page for each of its commands that help shows.
pub fn run(args: &Args, command: Command) -> anyhow::Result<()> {
    // A page for `baton help`, which clap adds, would say nothing.
    let command = command.disable_help_subcommand(true);
    clap_mangen::generate_to(command, &args.directory)
        .with_context(|| format!("writing manual pages into {}", args.directory.display()))
}
