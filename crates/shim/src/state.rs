//! Where a connection is, as data.

use crate::candidate::{Candidate, Origin};
use crate::ended::Ended;
use crate::os::socket::Name;
use baton_client::Stream;
use baton_policy::rules::{BULK_CALL, Rule};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
    /// When it was handed over.
    pub since: Instant,
    /// How often its other end has answered since, up to [`ENOUGH`]; [`NOT_ALONE`] once it is known that it waits for
    /// nobody.
    pub answers: AtomicU32,
}

/// Answers after which a program that uses the service would have handed its end over, too.
const ENOUGH: u32 = 16;

/// The time for which it may be held up.
const HELD_UP: Duration = Duration::from_millis(100);

const NOT_ALONE: u32 = u32::MAX;

impl Moved {
    /// True if it was reset or closed by both sides: then the kernel would report `ENOTCONN`.
    pub fn has_ended(&self) -> bool {
        const CLOSE: u8 = 7;
        let readiness = self.stream.readiness();
        let is_closed = || self.stream.tcp_info().map_or(true, |info| info.first() == Some(&CLOSE));
        readiness.ended && (readiness.failed || is_closed())
    }

    /// The number of answers of a stream that was just handed over. Nobody counts them if it does not wait.
    pub fn no_answers(stream: &Stream) -> AtomicU32 {
        AtomicU32::new(if stream.waits_for_its_other_end() { 0 } else { NOT_ALONE })
    }

    /// Counts an answer of the other end.
    pub fn count_answer(&self) {
        let answers = self.answers.load(Ordering::Relaxed);
        if answers < ENOUGH {
            // Threads that count at once count less, which does no harm.
            self.answers.store(answers + 1, Ordering::Relaxed);
        }
    }

    /// True if its other end may be on this machine and has answered so often and so long that its program does
    /// not use the service. A connection that ends before the service says so costs more than it gains.
    pub fn is_alone(&self) -> bool {
        if self.answers.load(Ordering::Relaxed) != ENOUGH || self.since.elapsed() < HELD_UP {
            return false;
        }
        let waits = self.stream.waits_for_its_other_end();
        if !waits {
            self.answers.store(NOT_ALONE, Ordering::Relaxed);
        }
        waits
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
