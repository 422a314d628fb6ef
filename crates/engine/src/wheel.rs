//! A hierarchical timer wheel: one timer for each of a dense range of ids.
//!
//! Time is counted in ticks of 2^20 ns (1.05 ms). Level 0 has a slot for each of
//! 64 ticks, level 1 for each of 64 times 64, and so on; eight levels reach past
//! the end of time, so nothing has to be clamped. A timer goes to the level of the
//! highest group of six bits in which its tick differs from the wheel's:
//!
//! ```text
//!   tick of the wheel   ... 000010 | 101100 | 000111
//!   tick of a timer     ... 000010 | 110001 | 010101     differs first in group 1:
//!                                    level 1, slot 110001
//! ```
//!
//! So every timer of a level comes before every timer of the next one, and the
//! first slot in use on the lowest level in use is the next to be looked at. When
//! the wheel's tick reaches a slot of a higher level, its timers move down
//! (each at most seven times in its life). Arming, cancelling and arming again
//! are O(1): slots are doubly linked lists through the table of ids, 16 bytes an
//! id. The table's memory is zeroed by the system on first use, so ids that were
//! never armed cost nothing.
//!
//! A timer never fires early, and at most one tick late.

use crate::prefetch_unsafe::{Whereabouts, prefetch_index};
use baton_tcp::time::Instant;

/// Nanoseconds in a tick, as a shift.
const TICK_SHIFT: u32 = 20;
/// Bits of a tick's number that one level looks at.
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// Levels: 8 x 6 bits cover the 44 bits that a u64 of nanoseconds leaves.
const LEVELS: usize = 8;

/// Timers that one call of [`Wheel::expire`] fires or moves down, at most.
pub const EXPIRE_LIMIT: usize = 4096;

/// Entry of an id: its tick, then its neighbours.
///
/// `next` is 0 at the end of a list, else an id plus 1. `prev` is 0 if the timer
/// is not armed, `HEAD | slot` for the first of a slot, else an id plus 1.
type Entry = [u64; 2];

const HEAD: u32 = 1 << 31;

/// Timers of a dense range of ids. See the module's documentation.
pub struct Wheel {
    entries: Vec<Entry>,
    /// First of each slot: an id plus 1, or 0.
    heads: [[u32; SLOTS]; LEVELS],
    /// Which slots of a level are in use, a bit each.
    in_use: [u64; LEVELS],
    /// Every slot of an earlier tick is empty.
    tick: u64,
    /// Level and slot that [`EXPIRE_LIMIT`] left half moved down: it comes first.
    halfway: Option<(usize, usize)>,
    armed: u32,
}

#[inline]
fn links(next: u32, prev: u32) -> u64 {
    u64::from(next) | u64::from(prev) << 32
}

impl Wheel {
    /// A wheel for ids below `ids`, at time `now`.
    ///
    /// # Panics
    /// If `ids` is 2^31 or more.
    pub fn new(ids: u32, now: Instant) -> Wheel {
        assert!(ids < HEAD, "an id and a mark share 32 bits");
        Wheel {
            entries: vec![[0; 2]; ids as usize],
            heads: [[0; SLOTS]; LEVELS],
            in_use: [0; LEVELS],
            tick: now.0 >> TICK_SHIFT,
            halfway: None,
            armed: 0,
        }
    }

    /// Timers armed now.
    pub fn armed(&self) -> u32 {
        self.armed
    }

    /// True if the timer of `id` is armed.
    ///
    /// # Panics
    /// If `id` is out of range.
    #[inline]
    pub fn is_armed(&self, id: u32) -> bool {
        self.prev(id) != 0
    }

    /// Where the entries of all ids lie.
    pub fn whereabouts(&self) -> Whereabouts {
        Whereabouts::of::<Entry>(self.entries.as_ptr().addr(), self.entries.len())
    }

    /// Starts to fetch what arming the timer of `id` touches.
    #[inline]
    pub fn prefetch(&self, id: u32) {
        prefetch_index(&self.entries, id as usize);
    }

    /// The same for its neighbours, whose names are in what was fetched.
    #[inline]
    pub fn prefetch_neighbours(&self, id: u32) {
        let Some([_, word]) = self.entries.get(id as usize) else { return };
        for neighbour in [*word as u32, (word >> 32) as u32] {
            // 0 and a mark for the head of a list become no index.
            prefetch_index(&self.entries, (neighbour as usize).wrapping_sub(1));
        }
    }

