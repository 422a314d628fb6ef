//! Somebody who reads along what both ends of a pair write, and whom no end waits for.
//!
//! A follower writes nothing, so bytes may be written over before it has copied them, or while it does. It
//! finds out, counts them, and never gives bytes that were not written at their position.
//!
//! # What was copied is what was written
//! An owner announces what it is about to write, and where, before it does:
//!
//! ```text
//!   owner writes                              follower
//!   prior, origin   if it begins again        head, then origin and prior: where the bytes lie
//!   reach = end of the write                  copies bytes
//!   fence                                     fence
//!   bytes                                     reach, origin, prior: can they be written over?
//!   head                                      number: is it still this pair?
//! ```
//!
//! If one of the copied bytes is of a later write, the fences make the follower see that write's `reach` and
//! `origin`, or later ones; so it judges by all writes that it can have met. A byte at position `p` that lies
//! where the present origin puts it is whole if `reach` is at most an area beyond `p`. One that lies by the
//! origin before (`prior`) must also not lie where anything was written since the present one: it is whole
//! if its offset is at least `reach - origin`. Bytes that lie by an older origin are given up. `prior` is stored
//! before `origin`, so an origin is never taken for one that does not follow it: what was read as `prior` is at
//! least the right one, and a later one is not below the origin that was read.
//!
//! # In which order both directions go
//! The follower takes a cut: how far each end has written and read, such that no end has read what the other
//! has not yet written in it ([`Follower::look`]). Within a cut, nothing says which came first.

use crate::course::Course;
use crate::end::FARTHEST;
use crate::link::SlotError;
use crate::memory::Side;
use crate::peer::{Ending, Fault};
use crate::words::{Block, fence};
use core::num::NonZeroU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use std::fmt;
use std::sync::Arc;

/// How often a cut is tried again if an end has read what the other had not yet written in it.
const TRIES: usize = 4;

/// How much a follower can hear of a pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Its ends go on, or have yet to begin.
    Goes,
    /// It goes home. Its broker knows up to which positions its bytes count.
    Stopped,
    /// Its slot is another pair's, or is about to be.
    Over,
}

/// How far a pair has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sight {
    /// Of both ends.
    pub course: Course,
    /// Whether it goes on.
    pub stage: Stage,
}

/// Bytes that a follower has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    /// Bytes before these that were written over before they could be copied.
    pub lost: u64,
    /// The position of the first copied byte.
    pub from: u64,
    /// Copied bytes.
    pub count: usize,
}

/// One end as far as it is known, each word read once and checked.
#[derive(Clone, Copy, Debug)]
struct Way {
    begun: bool,
    head: u64,
    tail: u64,
    end: Ending,
    stopped: bool,
    over: bool,
    /// The first position that has not been passed.
    next: u64,
}

/// Where bytes lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Map {
    origin: u64,
    /// The origin of the positions before `origin`, or `origin` if nobody knows.
    prior: u64,
}

/// A copy that may have met writes.
struct Copied {
    /// The origin by which its bytes lay.
    origin: u64,
    from: u64,
    count: usize,
}

/// Reads along what both ends of a pair write. Neither end notices.
pub struct Follower {
    sides: [Arc<Side>; 2],
    slot: u32,
    number: NonZeroU64,
    ways: [Way; 2],
}

impl Map {
    fn of(block: &Block) -> Map {
        let origin = block.out.origin.load(Acquire);
        Map { origin, prior: block.inward.prior.load(Relaxed).min(origin) }
    }

    /// The first position from which on bytes that lay by `origin` before are whole, if everything before `reach`
    /// can have been written since. `last` is the last of them.
    fn whole_from(self, origin: u64, last: u64, reach: u64, area: u64) -> u64 {
        if origin == self.origin {
            return reach.saturating_sub(area);
        }
        if origin != self.prior {
            return u64::MAX;
        }
        // Bytes before the present origin may have gone round the area. Later ones lie at its start.
        let covered = reach.saturating_sub(self.origin).min(area);
        let offset = last.wrapping_sub(origin) & (area - 1);
        let since = if covered == 0 { 0 } else { last.saturating_sub(offset).saturating_add(covered) };
        self.origin.saturating_sub(area).max(since)
    }
}

