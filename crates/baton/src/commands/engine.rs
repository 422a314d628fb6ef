//! `baton engine`: the process that a service starts; not for people.

use crate::logging::Log;
use crate::signal::Stop;
use anyhow::Context;
use std::os::fd::AsFd;

/// Arguments of `baton engine`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    log: Log,
}

/// Runs the engine of the broker at the other end of standard input.
pub fn run(args: &Args) -> anyhow::Result<()> {
    args.log.open("engine")?;
    // The broker ends it: what its signals mean, the broker hears too.
    let _ = Stop::install().context("signals")?;
    let control = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    Ok(baton_service::engine::run(control)?)
}
