//! `baton guardian`: the process that a broker starts whose guardian died; not for people.

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
    /// How a broker is started
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Guards the broker at the other end of standard input.
pub fn run(args: Args) -> anyhow::Result<()> {
    args.log.open("guardian")?;
    let channel = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    guard(Guardian::of(args.words, channel))
}

/// Guards, and ends as the broker does. Directories of runs that were killed go with it.
pub fn guard(guardian: Guardian) -> anyhow::Result<()> {
    let stop = Stop::install().context("signals")?;
    let code = guardian.run(|| stop.requested()).context("guarding the broker")?;
    // Its standard output is what says that the service of a run lives.
    let nowhere = File::options().write(true).open("/dev/null");
    if nowhere.is_ok_and(|nowhere| dup2_stdout(nowhere).is_ok()) {
        home::clear(Path::new("/run"));
    }
    // What was wrong it has said itself.
    if code == 0 { Ok(()) } else { std::process::exit(code.into()) }
}
