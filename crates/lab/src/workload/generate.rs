//! Runs `baton load` as a client, and computes the TCE's share of the time.

use crate::world::serve::port;
use crate::world::{World, process};
use anyhow::Context;
use baton_apps::load::{Kind, Outcome};
use baton_apps::net::EngineStats;
use baton_apps::signal::Stop;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Time that one run may take beyond its length.
const PATIENCE: Duration = Duration::from_secs(12);

/// The name of a load on the command line.
pub fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Echo => "echo",
        Kind::Send => "send",
        Kind::Receive => "receive",
    }
}

/// Runs `baton load` on the client's side.
pub fn generate(
    world: &World,
    server: IpAddr,
    kind: Kind,
    arguments: &[String],
    stop: &Stop,
) -> anyhow::Result<Outcome> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let target = SocketAddr::new(server, port::of(kind));
    let mut command = world.client.command(&program.to_string_lossy());
    command.args(["load", word(kind), &target.to_string()]).args(arguments);
    let printed = process::run(&mut command, stop, PATIENCE)?;
    serde_json::from_str(&printed).with_context(|| format!("baton load printed '{}'", printed.trim()))
}

/// The share of the time between two readings of an engine's counters in which its TCE worked.
pub fn tce_share(before: Option<&EngineStats>, after: Option<&EngineStats>) -> Option<f64> {
    let (before, after) = (before?, after?);
    let elapsed = after.elapsed_ns.saturating_sub(before.elapsed_ns).max(1);
    Some(after.tce_busy_ns.saturating_sub(before.tce_busy_ns) as f64 / elapsed as f64)
}