    /// Arms the timer of `id` to fire at `at`, in place of when it was to fire
    /// before. One for the past fires at the next [`Wheel::expire`].
    ///
    /// # Panics
    /// If `id` is out of range.
    #[inline]
    pub fn arm(&mut self, id: u32, at: Instant) {
        let tick = (at.0 >> TICK_SHIFT) + u64::from(at.0 & ((1 << TICK_SHIFT) - 1) != 0);
        let tick = tick.max(self.tick);
        if self.is_armed(id) {
            if self.entries[id as usize][0] == tick {
                return;
            }
            self.unlink(id);
        } else {
            self.armed += 1;
        }
        self.link(id, tick);
    }

    /// Disarms the timer of `id`, if it is armed.
    ///
    /// # Panics
    /// If `id` is out of range.
    #[inline]
    pub fn cancel(&mut self, id: u32) {
        if self.is_armed(id) {
            self.unlink(id);
            self.armed -= 1;
        }
    }

    /// A time before which nothing will fire, and at which [`Wheel::expire`] has
    /// something to do; `None` if no timer is armed.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.next_slot().map(|(_, _, tick)| Instant(tick.saturating_mul(1 << TICK_SHIFT)))
    }

    /// Disarms every timer whose time has come and gives its id to `out`, earlier
    /// ticks first. True if more remain, because [`EXPIRE_LIMIT`] was reached:
    /// then `now` has not been caught up with, and a further call goes on.
    pub fn expire(&mut self, now: Instant, out: &mut impl FnMut(u32)) -> bool {
        let target = now.0 >> TICK_SHIFT;
        let mut budget = EXPIRE_LIMIT;
        while let Some((level, slot, tick)) = self.next_slot() {
            if tick > target {
                break;
            }
            self.tick = tick;
            self.halfway = Some((level, slot));
            while let Some(id) = self.pop(level, slot) {
                let at = self.entries[id as usize][0];
                if at <= self.tick {
                    self.armed -= 1;
                    out(id);
                } else {
                    self.link(id, at);
                }
                budget -= 1;
                if budget == 0 {
                    return self.next_slot().is_some_and(|(_, _, tick)| tick <= target);
                }
            }
        }
        self.halfway = None;
        self.tick = self.tick.max(target);
        false
    }

    /// The first slot in use: its level, its number, and the first tick that it
    /// stands for (never before the wheel's).
    #[inline]
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        // Nothing is armed into a slot of a higher level that the tick is in, so
        // once empty it stays so until the next call of `expire`.
        if let Some((level, slot)) = self.halfway
            && self.heads[level][slot] != 0
        {
            return Some((level, slot, self.tick));
        }
        let level = self.in_use.iter().position(|&slots| slots != 0)?;
        let slot = self.in_use[level].trailing_zeros();
        let shift = LEVEL_BITS * level as u32;
        let above = (self.tick >> shift) >> LEVEL_BITS << LEVEL_BITS;
        let tick = (above | u64::from(slot)) << shift;
        Some((level, slot as usize, tick.max(self.tick)))
    }

    /// Puts an unlinked id into the slot of `tick`, which is not in the past.
    #[inline]
    fn link(&mut self, id: u32, tick: u64) {
        let differing = (self.tick ^ tick) | 1;
        let level = (63 - differing.leading_zeros()) / LEVEL_BITS;
        let slot = (tick >> (level * LEVEL_BITS)) as usize & (SLOTS - 1);
        let level = level as usize;
        let next = self.heads[level][slot];
        if next != 0 {
            let entry = &mut self.entries[next as usize - 1];
            entry[1] = links(entry[1] as u32, id + 1);
        }
        self.heads[level][slot] = id + 1;
        self.in_use[level] |= 1 << slot;
        self.entries[id as usize] = [tick, links(next, HEAD | (level * SLOTS + slot) as u32)];
    }

    /// Takes an armed id out of its slot.
    #[inline]
    fn unlink(&mut self, id: u32) {
        let word = self.entries[id as usize][1];
        let (next, prev) = (word as u32, (word >> 32) as u32);
        self.entries[id as usize][1] = 0;
        if next != 0 {
            let entry = &mut self.entries[next as usize - 1];
            entry[1] = links(entry[1] as u32, prev);
        }
        if prev & HEAD == 0 {
            let entry = &mut self.entries[prev as usize - 1];
            entry[1] = links(next, (entry[1] >> 32) as u32);
        } else {
            let at = (prev & !HEAD) as usize;
            let (level, slot) = (at / SLOTS, at % SLOTS);
            self.heads[level][slot] = next;
            if next == 0 {
                self.in_use[level] &= !(1 << slot);
            }
        }
    }

    /// Takes the first id out of a slot.
    #[inline]
    fn pop(&mut self, level: usize, slot: usize) -> Option<u32> {
        let id = self.heads[level][slot].checked_sub(1)?;
        self.unlink(id);
        Some(id)
    }

    #[inline]
    fn prev(&self, id: u32) -> u32 {
        (self.entries[id as usize][1] >> 32) as u32
    }
}
