//! `baton engine`: the process that a service starts; not for people.

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
    // The broker ends it: what its signals mean, the broker hears too.
    let _ = Stop::install().context("signals")?;
    let control = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    let ran = baton_service::engine::run(control);
    Ok(ran
        .inspect_err(|error| tell(Level::Error, Kind::ENGINE, |event| event.text(format!("cannot go on: {error}"))))?)
}
