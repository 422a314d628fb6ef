//! Small types that events and orders carry, or that both halves use.

use baton_tcp::snapshot::{Inconsistent, Words};

/// The most options that an adoption can set.
pub const MAX_OPTIONS: usize = 8;

/// Why a connection was not adopted. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AdoptError {
    /// The event ring is full: poll, then try again.
    #[error("the engine is busy")]
    Busy,
    /// There is a connection with these addresses and ports already.
    #[error("the engine has a connection of this name")]
    NameInUse,
    /// The consumer is not known, or has no free queue pair.
    #[error("the consumer has no free queue pair")]
    NoQueuePair,
    /// No route leads to the peer, or the local address is not ours.
    #[error("no route to the peer from this address")]
    NoRoute,
    /// The engine has as many connections as it was made for.
    #[error("the engine holds as many connections as it was made for")]
    TableFull,
    /// More options than [`MAX_OPTIONS`].
    #[error("too many options")]
    Options,
    /// The snapshot was damaged on its way.
    #[error("the snapshot is damaged")]
    Snapshot,
    /// The snapshot contradicts itself.
    #[error("{0}")]
    Inconsistent(#[from] Inconsistent),
}

/// Resources that a failed request leaves unused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unused {
    /// Its queue pair.
    pub qp: Option<u32>,
    /// The reference on its next hop.
    pub hop: Option<u16>,
}

/// Half of a snapshot's words.
pub type SnapshotHalf = [u64; 7];

/// Halves of a snapshot's words, as they travel.
pub fn snapshot_halves(words: &Words) -> (SnapshotHalf, SnapshotHalf) {
    (std::array::from_fn(|at| words[at]), std::array::from_fn(|at| words[7 + at]))
}

/// Bytes that an adopted connection brings along; its consumer posts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Queues {
    /// From `snd_una` on, sent or not.
    pub queued: u32,
    /// Received and not read, before `rcv_nxt`.
    pub unread: u32,
}

/// Bytes that a connection has carried since it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Carried {
    /// Bytes that the peer has acknowledged, including those that the connection came with.
    pub acknowledged: u64,
    /// Bytes received, including those that the connection came with unread.
    pub received: u64,
    /// Bytes posted that were never sent.
    pub unsent: u64,
}

/// Linux's numbers of the errors that requests are refused with.
pub(crate) struct Errno;

impl Errno {
    pub(crate) const AGAIN: u32 = 11;
    pub(crate) const NO_OPTION: u32 = 92;
    pub(crate) const ADDRESS_IN_USE: u32 = 98;
    pub(crate) const ADDRESS_NOT_AVAILABLE: u32 = 99;
    pub(crate) const NETWORK_UNREACHABLE: u32 = 101;
    pub(crate) const CONNECTION_ABORTED: u32 = 103;
    pub(crate) const CONNECTION_RESET: u32 = 104;
    pub(crate) const NO_BUFFERS: u32 = 105;
    pub(crate) const NOT_CONNECTED: u32 = 107;
    pub(crate) const TIMED_OUT: u32 = 110;
    pub(crate) const CONNECTION_REFUSED: u32 = 111;
    pub(crate) const HOST_UNREACHABLE: u32 = 113;
}
