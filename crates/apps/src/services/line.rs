//! The lines that a running server prints for programs.

use crate::net::Stats;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A line that `baton serve --json` prints.
#[derive(Serialize, Deserialize, Debug)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Line {
    /// All services are listening.
    Ready {
        /// Service names and their addresses.
        services: Vec<(String, SocketAddr)>,
    },
    /// Counters, printed on request and at the end.
    Stats {
        /// Time since the start, in seconds.
        seconds: f64,
        /// Counters of the service since it started.
        #[serde(flatten)]
        stats: Stats,
    },
}
