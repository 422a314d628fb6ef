//! One end of a pair, as calls use it without the library's lock.
//!
//! A [`Stream`](super::Stream) keeps the end that its connection has now. Calls that find bytes or room there
//! need nothing else. All others go the long way: they wait, report an error, or learn that the connection has
//! left the pair, whose end is gone then.

use baton_consumer::held::Counted;
use baton_pair::{Bell, End, Ending, Fault};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// Bytes after which the other program is told of a longer read or write, which it need not wait for the end of.
const PIECE: usize = 64 << 10;

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
        let mut end = Counted::lock(&self.end);
        end.as_mut().map(run)
    }

    /// True if a read would not wait, or has to go the long way.
    fn has_news(&self) -> bool {
        let looked = self.with(|end| Ok(end.is_stopped() || end.readable()? > 0 || end.peer_end() != Ending::Open));
        matches!(looked, Some(Ok::<_, Fault>(true)) | Some(Err(_)) | None)
    }

    /// Takes the end out: its connection leaves the pair.
    pub fn take(&self) -> Option<End> {
        Counted::lock(&self.end).take()
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
        self.with(|end| {
            let mut total = 0;
            for piece in buf.chunks_mut(PIECE) {
                let Ok((count, bell)) = end.read(piece) else { break };
                self.ring(bell);
                total += count;
                if count < piece.len() {
                    break;
                }
            }
            total
        })
        .filter(|total| *total > 0)
    }

    /// Writes the bytes of `pieces` from byte `skip` on, up to the free room. Returns their number, or `None` if
    /// there is no room.
    pub fn write(&self, pieces: &[IoSlice<'_>], mut skip: usize) -> Option<usize> {
        self.with(|end| {
            let mut total = 0;
            for piece in pieces {
                if skip >= piece.len() {
                    skip -= piece.len();
                    continue;
                }
                for piece in piece[std::mem::take(&mut skip)..].chunks(PIECE) {
                    let Ok((count, bell)) = end.write(piece) else { return total };
                    self.ring(bell);
                    total += count;
                    if count < piece.len() {
                        return total;
                    }
                }
            }
            total
        })
        .filter(|total| *total > 0)
    }
}

/// A look at a pair's memory, by a thread that waits for bytes without being told of them. It holds no lock, and the
/// connection may leave the pair meanwhile.
#[derive(Debug)]
pub struct Lookout(Arc<PairEnd>);

impl Lookout {
    /// Begins to look at this end, of which the other program need not tell.
    pub(super) fn begin(end: Arc<PairEnd>) -> Lookout {
        end.with(End::stop_asking_for_data);
        Lookout(end)
    }

    /// True once a read would not wait, or has another reason to look: the pair goes home, or has ended.
    pub fn is_over(&self) -> bool {
        self.0.has_news()
    }
}