impl Way {
    fn new() -> Way {
        Way { begun: false, head: 0, tail: 0, end: Ending::Open, stopped: false, over: false, next: 0 }
    }

    /// Learns how far an end has come.
    fn learn(&mut self, block: &Block, number: NonZeroU64) -> Result<(), Fault> {
        if self.over {
            return Ok(());
        }
        if block.out.number.load(Acquire) != number.get() {
            self.over = self.begun;
            return Ok(());
        }
        // The end first: with it the number of bytes is final.
        let end = block.out.end.load(Acquire);
        let (head, tail) = (block.out.head.load(Acquire), block.inward.tail.load(Acquire));
        fence(Acquire);
        let stopped = block.out.stopped.load(Relaxed) == number.get();
        if block.out.number.load(Relaxed) != number.get() {
            self.over = true;
            return Ok(());
        }
        self.believe(Ending::from_word(end)?, head, tail)?;
        (self.begun, self.stopped) = (true, stopped);
        Ok(())
    }

    fn believe(&mut self, end: Ending, head: u64, tail: u64) -> Result<(), Fault> {
        if end < self.end {
            return Err(Fault::EndBack(self.end, end));
        }
        if head < self.head {
            return Err(Fault::HeadBack(self.head, head));
        }
        if self.end != Ending::Open && head != self.head {
            return Err(Fault::AfterEnd(head - self.head));
        }
        if tail < self.tail {
            return Err(Fault::TailBack(self.tail, tail));
        }
        if let Some(far) = [head, tail].into_iter().find(|position| *position > FARTHEST) {
            return Err(Fault::TooFar(far));
        }
        (self.end, self.head, self.tail) = (end, head, tail);
        Ok(())
    }
}

impl Follower {
    /// A follower of the pair of this number, from its first bytes on.
    ///
    /// # Errors
    /// [`SlotError::Range`] if one of the sides has no such slot.
    pub fn new(sides: [Arc<Side>; 2], slot: u32, number: NonZeroU64) -> Result<Follower, SlotError> {
        if sides.iter().any(|side| slot >= side.layout().slots()) {
            return Err(SlotError::Range(slot));
        }
        Ok(Follower { sides, slot, number, ways: [Way::new(); 2] })
    }

    /// Passes over everything that was written so far, without counting it as lost. Returns how far that is.
    ///
    /// # Errors
    /// Those of [`Follower::look`].
    pub fn begin_here(&mut self) -> Result<Course, Fault> {
        let course = self.look()?.course;
        self.ways.iter_mut().for_each(|way| way.next = way.head);
        Ok(course)
    }

    /// Looks how far the pair has come.
    ///
    /// # Errors
    /// [`Fault`] if a program broke the rules of the memory.
    pub fn look(&mut self) -> Result<Sight, Fault> {
        self.learn(0)?;
        self.learn(1)?;
        // The end that was looked at first has read nothing that the other had not written at its turn. Otherwise
        // the first is looked at again, and is the second then.
        let mut first = 0;
        for _ in 0..TRIES {
            if self.ways[1 - first].tail <= self.ways[first].head {
                break;
            }
            self.learn(first)?;
            first = 1 - first;
        }
        let written = self.ways.map(|way| way.head);
        let read = [0, 1].map(|at| self.ways[at].tail.min(written[1 - at]));
        let course = Course { written, read, ends: self.ways.map(|way| way.end) };
        let is = |what: fn(&Way) -> bool| self.ways.iter().any(what);
        let stage = if is(|way| way.over) {
            Stage::Over
        } else if is(|way| way.stopped) {
            Stage::Stopped
        } else {
            Stage::Goes
        };
        Ok(Sight { course, stage })
    }

