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
//! (each at most seven times in its life).
//!
//! A slot holds notes, an id and a mark each, in chunks of four cache lines. The mark changes
//! whenever the timer of the id is armed or cancelled, and what the old note says is void from
//! then on: it is dropped when its turn comes. So arming and cancelling write the id's own
//! entry and, at most, the end of a list that is in use anyway, and which ids come next is
//! known before they are needed: with a million timers nothing waits for memory. With doubly
//! linked lists it did: their neighbours had to be fetched one after the other. When there are
//! twice as many notes as ids the void ones are swept out, so that the memory is bounded and
//! the cost is still O(1) over time.
//!
//! Entries take 16 bytes an id, and notes 8.3 to 16.6. The memory comes zeroed from
//! the system on first use, so ids that were never armed cost nothing.
//!
//! A timer never fires early, and at most one tick late.

use crate::prefetch_unsafe::{TableSpan, prefetch_index};
use baton_tcp::time::Instant;

/// Nanoseconds in a tick, as a shift.
const TICK_SHIFT: u32 = 20;
/// Bits of a tick's number that one level looks at.
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// Levels: 8 x 6 bits cover the 44 bits that a u64 of nanoseconds leaves.
const LEVELS: usize = 8;

/// The most timers that one call of [`Wheel::expire`] fires or moves down.
pub const EXPIRE_LIMIT: usize = 4096;

/// Entry of an id: its tick, then its mark, which is odd while the timer is armed.
type Entry = [u64; 2];

/// Notes in a chunk.
const NOTES: usize = 31;

/// Notes, and at the end the number of the chunk behind, or of the next free one;
/// plus 1, 0 for none.
type Chunk = [u64; NOTES + 1];

/// Notes looked at ahead of their turn.
const LOOK_AHEAD: usize = 16;

/// A slot: its first chunk's number plus 1, or 0, and how many notes are in that one.
/// All chunks behind it are full.
#[derive(Clone, Copy, Default)]
struct Head {
    chunk: u32,
    len: u32,
}

/// Timers of a dense range of ids. See the module's documentation.
pub struct Wheel {
    entries: Vec<Entry>,
    /// Space for all chunks is reserved, so that none ever moves.
    chunks: Vec<Chunk>,
    /// The first free chunk's number plus 1, or 0.
    free: u32,
    heads: [[Head; SLOTS]; LEVELS],
    /// Which slots of a level are in use, a bit each.
    in_use: [u64; LEVELS],
    /// Every slot of an earlier tick is empty.
    tick: u64,
    /// Level and slot that [`EXPIRE_LIMIT`] left half moved down: it comes first.
    halfway: Option<(usize, usize)>,
    armed: u32,
    /// Notes in all slots, void ones included.
    notes: usize,
}

/// The most notes for this many ids.
fn most_notes(ids: usize) -> usize {
    2 * ids + NOTES
}

