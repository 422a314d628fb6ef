//! The part of a link that all its ends share: two sides, and how the other program is told.
//!
//! # No wake-up is lost
//! A program that waits writes down what it waits for, then looks; one that brings it about does it, then
//! looks whether anybody waits. With a fence of all threads between store and look on both sides, at least
//! one of them sees the other's store:
//!
//! ```text
//!   waits                                     brings it about
//!   data_at = position it waits for           head = bytes written
//!   fence                                     fence
//!   look at head: there? go on                look at data_at: reached? tell:
//!                                               news bit = not the peer's seen bit
//!   sleeps = next odd number                    fence
//!   fence                                       look at sleeps: odd and not rung for? ring
//!   news differ from seen? do not sleep
//!   else sleep until the bell rings
//!
//!   takes the news: seen = news, fence, look at the slots
//! ```
//!
//! Room is asked for in the same way, with `room_at` and `tail`. An end is told of without being asked for.
//!
//! A bit that differs from the peer's seen bit stands already, and is left alone. The teller's reading of
//! `seen` may be old: the peer may have taken the bit just now. Then the peer's fence, which follows its
//! store to `seen`, also follows the teller's, which precedes its reading; so the peer finds what is new
//! when it looks at the slot. `seen` of a slot follows the slot's bit, and one end alone flips that, so
//! an old reading is never taken for a bit that does not stand.
//!
//! `sleeps` only grows, so a bell is rung once for each time that the owner wants one, though the other
//! program cannot clear the wish.

use crate::layout::bit_of;
use crate::memory::Side;
use crate::words::{AtomicU64, fence};
use core::ops::{BitOr, BitOrAssign};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::Arc;

/// Whether the caller has to ring the other program's bell now. Several can be joined by `|`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use = "the other program sleeps on if its bell is not rung"]
pub struct Bell(bool);

impl Bell {
    /// Nobody has to be woken.
    pub const NONE: Bell = Bell(false);

    /// True if the bell has to be rung.
    #[inline]
    pub fn is_wanted(self) -> bool {
        self.0
    }
}

impl BitOr for Bell {
    type Output = Bell;
    fn bitor(self, other: Bell) -> Bell {
        Bell(self.0 | other.0)
    }
}

impl BitOrAssign for Bell {
    fn bitor_assign(&mut self, other: Bell) {
        *self = *self | other;
    }
}

/// The part of a link that all its ends share.
pub(crate) struct Shared {
    /// Written by this program.
    pub(crate) ours: Arc<Side>,
    /// Written by the other program.
    pub(crate) theirs: Arc<Side>,
    /// The value of the other program's `sleeps` that a bell was rung for last.
    rung: AtomicU64,
    /// Slots that an end of this program uses.
    pub(crate) used: Box<[AtomicBool]>,
}

impl Shared {
    pub(crate) fn new(ours: Arc<Side>, theirs: Arc<Side>) -> Shared {
        let used = (0..ours.layout().slots()).map(|_| AtomicBool::new(false)).collect();
        Shared { ours, theirs, rung: AtomicU64::new(0), used }
    }

    /// Tells the other program to look at a slot. Only the slot's end calls this, after a fence that
    /// follows its store of what is new.
    pub(crate) fn tell(&self, slot: u32) -> Bell {
        if self.set_news(slot) { self.wake() } else { Bell::NONE }
    }

    /// As [`Shared::tell`], and wakes the other program even if the news stood already: a program that
    /// died may have set them without ringing the bell.
    pub(crate) fn tell_end(&self, slot: u32) -> Bell {
        self.set_news(slot);
        self.wake()
    }

    /// Sets a slot's news; false if they stood already.
    fn set_news(&self, slot: u32) -> bool {
        let (word, bit) = bit_of(slot);
        let news = self.ours.news(word);
        let stands = (news.load(Relaxed) ^ self.theirs.seen(word).load(Relaxed)) & bit != 0;
        if !stands {
            news.fetch_xor(bit, Release);
        }
        !stands
    }

    /// Whether the other program sleeps, and nobody has rung for that.
    fn wake(&self) -> Bell {
        fence(SeqCst);
        let sleeps = self.theirs.sleeps().load(Relaxed);
        Bell(sleeps % 2 == 1 && self.rung.swap(sleeps, Relaxed) != sleeps)
    }
}
