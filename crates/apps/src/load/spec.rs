//! The settings of a load, and the results that its connections share.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// The kind of load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Send a request to an echo service, wait until all of it has returned, and repeat.
    Echo,
    /// Send the ramp to a discard service.
    Send,
    /// Receive the ramp from a chargen service.
    Receive,
}

/// A load to run.
#[derive(Clone, Debug)]
pub struct Load {
    /// The kind of load.
    pub kind: Kind,
    /// Address of the service.
    pub target: SocketAddr,
    /// Number of connections, all open at once.
    pub connections: usize,
    /// Bytes in a request, or in a write of bulk data; 0 for as many as fit in the buffer.
    pub size: usize,
    /// Time before the measured interval.
    pub warmup: Duration,
    /// Length of the measured interval.
    pub length: Duration,
    /// How closely received bytes are checked.
    pub check: Check,
    /// Process ids of the programs at the other end, to count their CPU time too.
    pub peer_pids: Vec<u32>,
    /// The CPU to which the other end is pinned, if it is.
    pub peer_cpu: Option<usize>,
}

/// How closely received bytes are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// Every byte.
    All,
    /// The first and the last byte of each read.
    Ends,
    /// No byte.
    None,
}

/// Results that all connections of a load update.
pub(super) struct Shared {
    pub(super) measuring: bool,
    pub(super) bytes: u64,
    pub(super) requests: u64,
    /// Connections that carried data.
    pub(super) started: usize,
    pub(super) latency: Histogram<u64>,
    pub(super) failure: Option<String>,
}

/// Upper bound of recorded latencies in nanoseconds; longer ones count as this.
pub(super) const MAX_LATENCY: u64 = 60_000_000_000;
