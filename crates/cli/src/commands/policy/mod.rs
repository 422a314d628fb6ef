//! `baton policy` and `baton reload`: a policy checked, explained, and loaded.

mod check;
mod explain;
pub mod sockets;

use super::control::{At, say};
use crate::calibration;
use crate::config::Config;
use anyhow::Context;
use baton_apps::fail::usage;
use baton_policy::rules::{Entry, Policy};
use std::path::{Path, PathBuf};

/// Arguments of `baton policy`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton policy check /etc/baton/baton.toml\n  baton policy explain --pid 1234\n  \
                        baton policy explain --policy-file new.toml --json")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Check the [policy] of a configuration file
    Check(check::Args),
    /// Say for each live connection which rule decides, and what it waits for
    Explain(explain::Args),
}

/// Arguments of `baton reload`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Connections that may not be in an engine by the new policy come home; nothing else moves. A bad\n\
                  file changes nothing. SIGHUP to the service does the same with its own file.\n\n\
                  Examples:\n  baton reload\n  baton reload new.toml\n  baton reload --socket /run/baton/baton.sock\n\n\
                  Exit code: 0, 1 if a connection did not come home, 2 for a bad file or if no service answers."
)]
pub struct Reload {
    /// File with the new [policy] [default: the service's configuration file, read again]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.what {
        What::Check(args) => check::run(args),
        What::Explain(args) => explain::run(args),
    }
}

/// Loads a new policy.
pub fn reload(args: &Reload) -> anyhow::Result<()> {
    let policy = args.file.as_deref().map(load).transpose()?;
    let tally = args.at.connect()?.reload(policy.as_ref()).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => usage(error.to_string(), "correct the file; the policy is as it was"),
        _ => anyhow::Error::from(error).context("cannot load a policy"),
    })?;
    say("moved to the kernel", tally)
}

/// The policy of a configuration file, with the figures of this machine.
pub(super) fn load(file: &Path) -> anyhow::Result<Policy> {
    let mut policy = Config::load(file).map_err(|error| usage(error.what_and_where(), error.remedy()))?.policy;
    calibration::fit(&mut policy, Path::new(calibration::PATH));
    Ok(policy)
}

/// A rule's conditions as they stand in a file.
fn conditions(entry: &Entry) -> String {
    let all: Vec<String> = entry.conditions.iter().map(|it| format!("{} = \"{it}\"", it.key())).collect();
    if all.is_empty() { "every connection".to_owned() } else { all.join(", ") }
}

/// The lines of a file on which its rules begin.
fn lines(file: &Path) -> anyhow::Result<Vec<usize>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let begins = |line: &str| line.replace(' ', "").starts_with("[[policy.for]]");
    Ok((1..).zip(text.lines()).filter(|(_, line)| begins(line)).map(|(at, _)| at).collect())
}
