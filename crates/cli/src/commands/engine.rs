//! `baton engine`: the engine process, which a service starts. Users do not run it.

use crate::logging::Log;
use anyhow::Context;
use baton_apps::signal::Stop;
use baton_journal::{Kind, Level, tell};
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
    // Catches SIGINT and SIGTERM, so that they do not end the engine: the broker gets them too
    // and ends the engine in order.
    let _ = Stop::install().context("signals")?;
    let control = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    let ran = baton_service::engine::run(control);
    Ok(ran
        .inspect_err(|error| tell(Level::Error, Kind::ENGINE, |event| event.text(format!("cannot go on: {error}"))))?)
}
