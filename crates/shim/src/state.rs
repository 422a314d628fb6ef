//! Where a connection is, as data.

use crate::candidate::{Candidate, Origin};
use crate::ended::Ended;
use crate::os::socket::Name;
use baton_client::Stream;
use baton_policy::rules::{BULK_CALL, Rule};
use std::sync::atomic::{AtomicU64, Ordering};

/// The data under a slot's lock.
#[derive(Default)]
pub struct Body {
    pub state: State,
}

impl Body {
    /// True for a socket without a connection.
    pub fn is_fresh(&self) -> bool {
        matches!(&self.state, State::Kernel(candidate) if candidate.is_fresh())
    }
}

/// The state of a connection.
#[derive(Default)]
pub enum State {
    #[default]
    Free,
    Kernel(Candidate),
    Moved(Moved),
    Ended(Ended),
}

/// A connection in an engine of the service.
pub struct Moved {
    pub stream: Stream,
    pub local: Name,
    pub peer: Name,
    /// Device and inode of the socket.
    pub identity: (u64, u64),
    pub origin: Origin,
    pub rule: Rule,
    /// The number of bytes that large calls moved.
    pub bulk: AtomicU64,
}

impl Moved {
    /// True if it was reset or closed by both sides: then the kernel would report `ENOTCONN`.
    pub fn has_ended(&self) -> bool {
        const CLOSE: u8 = 7;
        let readiness = self.stream.readiness();
        let is_closed = || self.stream.tcp_info().map_or(true, |info| info.first() == Some(&CLOSE));
        readiness.ended && (readiness.failed || is_closed())
    }

    /// Counts the bytes that a call moved. Returns false if the policy wants the connection home for
    /// bulk transfer.
    pub fn keeps(&self, count: usize) -> bool {
        if count < BULK_CALL || self.origin.is_between() {
            return true;
        }
        let before = self.bulk.fetch_add(count as u64, Ordering::Relaxed);
        self.rule.keeps(before + count as u64)
    }
}
