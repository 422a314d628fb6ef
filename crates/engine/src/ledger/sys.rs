//! Raw memory of a ledger: the only code that turns its address into records.
//!
//! This module upholds: a [`Ledger`] is `count` records at `base`, aligned as a
//! record is, zeroed or written by ledgers only, valid for reads and writes until
//! `owner` is dropped, and only ever accessed as atomics.

use super::record::Record;
use core::any::Any;
use core::ptr::NonNull;
use std::sync::Arc;

/// Records of connections, by their index in the engine; see [`crate::ledger`].
pub struct Ledger {
    base: NonNull<Record>,
    count: usize,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the memory is shared between processes by design; all access to it is
// atomic, and the owner is Send and Sync itself.
unsafe impl Send for Ledger {}
// SAFETY: as above.
unsafe impl Sync for Ledger {}

impl Ledger {
    /// Bytes that `connections` records take.
    pub const fn bytes(connections: u32) -> usize {
        connections as usize * size_of::<Record>()
    }

    /// A ledger in this process alone.
    pub fn heap(connections: u32) -> Arc<Ledger> {
        let records: Box<[Record]> = (0..connections).map(|_| Record::default()).collect();
        let base = NonNull::from(&records[..]).cast();
        Arc::new(Ledger { base, count: connections as usize, _owner: Box::new(records) })
    }

    /// A ledger in memory made elsewhere (a memfd's mapping): all zero, or what a
    /// ledger left there. `None` if it is not aligned to a cache line.
    ///
    /// # Safety
    /// `base` is valid for reads and writes of `len` bytes for as long as `owner`
    /// lives, and is accessed only through ledgers.
    pub unsafe fn from_raw_parts(
        base: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Option<Arc<Ledger>> {
        let aligned = (base.as_ptr() as usize).is_multiple_of(align_of::<Record>());
        let count = len / size_of::<Record>();
        aligned.then(|| Arc::new(Ledger { base: base.cast(), count, _owner: owner }))
    }

    /// All records.
    pub(super) fn records(&self) -> &[Record] {
        // SAFETY: `count` records of atomics lie at `base` while `self` lives.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_made_elsewhere_is_read_again() {
        let len = Ledger::bytes(3);
        let memory: Box<[Record]> = (0..3).map(|_| Record::default()).collect();
        let base = NonNull::from(&memory[..]).cast::<u8>();
        // SAFETY: the records live as long as the ledger, their owner.
        let ledger = unsafe { Ledger::from_raw_parts(base, len, Box::new(memory)) }.expect("aligned");
        assert_eq!(ledger.len(), 3);
        ledger.records()[2].close();
        // SAFETY: never read, for it is refused.
        let skewed = unsafe { Ledger::from_raw_parts(base.add(8), len - 8, Box::new(())) };
        assert!(skewed.is_none());
    }
}
