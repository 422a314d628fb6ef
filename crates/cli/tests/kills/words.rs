//! Messages between the rig and its programs: each is a line of JSON on the program's standard
//! input or output.

use crate::lines::End;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The parameters that a program starts with.
#[derive(Clone, Serialize, Deserialize)]
pub struct Start {
    /// The service's socket; `None` for a program that stays on the kernel's TCP.
    pub service: Option<PathBuf>,
    /// Addresses of the peers' listeners: IPv4, then IPv6; its own, if it is at the far end.
    pub peers: [SocketAddr; 2],
    /// True for a program at the far end of connections, which accepts them.
    pub far: bool,
    /// The file in which it writes down how many bytes it has written to each connection.
    pub ledger: Option<PathBuf>,
    pub lines: usize,
    /// True if some connections are quiet in one direction; see [`Role`].
    pub roles: bool,
    pub seed: u64,
}

/// A message to a program.
#[derive(Clone, Serialize, Deserialize)]
pub enum Order {
    /// Hand the connections that are in the kernel over to the engine.
    Adopt,
    /// Start or stop moving connections back and forth at random.
    Moves(bool),
    /// An event happened at this time: record the progress after it.
    Watch { since_ns: u64, home: bool },
    /// Report once every connection makes progress.
    Report,
    /// Stop writing.
    Hush,
    /// Read this many bytes from each connection, then close all of them in order.
    Finish(Vec<u64>),
    /// The program at the other end is about to be killed: connections may end.
    Mortal,
    /// Say how each connection has ended, once all have.
    Ends,
}

/// A message from a program.
#[derive(Clone, Serialize, Deserialize)]
pub enum Answer {
    /// The addresses at which a program at the far end listens.
    Listening([SocketAddr; 2]),
    /// The local addresses of its connections.
    Connected(Vec<SocketAddr>),
    /// The service has adopted its connections.
    Adopted,
    Report(Report),
    /// Bytes written to each connection.
    Hushed(Vec<u64>),
    Finished,
    Mortal,
    Ends(Vec<Ended>),
}

/// How a connection has ended at the program that lives on.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Ended {
    pub end: End,
    /// When that was seen.
    pub at_ns: u64,
    /// The bytes that were read.
    pub read: u64,
}

/// The progress after an event, for each connection, in ns since the event.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Time until it was in the kernel, if it was not there already.
    pub home: Vec<Option<u64>>,
    /// Time until the first new byte.
    pub bytes: Vec<u64>,
    /// The longest time without a byte.
    pub gap: Vec<u64>,
}

/// How a connection is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Little data, in both directions.
    Light,
    /// As much data as fits, in both directions.
    Bulk,
    /// The peer writes nothing, so the receive queue is empty.
    Drained,
    /// The program neither reads nor writes, and unread data of the peer is queued.
    Unread,
}

impl Role {
    pub fn of(line: usize, roles: bool) -> Role {
        match line % 20 {
            0 => Role::Bulk,
            1 | 2 if roles => Role::Drained,
            3 | 4 if roles => Role::Unread,
            _ => Role::Light,
        }
    }
}

/// The clock that all processes share.
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
