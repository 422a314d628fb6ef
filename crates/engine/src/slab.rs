//! Dense tables by index that grow without moving what they hold.
//!
//! A `Vec` that doubles copies every context it holds: at a million connections
//! a stall of a tenth of a second. Chunks of 256 never move.

const CHUNK_BITS: u32 = 8;
const CHUNK: usize = 1 << CHUNK_BITS;

/// Values by index, allocated a chunk of 256 at a time.
#[derive(Debug)]
pub struct Chunked<T> {
    chunks: Vec<Box<[T]>>,
}

impl<T: Default> Chunked<T> {
    /// An empty table.
    pub const fn new() -> Chunked<T> {
        Chunked { chunks: Vec::new() }
    }

    /// Makes sure that `index` exists, filling its chunk with defaults.
    pub fn grow_to(&mut self, index: u32) {
        while self.len() <= index as usize {
            self.chunks.push((0..CHUNK).map(|_| T::default()).collect());
        }
    }

    /// Number of values, a multiple of the chunk size.
    pub fn len(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// True if nothing was allocated yet.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The value at `index`, if it exists.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.chunks.get((index >> CHUNK_BITS) as usize).map(|chunk| &chunk[index as usize & (CHUNK - 1)])
    }

    /// The value at `index`, if it exists.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.chunks.get_mut((index >> CHUNK_BITS) as usize).map(|chunk| &mut chunk[index as usize & (CHUNK - 1)])
    }
}

impl<T: Default> Default for Chunked<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default> std::ops::Index<u32> for Chunked<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.chunks[(index >> CHUNK_BITS) as usize][index as usize & (CHUNK - 1)]
    }
}

impl<T: Default> std::ops::IndexMut<u32> for Chunked<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.chunks[(index >> CHUNK_BITS) as usize][index as usize & (CHUNK - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_place_while_the_table_grows() {
        let mut table: Chunked<u64> = Chunked::new();
        assert!(table.get(0).is_none());
        table.grow_to(0);
        table[7] = 42;
        let before = &raw const table[7];
        table.grow_to(100_000);
        assert_eq!(table[7], 42);
        assert_eq!(before, &raw const table[7]);
        assert!(table.get(99_999).is_some());
    }
}
