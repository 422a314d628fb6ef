//! `baton guardian`: the process that a broker starts when its guardian has died. Users do not run it.

use crate::logging::Log;
use crate::run::home;
use anyhow::Context;
use baton_apps::signal::Stop;
use baton_service::guardian::Guardian;
use rustix::stdio::dup2_stdout;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// Arguments of `baton guardian`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    log: Log,
    /// The command line that starts a broker
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Guards the broker at the other end of standard input.
pub fn run(args: Args) -> anyhow::Result<()> {
    args.log.open("guardian")?;
    let channel = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    guard(Guardian::of(args.words, channel))
}

/// Guards the broker and exits with its code. Removes the directories of killed runs at the end.
pub fn guard(guardian: Guardian) -> anyhow::Result<()> {
    let stop = Stop::install_for_daemon().context("signals")?;
    let code = guardian.run(|| stop.requested()).context("guarding the broker")?;
    // The lock on our standard output marks the service of a run as alive; closing it lets
    // `clear` remove the directory.
    let nowhere = File::options().write(true).open("/dev/null");
    if nowhere.is_ok_and(|nowhere| dup2_stdout(nowhere).is_ok()) {
        home::clear(Path::new("/run"));
    }
    // The broker has already printed its error.
    if code == 0 { Ok(()) } else { std::process::exit(code.into()) }
}
