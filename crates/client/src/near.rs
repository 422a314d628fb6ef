//! One end of a pair, as calls use it without the library's lock.
//!
//! A [`Stream`](super::Stream) keeps the end that its connection has now. Calls that find bytes or room there
//! need nothing else. All others go the long way: they wait, report an error, or learn that the connection has
//! left the pair, whose end is gone then.

use baton_consumer::held::Counted;
use baton_pair::{Bell, End};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// One end of a pair, until its connection leaves it.
#[derive(Debug)]
pub(super) struct PairEnd {
    end: Mutex<Option<End>>,
    /// The other program's bell.
    bell: Arc<OwnedFd>,
}

impl PairEnd {
    pub fn new(end: End, bell: Arc<OwnedFd>) -> Arc<PairEnd> {
        Arc::new(PairEnd { end: Mutex::new(Some(end)), bell })
    }

    /// Uses the end. `None` once its connection has left the pair.
    pub fn with<R>(&self, run: impl FnOnce(&mut End) -> R) -> Option<R> {
        let mut end = Counted::new(|| self.end.lock().unwrap_or_else(PoisonError::into_inner));
        end.as_mut().map(run)
    }

    /// Takes the end out: its connection leaves the pair.
    pub fn take(&self) -> Option<End> {
        Counted::new(|| self.end.lock().unwrap_or_else(PoisonError::into_inner)).take()
    }

    /// Wakes the program at the other side, if it sleeps.
    pub fn ring(&self, bell: Bell) {
        if bell.is_wanted() {
            // The write fails only if the counter is at its maximum, and then the other wakes as well.
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Reads bytes, if there are some.
    pub fn read(&self, buf: &mut [u8]) -> Option<usize> {
        let (count, bell) = self.with(|end| end.read(buf))?.ok().filter(|(count, _)| *count > 0)?;
        self.ring(bell);
        Some(count)
    }

    /// Writes the bytes of `pieces` from byte `skip` on, up to the free room. Returns their number, or `None` if
    /// there is no room.
    pub fn write(&self, pieces: &[IoSlice<'_>], mut skip: usize) -> Option<usize> {
        let (total, bell) = self.with(|end| {
            let (mut total, mut bell) = (0, Bell::NONE);
            for piece in pieces {
                if skip >= piece.len() {
                    skip -= piece.len();
                    continue;
                }
                let piece = &piece[std::mem::take(&mut skip)..];
                let Ok((count, rings)) = end.write(piece) else { break };
                (total, bell) = (total + count, bell | rings);
                if count < piece.len() {
                    break;
                }
            }
            (total, bell)
        })?;
        self.ring(bell);
        Some(total).filter(|total| *total > 0)
    }
}
