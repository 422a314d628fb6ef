//! `baton completions`: the script that has a shell complete Baton's command line.

use clap::Command;
use clap_complete::{Shell, generate};
use std::io::Write;

/// Arguments of `baton completions`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  . <(baton completions bash)\n  \
                  baton completions fish > ~/.config/fish/completions/baton.fish")]
pub struct Args {
    /// The shell to write completions for
    shell: Shell,
}

/// Prints the script for `command` on standard output.
pub fn run(args: &Args, mut command: Command) -> anyhow::Result<()> {
    // The generator panics where it cannot write, as on a closed pipe: it writes to memory.
    let mut script = Vec::new();
    generate(args.shell, &mut command, "baton", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}
