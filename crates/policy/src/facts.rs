//! The facts about a connection, and the verdict of a condition on them.

use crate::survival::Expected;
use core::net::IpAddr;

/// The knowledge about a connection, against which conditions are checked. `None` stands for what is
/// not known here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// The address and port of our end.
    pub local: (Option<IpAddr>, u16),
    /// The peer's address and port.
    pub remote: (Option<IpAddr>, u16),
    /// The name of the interface over which it goes.
    pub interface: Option<String>,
    /// Which side opened it.
    pub direction: Option<Direction>,
    /// The user of its program.
    pub user: Option<u32>,
    /// The name of its program, as in `/proc/PID/comm`: 15 bytes at most.
    pub program: Option<String>,
    /// The path of its program's cgroup (version 2), such as `/system.slice/nginx.service`.
    pub cgroup: Option<String>,
    /// Requests to send, including the present one ([`Known::sends`](crate::rules::Known::sends)).
    pub sends: Option<u64>,
    /// Payload in both directions, in bytes.
    pub bytes: Option<u64>,
    /// Time since it was established, in microseconds.
    pub age_us: Option<u64>,
    /// Smoothed round-trip time, in microseconds.
    pub round_trip_us: Option<u64>,
    /// The packets that it is expected to send yet.
    pub expected: Option<Expected>,
}

/// Which side opened a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The peer: the program accepted it.
    Accepted,
    /// Our program connected.
    Connected,
}

/// How a condition stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not hold yet, but may later.
    Later,
    /// It does not hold and never will.
    Fails,
    /// The fact that it asks for is not known here.
    Unknown,
}

/// The error for a condition that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadCondition(pub(crate) String);

/// The cgroup of version 2 in the lines of `/proc/PID/cgroup`.
pub fn cgroup_of(lines: &str) -> Option<String> {
    lines.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}
