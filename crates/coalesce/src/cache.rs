//! The runs held at a time: found by connection, in the order in which they were
//! appended to.
//!
//! ```text
//!   heads[hash]  -> entry -> entry          chains by hash, singly linked
//!   oldest -> entry <-> entry <-> newest    by last append, doubly linked
//!   free   -> entry -> entry                linked through `newer`
//! ```
//!
//! All links are indices into one table, made once.

use crate::flow::Flow;
use crate::frame::Segment;
use crate::run::Run;

const NIL: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Entry {
    run: Run,
    next: u32,
    bucket: u32,
    newer: u32,
    older: u32,
}

/// The table. An entry's index is its run's slot.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    entries: Box<[Entry]>,
    heads: Box<[u32]>,
    /// Bits by which a hash is shifted right to become an index into `heads`.
    shift: u32,
    oldest: u32,
    newest: u32,
    free: u32,
}

impl Cache {
    /// For `capacity` runs, at least one.
    pub fn new(capacity: u32) -> Cache {
        let blank = Entry { run: Run::new(Segment::blank(), 0), next: NIL, bucket: 0, newer: NIL, older: NIL };
        let mut entries = vec![blank; capacity as usize].into_boxed_slice();
        for (at, entry) in (1..).zip(entries.iter_mut()) {
            entry.newer = if at < capacity { at } else { NIL };
        }
        // Twice as many chains as runs, so that most have at most one.
        let heads = (2 * capacity as usize).next_power_of_two();
        Cache {
            entries,
            heads: vec![NIL; heads].into_boxed_slice(),
            shift: 64 - heads.trailing_zeros(),
            oldest: NIL,
            newest: NIL,
            free: 0,
        }
    }

    /// The slot of a connection's run.
    #[inline]
    pub fn find(&self, flow: &Flow) -> Option<u32> {
        // Segments come in bursts: it is the last one's, more often than not.
        if let Some(entry) = self.entries.get(self.newest as usize)
            && entry.run.flow() == flow
        {
            return Some(self.newest);
        }
        let mut at = self.heads[self.bucket(flow) as usize];
        while let Some(entry) = self.entries.get(at as usize) {
            if entry.run.flow() == flow {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    /// The run in a slot in use.
    #[inline]
    pub fn run(&self, slot: u32) -> &Run {
        &self.entries[slot as usize].run
    }

    /// The same, to be appended to.
    #[inline]
    pub fn run_mut(&mut self, slot: u32) -> &mut Run {
        &mut self.entries[slot as usize].run
    }

    /// The slot of the run least recently appended to.
    #[inline]
    pub fn oldest(&self) -> Option<u32> {
        (self.oldest != NIL).then_some(self.oldest)
    }

    /// All runs with their slots, the one least recently appended to first.
    #[inline]
    pub fn runs(&self) -> impl Iterator<Item = (u32, &Run)> {
        let mut at = self.oldest;
        core::iter::from_fn(move || {
            let entry = self.entries.get(at as usize)?;
            Some((core::mem::replace(&mut at, entry.newer), &entry.run))
        })
    }

    /// True if there is no slot for another run.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.free == NIL
    }

    /// Notes that a run has been appended to.
    #[inline]
    pub fn touch(&mut self, slot: u32) {
        if slot != self.newest {
            self.unlink_order(slot);
            self.link_newest(slot);
        }
    }

    /// Takes in a run, whose connection has none; the cache must not be full.
    #[inline]
    pub fn insert(&mut self, run: Run) -> u32 {
        let (slot, bucket) = (self.free, self.bucket(run.flow()));
        let head = &mut self.heads[bucket as usize];
        let entry = &mut self.entries[slot as usize];
        self.free = entry.newer;
        (entry.run, entry.bucket, entry.next) = (run, bucket, *head);
        *head = slot;
        self.link_newest(slot);
        slot
    }

    /// Frees a slot in use.
    #[inline]
    pub fn remove(&mut self, slot: u32) {
        let Entry { bucket, next, .. } = self.entries[slot as usize];
        let mut at = self.heads[bucket as usize];
        if at == slot {
            self.heads[bucket as usize] = next;
        } else {
            while self.entries[at as usize].next != slot {
                at = self.entries[at as usize].next;
            }
            self.entries[at as usize].next = next;
        }
        self.unlink_order(slot);
        self.entries[slot as usize].newer = self.free;
        self.free = slot;
    }

    /// Frees all slots.
    #[inline]
    pub fn clear(&mut self) {
        let mut at = self.oldest;
        while let Some(entry) = self.entries.get(at as usize) {
            self.heads[entry.bucket as usize] = NIL;
            at = entry.newer;
        }
        // In their order, which is linked as the free ones are, they go before these.
        if let Some(entry) = self.entries.get_mut(self.newest as usize) {
            entry.newer = core::mem::replace(&mut self.free, self.oldest);
        }
        (self.oldest, self.newest) = (NIL, NIL);
    }

    #[inline]
    fn bucket(&self, flow: &Flow) -> u32 {
        (flow.hash() >> self.shift) as u32
    }

    #[inline]
    fn link_newest(&mut self, slot: u32) {
        let before = core::mem::replace(&mut self.newest, slot);
        let entry = &mut self.entries[slot as usize];
        (entry.older, entry.newer) = (before, NIL);
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.newer = slot,
            None => self.oldest = slot,
        }
    }

    #[inline]
    fn unlink_order(&mut self, slot: u32) {
        let Entry { older, newer, .. } = self.entries[slot as usize];
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }
}
