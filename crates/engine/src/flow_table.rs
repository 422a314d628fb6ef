//! From a connection's tuple to its index: one cache line in the usual case.
//!
//! A bucket is one cache line with five entries. An entry is a 32-bit tag of the hash, a
//! connection index, and a note: a word of the caller's, with which it can prefetch more than
//! the context. The tuple itself stays in the connection's context, where the caller compares
//! it. An entry whose home bucket is full goes to the first bucket behind it with room, and
//! each full bucket that it passes counts it in `passed`; a search ends at the first bucket
//! that no entry passed, or after one round. So removal leaves no tombstones, and a miss costs
//! one line as well.
//!
//! ```text
//!   bucket   | tag x 5 | passed | index + 1 (0: empty) x 5 | note x 5 |   64 bytes
//!   hash     | high half: home bucket | low half: tag |
//! ```
//!
//! Buckets are allocated for the most connections that there may be, 3.75 a
//! bucket (three quarters full), so 17.1 bytes a connection; the memory comes
//! zeroed from the system as buckets are first used, so that an engine with few
//! connections does not pay for many, and growing never stalls.

use crate::prefetch_unsafe::{TableSpan, prefetch_index};
use baton_wire::addr::Tuple;

/// Entries in a bucket.
const ENTRIES: usize = 5;
/// Where `passed` is in a bucket.
const PASSED: usize = ENTRIES;
/// Where the indices start in a bucket.
const INDICES: usize = PASSED + 1;
/// Where the notes start in a bucket.
const NOTES: usize = INDICES + ENTRIES;

/// A bucket: see the module's picture.
type Bucket = [u32; 16];

/// The table is as full as it was made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the flow table holds as many connections as it was made for")]
pub struct Full;

/// Map from tuples to connection indices. See the module's documentation.
pub struct FlowTable {
    /// One bucket more than are used, so that they can start at a line.
    memory: Vec<[u32; 4]>,
    /// Quarter lines to skip in `memory`.
    skew: usize,
    buckets: u32,
    entries: u32,
    limit: u32,
    key: HashKey,
}

/// Key of the tuple hash, spread from two random words.
///
/// The hash multiplies 64-bit halves to 128 bits and folds them, as wyhash and
/// rapidhash do, with each input first combined with a secret. Somebody who does
/// not know the key cannot choose tuples that collide, as long as hashes (and
/// what depends on them: order, timing) stay unseen. It is no pseudorandom
/// function in the sense of cryptography: do not show its values to anyone, and
/// do not use it for SYN cookies or sequence numbers.
#[derive(Clone, Copy)]
pub struct HashKey([u64; 6]);

/// The product's halves, exclusive-ored.
#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

impl HashKey {
    /// A key from 128 random bits.
    pub const fn new(random: [u64; 2]) -> HashKey {
        // splitmix64 over each word, so that no secret is weak but by chance.
        let mut secrets = [0; 6];
        let mut at = 0;
        while at < 6 {
            let z = random[at % 2].wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(at as u64 + 1));
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            secrets[at] = z ^ (z >> 31);
            at += 1;
        }
        HashKey(secrets)
    }

    /// The hash of a tuple.
    #[inline]
    pub const fn hash(&self, tuple: &Tuple) -> u64 {
        let [k0, k1, k2, k3, k4, k5] = self.0;
        let (local, remote) = (tuple.local.0, tuple.remote.0);
        let ports = (tuple.local_port as u64) << 16 | tuple.remote_port as u64;
        // The two products do not wait for each other.
        let low = fold(local as u64 ^ k0, remote as u64 ^ k1);
        let high = fold((local >> 64) as u64 ^ k2, (remote >> 64) as u64 ^ k3);
        fold(low ^ ports ^ k4, high ^ ports.rotate_left(32) ^ k5)
    }
}

impl FlowTable {
    /// A table for up to `max_conns` connections, its hash keyed by `key`, which
    /// is 128 random bits.
    pub fn new(max_conns: u32, key: [u64; 2]) -> FlowTable {
        let buckets = (u64::from(max_conns) * 4).div_ceil(ENTRIES as u64 * 3).max(1) as u32;
        let memory = vec![[0; 4]; (buckets as usize + 1) * 4];
        let skew = (memory.as_ptr() as usize).wrapping_neg() % 64 / 16;
        FlowTable { memory, skew, buckets, entries: 0, limit: max_conns, key: HashKey::new(key) }
    }

