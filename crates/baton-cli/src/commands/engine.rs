//! `baton engine`: the process that a service starts; not for people.

use anyhow::Context;
use baton_apps::signal::Stop;
use std::os::fd::AsFd;

/// Runs the engine of the broker at the other end of standard input.
pub fn run() -> anyhow::Result<()> {
    // The broker ends it: what its signals mean, the broker hears too.
    let _ = Stop::install().context("signals")?;
    let control = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    Ok(baton_service::engine::run(control)?)
}
