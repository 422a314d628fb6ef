//! `baton engine`: the engine process, which a service starts. Users do not run it.

use anyhow::Context;
use baton_apps::signal::Stop;
use std::os::fd::AsFd;

/// Runs the engine of the broker at the other end of standard input.
pub fn run() -> anyhow::Result<()> {
    // Catches SIGINT and SIGTERM, so that they do not end the engine: the broker gets them too
    // and ends the engine in order.
    let _ = Stop::install().context("signals")?;
    let control = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    Ok(baton_service::engine::run(control)?)
}