    fn learn(&mut self, at: usize) -> Result<(), Fault> {
        self.ways[at].learn(self.sides[at].block(self.slot), self.number)
    }

    /// The most bytes of an end that can be unread.
    pub fn area_bytes(&self, at: usize) -> u32 {
        self.sides[at].layout().area_bytes()
    }

    /// The first position of an end's bytes that has not been passed.
    pub fn passed(&self, at: usize) -> u64 {
        self.ways[at].next
    }

    /// Passes bytes of an end, up to the length of `into` and to a position that the last look found. Nothing is
    /// left if nothing was lost and none was copied.
    ///
    /// # Errors
    /// [`Fault::Unannounced`] if the program does not announce what it writes.
    pub fn read(&mut self, at: usize, until: u64, into: &mut [u8]) -> Result<Passed, Fault> {
        let until = until.min(self.ways[at].head);
        match self.locate(at, until, into.len()) {
            Some(copied) => {
                self.copy(at, &copied, into);
                self.settle(at, &copied, into)
            }
            None => {
                // Nobody knows where they lie, or there are none.
                let next = self.ways[at].next;
                self.ways[at].next = next.max(until);
                Ok(Passed { lost: until.saturating_sub(next), from: next.max(until), count: 0 })
            }
        }
    }

    fn block(&self, at: usize) -> &Block {
        self.sides[at].block(self.slot)
    }

    fn area(&self, at: usize) -> u64 {
        self.sides[at].layout().area_bytes().into()
    }

    /// Where the next bytes lie, up to `most` of them. `None` if there are none before `until`.
    fn locate(&self, at: usize, until: u64, most: usize) -> Option<Copied> {
        let Way { next, over, head, .. } = self.ways[at];
        let until = until.min(head);
        if over || next >= until {
            return None;
        }
        let (area, map) = (self.area(at), Map::of(self.block(at)));
        let from = next.max(map.prior).max(until.saturating_sub(area));
        let (origin, end) = if from < map.origin { (map.prior, until.min(map.origin)) } else { (map.origin, until) };
        let count = end.checked_sub(from).filter(|count| *count > 0)?.min(area).min(most as u64) as usize;
        Some(Copied { origin, from, count })
    }

    fn copy(&self, at: usize, copied: &Copied, into: &mut [u8]) {
        let area = self.area(at);
        let offset = copied.from.wrapping_sub(copied.origin) & (area - 1);
        let first = copied.count.min((area - offset) as usize);
        let (one, other) = into[..copied.count].split_at_mut(first);
        self.sides[at].copy_along(self.slot, offset as u32, one);
        self.sides[at].copy_along(self.slot, 0, other);
    }

    /// Keeps those bytes of a copy that are whole.
    fn settle(&mut self, at: usize, copied: &Copied, into: &mut [u8]) -> Result<Passed, Fault> {
        fence(Acquire);
        let (area, block) = (self.area(at), self.block(at));
        let (reach, map) = (block.inward.reach.load(Relaxed), Map::of(block));
        fence(Acquire);
        let is_over = block.out.number.load(Relaxed) != self.number.get();
        let way = &mut self.ways[at];
        let Copied { origin, from, count } = *copied;
        let (before, end) = (way.next, from + count as u64);
        if is_over {
            // The words are about the next pair.
            (way.over, way.next) = (true, way.head);
            return Ok(Passed { lost: way.head - before, from: way.head, count: 0 });
        }
        if reach < way.head {
            return Err(Fault::Unannounced(reach, way.head));
        }
        let whole = map.whole_from(origin, end.saturating_sub(1), reach, area).clamp(from, end);
        way.next = end;
        into.copy_within((whole - from) as usize..count, 0);
        Ok(Passed { lost: whole - before, from: whole, count: (end - whole) as usize })
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Follower { slot, number, ways, .. } = self;
        f.debug_struct("Follower")
            .field("slot", slot)
            .field("number", number)
            .field("ways", ways)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
#[path = "follower_tests.rs"]
mod tests;
