//! Pairs that stand still: a look once a second, by the library's thread.
//!
//! * Memory of a connection that carried nothing since the last look goes back to the system.
//! * If both programs have filled their areas and neither reads, each may be waiting for the other to read
//!   first. The kernel, whose buffers are larger, would have taken more, so such a pair goes home.

use super::location::{InPair, Stand};
use super::shared::Inner;
use baton_ipc::engine::monotonic;
use baton_ipc::message::Request;
use baton_pair::{End, Fault};
use rustix::fs::{FallocateFlags, fallocate};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Gives the memory that a pair does not use back. Its pages come again, zeroed, with the next write.
fn give_back(end: &mut End, file: BorrowedFd<'_>) -> Result<(), Fault> {
    if let Some(range) = end.unused_memory(0)? {
        let (start, length) = (range.start as u64, range.len() as u64);
        // Memory that cannot be given back stays, and nothing else comes of it.
        let _ = fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, length);
    }
    Ok(())
}

/// True if this pair has stood still since the last look with nothing free on either way.
fn is_stuck(pair: &mut InPair, file: BorrowedFd<'_>) -> bool {
    let stood = pair.stood;
    let looked = pair.end.with(|end| {
        let now = Stand { written: end.written_total(), read: end.read_total() };
        let stands = stood == Some(now);
        if stands {
            give_back(end, file)?;
        }
        Ok::<_, Fault>((now, stands && end.is_full()?))
    });
    // A broken pair is left to the program's next call.
    let Some(Ok((now, stuck))) = looked else { return false };
    pair.stood = Some(now);
    stuck
}

impl Inner {
    /// Looks at all pairs, if it is time. Returns the time until the next look, if there are pairs.
    pub(super) fn tend_pairs(&mut self) -> Option<Duration> {
        if self.pairs.is_empty() {
            return None;
        }
        let now = Duration::from_nanos(monotonic());
        if let Some(early) = (self.pairs.tended + LOOK).checked_sub(now).filter(|early| !early.is_zero()) {
            return Some(early);
        }
        self.pairs.tended = now;
        let Inner { connections, pairs, .. } = self;
        let mut stuck = Vec::new();
        for (id, connection) in connections.iter_mut() {
            let Some(pair) = connection.pair() else { continue };
            let Some(joined) = pairs.at(pair.link) else { continue };
            if is_stuck(pair, joined.memory.as_fd()) {
                stuck.push(*id);
            }
        }
        for id in stuck {
            // Without a broker nobody can bring it home.
            let _ = self.say(&Request::Restore { id }, Vec::new());
        }
        Some(LOOK)
    }
}