    /// Where the buckets lie.
    pub fn table_span(&self) -> TableSpan {
        TableSpan::of::<[u32; 4]>(self.memory.as_ptr().addr(), self.memory.len())
    }

    /// Connections in the table.
    pub fn len(&self) -> u32 {
        self.entries
    }

    /// True if there are no connections.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The hash that the other calls take.
    #[inline]
    pub fn hash(&self, tuple: &Tuple) -> u64 {
        self.key.hash(tuple)
    }

    #[inline]
    fn home(&self, hash: u64) -> u32 {
        (((hash >> 32) * u64::from(self.buckets)) >> 32) as u32
    }

    #[inline]
    fn following(&self, bucket: u32) -> u32 {
        if bucket + 1 == self.buckets { 0 } else { bucket + 1 }
    }

    /// The next bucket for a search for `hash` that found nothing in this one, if it goes on.
    #[inline]
    fn onward(&self, hash: u64, bucket: u32) -> Option<u32> {
        if self.bucket(bucket)[PASSED] == 0 {
            return None;
        }
        // In a small table every bucket may have overflowed into the next.
        Some(self.following(bucket)).filter(|next| *next != self.home(hash))
    }

    #[inline]
    fn bucket(&self, bucket: u32) -> &Bucket {
        let at = self.skew + bucket as usize * 4;
        self.memory[at..at + 4].as_flattened().try_into().expect("four quarters make a bucket")
    }

    #[inline]
    fn bucket_mut(&mut self, bucket: u32) -> &mut Bucket {
        let at = self.skew + bucket as usize * 4;
        self.memory[at..at + 4].as_flattened_mut().try_into().expect("four quarters make a bucket")
    }

    /// Starts to fetch the line where `hash` would be found.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch_index(&self.memory, self.skew + self.home(hash) as usize * 4);
    }

    /// The first connection whose tag is that of `hash`, and its note. Nearly always
    /// it is the one that [`FlowTable::lookup`] finds; good for fetching ahead.
    #[inline]
    pub fn likely(&self, hash: u64) -> Option<(u32, u32)> {
        let mut at = self.home(hash);
        loop {
            let bucket = self.bucket(at);
            let hits = matching(bucket, hash as u32);
            if hits != 0 {
                let entry = hits.trailing_zeros() as usize;
                return Some((bucket[INDICES + entry].checked_sub(1)?, bucket[NOTES + entry]));
            }
            at = self.onward(hash, at)?;
        }
    }

    /// Sets the note of a connection that was added with this hash.
    pub fn note(&mut self, hash: u64, index: u32, note: u32) {
        if let Some((bucket, entry)) = self.locate(hash, index) {
            self.bucket_mut(bucket)[NOTES + entry] = note;
        }
    }

    /// The bucket and entry of a connection that was added with this hash.
    fn locate(&self, hash: u64, index: u32) -> Option<(u32, usize)> {
        let mut at = self.home(hash);
        loop {
            let bucket = self.bucket(at);
            let found = (0..ENTRIES)
                .find(|&entry| bucket[entry] == hash as u32 && bucket[INDICES + entry].checked_sub(1) == Some(index));
            match found {
                Some(entry) => return Some((at, entry)),
                None => at = self.onward(hash, at)?,
            }
        }
    }

    /// The connection with this hash for which `equal` says that its tuple is the
    /// one looked for.
    #[inline]
    pub fn lookup(&self, hash: u64, mut equal: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = hash as u32;
        let mut at = self.home(hash);
        loop {
            let bucket = self.bucket(at);
            let mut hits = matching(bucket, tag);
            while hits != 0 {
                let entry = hits.trailing_zeros() as usize;
                // An empty entry has tag 0 as well; its index tells.
                if let Some(index) = bucket[INDICES + entry].checked_sub(1)
                    && equal(index)
                {
                    return Some(index);
                }
                hits &= hits - 1;
            }
            at = self.onward(hash, at)?;
        }
    }

    /// Adds a connection whose tuple is not in the table.
    ///
    /// # Errors
    /// [`Full`] if there are as many as the table was made for.
    ///
    /// # Panics
    /// If `index` is `u32::MAX`.
    pub fn insert(&mut self, hash: u64, index: u32) -> Result<(), Full> {
        assert!(index != u32::MAX, "an index plus one has to fit");
        if self.entries == self.limit {
            return Err(Full);
        }
        let mut at = self.home(hash);
        // Ends: a quarter of all entries is free.
        loop {
            let bucket = self.bucket_mut(at);
            if let Some(entry) = (0..ENTRIES).find(|&entry| bucket[INDICES + entry] == 0) {
                bucket[entry] = hash as u32;
                bucket[INDICES + entry] = index + 1;
                self.entries += 1;
                return Ok(());
            }
            bucket[PASSED] += 1;
            at = self.following(at);
        }
    }

    /// Takes a connection out that was added with this hash; false if it is not
    /// in the table.
    pub fn remove(&mut self, hash: u64, index: u32) -> bool {
        let Some((at, entry)) = self.locate(hash, index) else { return false };
        let bucket = self.bucket_mut(at);
        for word in [entry, INDICES + entry, NOTES + entry] {
            bucket[word] = 0;
        }
        self.entries -= 1;
        let mut passed = self.home(hash);
        while passed != at {
            self.bucket_mut(passed)[PASSED] -= 1;
            passed = self.following(passed);
        }
        true
    }
}