impl Wheel {
    /// A wheel for ids below `ids`, at time `now`.
    ///
    /// # Panics
    /// If `ids` is 2^31 or more.
    pub fn new(ids: u32, now: Instant) -> Wheel {
        assert!(ids < 1 << 31, "chunks are counted in 32 bits");
        // A slot in use has one chunk that may not be full, and a sweep one of its own.
        let chunks = most_notes(ids as usize) / NOTES + LEVELS * SLOTS + 2;
        Wheel {
            entries: vec![[0; 2]; ids as usize],
            chunks: Vec::with_capacity(chunks),
            free: 0,
            heads: [[Head::default(); SLOTS]; LEVELS],
            in_use: [0; LEVELS],
            tick: now.0 >> TICK_SHIFT,
            halfway: None,
            armed: 0,
            notes: 0,
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
        self.entries[id as usize][1] & 1 == 1
    }

    /// Where the entries of all ids lie.
    pub fn table_span(&self) -> TableSpan {
        TableSpan::of::<Entry>(self.entries.as_ptr().addr(), self.entries.len())
    }

    /// Starts to fetch what arming the timer of `id` touches.
    #[inline]
    pub fn prefetch(&self, id: u32) {
        prefetch_index(&self.entries, id as usize);
    }

    /// Arms the timer of `id` to fire at `at`, in place of when it was to fire before. A time
    /// in the past fires at the next [`Wheel::expire`].
    ///
    /// # Panics
    /// If `id` is out of range.
    #[inline]
    pub fn arm(&mut self, id: u32, at: Instant) {
        let tick = (at.0 >> TICK_SHIFT) + u64::from(at.0 & ((1 << TICK_SHIFT) - 1) != 0);
        let tick = tick.max(self.tick);
        let [before, mark] = self.entries[id as usize];
        if mark & 1 == 0 {
            self.armed += 1;
        } else if before == tick {
            return;
        }
        // Odd again, and different: older notes become void.
        let mark = u64::from((mark as u32 | 1).wrapping_add(2));
        self.entries[id as usize] = [tick, mark];
        if self.notes >= most_notes(self.entries.len()) - 1 {
            self.sweep();
        }
        self.note(u64::from(id) | mark << 32, tick);
    }

    /// Disarms the timer of `id`, if it is armed.
    ///
    /// # Panics
    /// If `id` is out of range.
    #[inline]
    pub fn cancel(&mut self, id: u32) {
        if self.is_armed(id) {
            self.disarm(id);
        }
    }

    #[inline]
    fn disarm(&mut self, id: u32) {
        self.entries[id as usize][1] &= !1;
        self.armed -= 1;
    }

    /// A time before which nothing will fire, and at which [`Wheel::expire`] has
    /// something to do; `None` if no timer is armed.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        // Void notes alone need no wake-up.
        self.next_slot().filter(|_| self.armed > 0).map(|(_, _, tick)| Instant(tick.saturating_mul(1 << TICK_SHIFT)))
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
            while let Some(note) = self.pop(level, slot) {
                let (id, at) = (note as u32, self.entries[note as u32 as usize][0]);
                if !self.is_valid(note) {
                    // Armed anew or cancelled since.
                } else if at <= self.tick {
                    self.disarm(id);
                    out(id);
                } else {
                    self.note(note, at);
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
            && self.heads[level][slot].chunk != 0
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

    /// True if the timer is still armed as it was when this was noted.
    #[inline]
    fn is_valid(&self, note: u64) -> bool {
        self.entries[note as u32 as usize][1] == note >> 32
    }

    /// Puts a note into the slot of `tick`, which is not in the past.
    #[inline]
    fn note(&mut self, note: u64, tick: u64) {
        let differing = (self.tick ^ tick) | 1;
        let level = (63 - differing.leading_zeros()) / LEVEL_BITS;
        let slot = (tick >> (level * LEVEL_BITS)) as usize & (SLOTS - 1);
        self.push(level as usize, slot, note);
    }

    #[inline]
    fn push(&mut self, level: usize, slot: usize, note: u64) {
        let head = self.heads[level][slot];
        if head.chunk == 0 || head.len as usize == NOTES {
            self.heads[level][slot] = Head { chunk: self.take_chunk(head.chunk), len: 0 };
            self.in_use[level] |= 1 << slot;
        }
        let head = &mut self.heads[level][slot];
        self.chunks[head.chunk as usize - 1][head.len as usize] = note;
        head.len += 1;
        self.notes += 1;
    }

    /// Takes the last note out of a slot.
    #[inline]
    fn pop(&mut self, level: usize, slot: usize) -> Option<u64> {
        let head = &mut self.heads[level][slot];
        let chunk = &mut self.chunks[(head.chunk as usize).checked_sub(1)?];
        head.len -= 1;
        let at = head.len as usize;
        let note = chunk[at];
        if let Some(ahead) = at.checked_sub(LOOK_AHEAD) {
            prefetch_index(&self.entries, chunk[ahead] as u32 as usize);
        }
        if at == 0 {
            let behind = std::mem::replace(&mut chunk[NOTES], self.free.into()) as u32;
            self.free = head.chunk;
            *head = Head { chunk: behind, len: if behind == 0 { 0 } else { NOTES as u32 } };
            match (behind as usize).checked_sub(1) {
                Some(behind) => {
                    let chunk = &self.chunks[behind];
                    for note in &chunk[NOTES - LOOK_AHEAD..NOTES] {
                        prefetch_index(&self.entries, *note as u32 as usize);
                    }
                }
                None => self.in_use[level] &= !(1 << slot),
            }
        }
        self.notes -= 1;
        Some(note)
    }

    /// An empty chunk with `behind` behind it; its number plus 1.
    fn take_chunk(&mut self, behind: u32) -> u32 {
        let mut chunk = [0; NOTES + 1];
        chunk[NOTES] = u64::from(behind);
        if let Some(at) = self.free.checked_sub(1) {
            let free = std::mem::replace(&mut self.chunks[at as usize], chunk);
            self.free = free[NOTES] as u32;
            return at + 1;
        }
        assert!(self.chunks.len() < self.chunks.capacity(), "as many chunks as notes need were reserved");
        self.chunks.push(chunk);
        self.chunks.len() as u32
    }

    /// Drops every void note: as many as there are ids, at least, were added since
    /// the last time.
    #[cold]
    fn sweep(&mut self) {
        for level in 0..LEVELS {
            for slot in (0..SLOTS).filter(|slot| self.in_use[level] >> slot & 1 == 1).collect::<Vec<_>>() {
                // Valid notes go into chunks of their own.
                let mut valid = Head::default();
                while let Some(note) = self.pop(level, slot) {
                    if self.is_valid(note) {
                        let rest = std::mem::replace(&mut self.heads[level][slot], valid);
                        self.push(level, slot, note);
                        valid = std::mem::replace(&mut self.heads[level][slot], rest);
                    }
                }
                self.heads[level][slot] = valid;
                if valid.chunk != 0 {
                    self.in_use[level] |= 1 << slot;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn void_notes_are_swept_out_before_they_fill_the_memory() {
        const IDS: u32 = 100;
        let mut wheel = Wheel::new(IDS, Instant(0));
        let room = wheel.chunks.capacity();
        // Each id earlier and earlier: all notes but its last are void, in slots far ahead.
        for step in 0..10_000u32 {
            for id in 0..IDS {
                wheel.arm(id, Instant(u64::from(20_000 - step) << TICK_SHIFT));
                assert!(wheel.notes < most_notes(IDS as usize));
            }
        }
        assert_eq!((wheel.chunks.capacity(), wheel.armed()), (room, IDS));
        (0..IDS).step_by(2).for_each(|id| wheel.cancel(id));
        let mut fired = Vec::new();
        wheel.expire(Instant(10_000 << TICK_SHIFT), &mut |id| fired.push(id));
        assert!(fired.is_empty(), "one tick early");
        wheel.expire(Instant(10_001 << TICK_SHIFT), &mut |id| fired.push(id));
        fired.sort_unstable();
        assert_eq!(fired, (1..IDS).step_by(2).collect::<Vec<_>>());
        while wheel.expire(Instant(20_001 << TICK_SHIFT), &mut |_| panic!("what is void fires")) {}
        assert_eq!((wheel.notes, wheel.in_use), (0, [0; LEVELS]));
    }
}
