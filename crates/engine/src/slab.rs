//! Dense tables by index that never move what they hold.
//!
//! A `Vec` that doubles copies every context it holds: at a million connections a stall of a
//! tenth of a second. So address space is reserved for the most that there may be, and the
//! system provides memory as it is first used. One piece can be backed by large pages, and a
//! value's address follows from its index.

use crate::prefetch_unsafe::TableSpan;

/// Values that are filled in at a time.
const STEP: usize = 256;

/// Values by index, up to a limit.
#[derive(Debug)]
pub struct Slab<T> {
    values: Vec<T>,
}

impl<T: Default> Slab<T> {
    /// An empty table for up to `limit` values.
    pub fn new(limit: u32) -> Slab<T> {
        Slab { values: Vec::with_capacity((limit as usize).next_multiple_of(STEP)) }
    }

    /// Makes sure that `index` exists, filling in defaults.
    ///
    /// # Panics
    /// If `index` is not below the limit.
    pub fn grow_to(&mut self, index: u32) {
        let len = (index as usize + 1).next_multiple_of(STEP);
        if len > self.values.len() {
            assert!(len <= self.values.capacity(), "an index below the limit that the table was made with");
            self.values.resize_with(len, T::default);
        }
    }

    /// The value at `index`, if it exists.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.values.get(index as usize)
    }

    /// The value at `index`, if it exists.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.values.get_mut(index as usize)
    }

    /// Where the values lie, those that do not exist yet included.
    pub fn table_span(&self) -> TableSpan {
        TableSpan::of::<T>(self.values.as_ptr().addr(), self.values.capacity())
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.values[index as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.values[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_place_while_the_table_grows() {
        let mut table: Slab<u64> = Slab::new(100_000);
        assert!(table.get(0).is_none());
        let places = table.table_span();
        table.grow_to(0);
        table[7] = 42;
        let before = &raw const table[7];
        table.grow_to(99_999);
        assert_eq!(table[7], 42);
        assert_eq!(before, &raw const table[7]);
        assert!(table.get(99_999).is_some());
        assert_eq!(places.address(7), Some(before.addr()));
        assert_eq!(places.address(99_999), Some((&raw const table[99_999]).addr()));
        assert_eq!(places.address(1 << 20), None);
    }

    #[test]
    #[should_panic(expected = "below the limit")]
    fn a_table_holds_no_more_than_it_was_made_for() {
        Slab::<u8>::new(1000).grow_to(5000);
    }
}
