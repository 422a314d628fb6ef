//! Messages between the rig and its programs: each is a line of JSON on the program's standard input or output.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Prefix of a program's answers.
pub const MARK: &str = "@answer ";

/// A message to a program.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
pub enum Order {
    /// Listen at this address.
    Listen(IpAddr),
    /// Accept a connection, for a load: its number in the matrix.
    Accept(usize),
    /// Connect to this address, for a load.
    Connect(SocketAddr, usize),
    /// Begin the load.
    Go,
    /// The middle of the test: close this direction, if the load says so.
    Halfway,
    /// Say how far the connection has come.
    Count,
    /// Stop writing.
    Hush,
    /// Read this many bytes in all, then close in order.
    Finish(u64),
}

/// A message from a program.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
pub enum Answer {
    /// The listener's address, and the process.
    Listening(SocketAddr, i32),
    /// The connection's address here.
    Begun(SocketAddr),
    Closed,
    Counted(Count),
    Finished,
}

/// How far a connection has come at one end.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
pub struct Count {
    pub written: u64,
    pub read: u64,
    /// How often nothing could be written.
    pub full: u64,
}
