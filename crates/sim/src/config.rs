//! Configuration of a world and its hosts, before they run.

use crate::chance::Ppm;
use crate::link::LinkConfig;
use crate::path::PathMtu;
use crate::port::PortConfig;
use crate::script::Dialogue;
use baton_engine::engine::EngineConfig;
use baton_engine::region::Layout;
use baton_latency::WatchMemory;
use baton_tcp::time::Duration;
use baton_wire::addr::Addr;
use std::sync::Arc;

/// A backlog that no workload fills: the server never answers with cookies.
pub const AMPLE_BACKLOG: u32 = 1024;

/// Everything that a run is made of, all of it from the seed.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Seed of everything random in the world.
    pub seed: u64,
    /// The client's host and the server's.
    pub hosts: [HostConfig; 2],
    /// From client to server, and back.
    pub links: [LinkConfig; 2],
    /// A router with a smaller MTU between the two.
    pub path_mtu: Option<PathMtu>,
    /// How often a frame is followed by a forged one with the same addresses and ports.
    pub forged: Ppm,
    /// Addresses of the two.
    pub addresses: [Addr; 2],
    /// Ports that the server listens at, and its backlog.
    pub listen: (Vec<u16>, u32),
    /// The dialogues that its programs hold.
    pub dialogues: Vec<Dialogue>,
    /// When the faults stop.
    pub safety: Duration,
}

/// Configuration of a host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Configuration of the host's engine.
    pub engine: EngineConfig,
    /// Configuration of the host's port.
    pub port: PortConfig,
    /// Streamer and TCE have turns of their own, as on two threads.
    pub two_threads: bool,
    /// Longest time from an arrival or an order to the turn that sees it.
    pub wake: Duration,
    /// Longest time from a completion to the program's turn.
    pub program: Duration,
    /// Frames that leave the port in one turn, at most.
    pub carry: usize,
    /// Send and receive buffer of each connection, in bytes.
    pub buffers: (u32, u32),
    /// Queue pairs of the program.
    pub qps: u32,
    /// Extents in each of their queues.
    pub queue_depth: u32,
    /// Its connections move between two engines.
    pub moves: Option<Moves>,
    /// In each turn of the engine its program lends it a buffer for the next bytes of one connection.
    pub lends: bool,
    /// Where the spans of its connections go, if they are watched. Its engines share it.
    pub watch: Option<Arc<WatchMemory>>,
}

impl HostConfig {
    /// The region of its program at an engine.
    pub fn layout(&self) -> Layout {
        let (send, receive) = self.buffers;
        Layout {
            qps: self.qps,
            queue_depth: self.queue_depth,
            requests: 64,
            data_bytes: u64::from(self.qps) * u64::from(send + receive),
        }
    }
}

/// When and how connections move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moves {
    /// How often some connection begins to move, per turn of the engines.
    pub often: Ppm,
    /// In this turn of the host's engines every connection begins to move.
    pub at_turn: Option<u64>,
    /// How often the other side cannot rebuild a connection, which then goes on where it was.
    pub fails: Ppm,
    /// How often the second engine dies, per turn of the engines; its connections go on at the
    /// first.
    pub dies: Ppm,
}
