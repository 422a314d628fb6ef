//! Two engines on a wire in memory.

use super::generate::tce_share;
use crate::report::Run;
use baton_apps::load;
use baton_apps::net::engine::EngineNet;
use baton_apps::net::{EngineStats, Net};
use baton_apps::services::{Kind, Message};
use baton_engine::engine::EngineConfig;
use baton_port::{MemoryOptions, MemoryPort};
use baton_socket::host::HostConfig;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Two engines on a wire in memory: one runs the services, the other the clients.
pub struct Pair {
    /// The services' engine, at 10.77.0.2.
    pub server: EngineNet<MemoryPort>,
    /// The clients' engine, at 10.77.0.1.
    pub client: EngineNet<MemoryPort>,
}

impl Pair {
    /// Makes a pair. With `offloads`, segments of up to 64 KB pass unsplit and without checksums.
    ///
    /// # Errors
    /// If an engine cannot be made.
    pub fn new(offloads: bool) -> anyhow::Result<Pair> {
        Pair::with(MemoryOptions::new().checksum_offload(offloads).gso(offloads))
    }

    /// Makes a pair on a wire with these options.
    ///
    /// # Errors
    /// If an engine cannot be made.
    pub fn with(options: MemoryOptions) -> anyhow::Result<Pair> {
        Pair::tuned(options, |_| ())
    }

    /// Makes a pair on a wire with these options, and changes the configuration of both engines
    /// by `change`.
    ///
    /// # Errors
    /// If an engine cannot be made.
    pub fn tuned(options: MemoryOptions, change: impl Fn(&mut EngineConfig)) -> anyhow::Result<Pair> {
        let (near, far) = MemoryPort::pair(options);
        let engine = |address: &str, port| -> anyhow::Result<EngineNet<MemoryPort>> {
            let mut config = HostConfig::new(address.parse()?);
            change(&mut config.engine);
            Ok(EngineNet::new(&config, port, false)?)
        };
        Ok(Pair { server: engine("10.77.0.2/24", near)?, client: engine("10.77.0.1/24", far)? })
    }

    /// Offers a service on its port.
    ///
    /// # Errors
    /// The errors of [`Net::listen`].
    pub fn offer(&mut self, kind: &Kind, message: Message) -> anyhow::Result<()> {
        self.server.listen(SocketAddr::new([10, 77, 0, 2].into(), kind.default_port()), kind.accept(message)?)?;
        Ok(())
    }

    /// Runs one turn of both engines.
    ///
    /// # Errors
    /// The errors of [`Net::turn`].
    pub fn turn(&mut self) -> io::Result<()> {
        self.client.turn(Duration::ZERO)?;
        self.server.turn(Duration::ZERO)
    }

    /// The counters of the services' engine.
    pub fn engine_stats(&mut self) -> Option<EngineStats> {
        self.server.stats().engine
    }
}

/// Runs a load between the engines of a pair.
///
/// # Errors
/// The errors of [`load::run`].
pub fn run_pair(pair: &mut Pair, load: &load::Load) -> anyhow::Result<Run> {
    let before = pair.engine_stats();
    let outcome = load::run(&mut pair.client, load, Some(&mut pair.server))?;
    let tce = tce_share(before.as_ref(), pair.engine_stats().as_ref());
    Ok(Run { tce, ..Run::from(outcome) })
}
