//! Runs `baton load` as a client, and computes the TCE's share of the time.

use super::account::Account;
use super::at::{At, Caller};
use super::server::Kind as Server;
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
    let caller = Caller { namespace: &world.client, prefix: Vec::new(), servers: At::Ip(server), at_once: 1 };
    Ok(ask(&caller, kind, arguments, stop)?.0)
}

/// Runs `baton load` as a caller does. Returns the account of its connections, too, if it was under
/// `baton run`.
pub fn ask(
    caller: &Caller<'_>,
    kind: Kind,
    arguments: &[String],
    stop: &Stop,
) -> anyhow::Result<(Outcome, Option<Account>)> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let target = match &caller.servers {
        At::Ip(server) => SocketAddr::new(*server, port::of(kind)).to_string(),
        unix @ At::Unix(_) => format!("unix:{}", Server::Echo.socket(unix).context("no socket")?.display()),
    };
    let mut command = caller.command(&program.to_string_lossy());
    command.args(["load", word(kind), &target]).args(arguments);
    let said = process::listen(&mut command, stop, PATIENCE)?;
    let outcome = serde_json::from_str(&said.out);
    let outcome = outcome.with_context(|| format!("baton load printed '{}'", said.out.trim()))?;
    Ok((outcome, Account::parse(&said.err)))
}

/// The share of the time between two readings of an engine's counters in which its TCE worked.
pub fn tce_share(before: Option<&EngineStats>, after: Option<&EngineStats>) -> Option<f64> {
    let (before, after) = (before?, after?);
    let elapsed = after.elapsed_ns.saturating_sub(before.elapsed_ns).max(1);
    Some(after.tce_busy_ns.saturating_sub(before.tce_busy_ns) as f64 / elapsed as f64)
}