/// Which of a bucket's entries have this tag, a bit each.
#[inline(always)]
fn matching(bucket: &Bucket, tag: u32) -> u32 {
    // Eight at a time, so that it becomes two vector compares; the last three are
    // no tags and are masked off.
    let mut bits = 0;
    for (entry, &word) in bucket[..8].iter().enumerate() {
        bits |= u32::from(word == tag) << entry;
    }
    bits & ((1 << ENTRIES) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_leaves_no_trace() {
        let mut table = FlowTable::new(100, [1, 2]);
        for index in 0..100 {
            // Four home buckets for a hundred entries.
            table.insert(u64::from(index % 4) << 60 | u64::from(index), index).unwrap();
        }
        assert!(table.memory.iter().flatten().any(|&word| word != 0));
        for index in (0..100).rev() {
            assert!(table.remove(u64::from(index % 4) << 60 | u64::from(index), index));
        }
        assert!(table.memory.iter().flatten().all(|&word| word == 0), "a count of entries that passed is left");
    }

    #[test]
    fn a_search_ends_where_every_bucket_was_passed() {
        let mut table = FlowTable::new(7, [1, 2]);
        assert_eq!(table.buckets, 2);
        let hash = |home: u64, tag: u64| home << 63 | tag;
        // The sixth goes past the first bucket.
        (1..=6).for_each(|tag| table.insert(hash(0, tag), tag as u32).unwrap());
        assert!((1..=4).all(|tag| table.remove(hash(0, tag), tag as u32)));
        // And the last past the second, to the first.
        (11..=15).for_each(|tag| table.insert(hash(1, tag), tag as u32).unwrap());
        assert!((0..2).all(|bucket| table.bucket(bucket)[PASSED] == 1));
        for home in [0, 1] {
            assert_eq!(table.lookup(hash(home, 99), |_| true), None);
            assert_eq!(table.likely(hash(home, 99)), None);
            assert!(!table.remove(hash(home, 99), 99));
        }
        assert_eq!(table.lookup(hash(1, 15), |_| true), Some(15));
    }

    #[test]
    fn a_note_stays_with_its_connection_and_goes_with_it() {
        let mut table = FlowTable::new(100, [1, 2]);
        // Three buckets' worth with one home.
        for index in 0..15 {
            table.insert(u64::from(index), index).unwrap();
            assert_eq!(table.likely(index.into()), Some((index, 0)));
            table.note(index.into(), index, 1000 + index);
        }
        table.note(7, 8, 1);
        for index in 0..15 {
            assert_eq!(table.likely(index.into()), Some((index, 1000 + index)));
        }
        assert!(table.remove(7, 7));
        assert_eq!(table.likely(7), None);
        table.insert(7, 77).unwrap();
        assert_eq!(table.likely(7), Some((77, 0)), "the note of the one before");
    }

    #[test]
    fn buckets_start_at_cache_lines() {
        for conns in [1, 1000, 100_000] {
            let table = FlowTable::new(conns, [1, 2]);
            assert_eq!(table.bucket(0).as_ptr() as usize % 64, 0);
            assert!(table.buckets as usize * ENTRIES * 3 >= conns as usize * 4);
        }
    }
}
