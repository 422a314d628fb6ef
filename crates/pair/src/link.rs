//! A link: two programs that share connections, what is new on which, and sleep.

use crate::end::End;
use crate::memory::Side;
use crate::peer::Fault;
use crate::shared::Shared;
use crate::words::fence;
use core::num::NonZeroU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::fmt;
use std::sync::Arc;

/// Two sides that do not fit each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the sides of a link have {ours} and {theirs} slots")]
pub struct LinkError {
    /// Slots of this program's side.
    pub ours: u32,
    /// Slots of the other program's side.
    pub theirs: u32,
}

/// A slot that an end cannot have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlotError {
    /// The link has fewer slots.
    #[error("the link has no slot {0}")]
    Range(u32),
    /// Another end of this program uses it.
    #[error("slot {0} is in use")]
    Used(u32),
    /// The slot's words are about another pair.
    #[error("slot {0} is about another pair")]
    Other(u32),
    /// The words of the end that is taken over do not fit the peer's.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// This program's part of a link. It lives in one place of a program; its [`End`]s go wherever their
/// connections do, and each may be used by another thread.
///
/// # Going to sleep
/// A program that waits asks for what it waits for at each end ([`End::ask_for_data`],
/// [`End::ask_for_room`]). If nothing is there yet it calls [`Link::prepare_sleep`] on each of its links,
/// and sleeps until its bell rings if all say true. Then it takes the [`Link::news`] and looks at the ends
/// that they name. After a bell, all links have to be prepared again before the next sleep. `shared.rs`
/// says why nothing is lost.
pub struct Link {
    shared: Arc<Shared>,
    /// The other program's news as this one saw it last; the same as in our side's memory.
    seen: Box<[u64]>,
    /// Slots with news, while they are told.
    fresh: Box<[u64]>,
    /// The value of our `sleeps`: odd while this program wants a bell.
    sleeps: u64,
}

impl Link {
    /// Joins the side that this program writes and the one that the other program writes. Goes on from
    /// what `ours` says, if a program has used it before.
    ///
    /// # Errors
    /// [`LinkError`] if their numbers of slots differ.
    pub fn new(ours: Arc<Side>, theirs: Arc<Side>) -> Result<Link, LinkError> {
        let slots = (ours.layout().slots(), theirs.layout().slots());
        if slots.0 != slots.1 {
            return Err(LinkError { ours: slots.0, theirs: slots.1 });
        }
        let seen: Box<[u64]> = (0..ours.layout().bit_words()).map(|word| ours.seen(word).load(Relaxed)).collect();
        let (fresh, sleeps) = (vec![0; seen.len()].into(), ours.sleeps().load(Relaxed));
        Ok(Link { shared: Arc::new(Shared::new(ours, theirs)), seen, fresh, sleeps })
    }

    /// Begins a pair in a slot: the end of this program. `number` is the pair's, different from all that the
    /// slot had before, and the same in both programs. The programs may begin in any order, once both have
    /// let go of the slot's last pair.
    ///
    /// # Errors
    /// [`SlotError`] if there is no such slot, or an end of this program has it.
    pub fn begin(&self, slot: u32, number: NonZeroU64) -> Result<End, SlotError> {
        self.take(slot)?;
        Ok(End::begin(self.shared.clone(), slot, number))
    }

    /// Takes over an end from another process: its words in our side say how far it came. A program goes on so
    /// with an end that its broker began, and a broker ends the connections of a program that is gone.
    ///
    /// # Errors
    /// [`SlotError`] if there is no such slot, an end has it, it is about another pair, or its words
    /// cannot be.
    pub fn resume(&self, slot: u32, number: NonZeroU64) -> Result<End, SlotError> {
        self.take(slot)?;
        let end = End::resume(self.shared.clone(), slot, number);
        match end {
            Ok(Some(end)) => Ok(end),
            Ok(None) => Err(SlotError::Other(slot)),
            Err(fault) => Err(SlotError::Fault(fault)),
        }
    }

    /// Marks a slot as used, until its `End` is dropped.
    fn take(&self, slot: u32) -> Result<(), SlotError> {
        let used = self.shared.used.get(slot as usize).ok_or(SlotError::Range(slot))?;
        if used.swap(true, Acquire) { Err(SlotError::Used(slot)) } else { Ok(()) }
    }

    /// Tells each slot that has something new, once: bytes, room that was asked for, or an end. Slots may be
    /// named in vain.
    pub fn news(&mut self, mut told: impl FnMut(u32)) {
        let Shared { ours, theirs, .. } = &*self.shared;
        let mut any = false;
        for (word, (seen, fresh)) in (0..).zip(self.seen.iter_mut().zip(&mut self.fresh)) {
            let news = theirs.news(word).load(Acquire);
            *fresh = news ^ *seen;
            if *fresh != 0 {
                *seen = news;
                ours.seen(word).store(news, Release);
                any = true;
            }
        }
        if !any {
            return;
        }
        fence(SeqCst);
        self.awake();
        let layout = self.shared.ours.layout();
        for (word, fresh) in (0..).zip(&self.fresh) {
            let mut left = fresh & layout.bits_of(word);
            while left != 0 {
                told(word * u64::BITS + left.trailing_zeros());
                left &= left - 1;
            }
        }
    }

    /// True if [`Link::news`] has something to tell.
    #[inline]
    pub fn has_news(&self) -> bool {
        let theirs = &self.shared.theirs;
        (0..).zip(&self.seen).any(|(word, seen)| theirs.news(word).load(Acquire) != *seen)
    }

    /// Says that this program wants its bell rung at the next news. False if there are some already: then
    /// it must not sleep.
    pub fn prepare_sleep(&mut self) -> bool {
        // Always a number that nobody has rung for.
        self.sleeps = (self.sleeps | 1).wrapping_add(2);
        self.shared.ours.sleeps().store(self.sleeps, Relaxed);
        fence(SeqCst);
        if self.has_news() {
            self.awake();
            return false;
        }
        true
    }

    /// Says that this program wants no bell: it is awake, and takes its news without one.
    pub fn awake(&mut self) {
        if self.sleeps % 2 == 1 {
            self.sleeps = self.sleeps.wrapping_add(1);
            self.shared.ours.sleeps().store(self.sleeps, Relaxed);
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("sleeps", &self.sleeps).finish_non_exhaustive()
    }
}
