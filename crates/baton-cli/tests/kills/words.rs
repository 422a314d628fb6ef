//! What the rig and its programs say to each other: a line of JSON each, on the program's
//! standard input and output.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What a program is started with.
#[derive(Clone, Serialize, Deserialize)]
pub struct Start {
    /// The service's socket; none for a program that stays in the kernel.
    pub service: Option<PathBuf>,
    /// Where the peers listen: by IPv4, by IPv6.
    pub peers: [SocketAddr; 2],
    pub lines: usize,
    /// Some lines are quiet in one direction, see [`Role`].
    pub roles: bool,
    pub seed: u64,
}

/// What a program is told.
#[derive(Clone, Serialize, Deserialize)]
pub enum Order {
    /// Hand over what is in the kernel.
    Adopt,
    /// Move lines to and fro at random, or no more.
    Moves(bool),
    /// Something happened at this time: look at what comes of it.
    Watch { since_ns: u64, home: bool },
    /// Say so once every line goes on.
    Report,
    /// Write no more.
    Hush,
    /// Read as much from each line, then close all in form.
    Finish(Vec<u64>),
}

/// What it says.
#[derive(Clone, Serialize, Deserialize)]
pub enum Answer {
    /// Its ends of the lines.
    Connected(Vec<SocketAddr>),
    /// The service has them.
    Adopted,
    Report(Report),
    /// What was written to each line.
    Hushed(Vec<u64>),
    Finished,
}

/// What came of something, line by line, in ns since.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Until it was in the kernel, if it was not there already.
    pub home: Vec<Option<u64>>,
    /// Until the first byte that was not there before.
    pub bytes: Vec<u64>,
    /// The longest time without a byte.
    pub gap: Vec<u64>,
}

/// How a line is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Some, both ways.
    Light,
    /// As much as fits, both ways.
    Bulk,
    /// The peer writes nothing: all that there is was read.
    Drained,
    /// The program reads nothing, nor writes, and the peer wrote something.
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

/// The time that all processes share.
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
