//! Raw memory of a [`Watch`]: the only code that turns its address into one.
//!
//! This module upholds: a [`WatchMemory`] is one `Watch` at `base`, aligned as it has to be, valid for
//! reads until `owner` is dropped, and only ever accessed as atomics. A reader's memory may be mapped
//! read-only: its maker calls nothing that writes.

use crate::Watch;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// The memory of what is watched, on the heap or shared with other processes.
pub struct WatchMemory {
    base: NonNull<Watch>,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the memory is shared between processes by design; all access to it is atomic, and the owner is
// Send and Sync itself.
unsafe impl Send for WatchMemory {}
// SAFETY: as above.
unsafe impl Sync for WatchMemory {}

struct Heap(NonNull<Watch>);

// SAFETY: a `Heap` only frees its allocation, which any thread may do.
unsafe impl Send for Heap {}
// SAFETY: it has no method that takes `&self`.
unsafe impl Sync for Heap {}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout and freed once; a `Watch` needs no drop.
        unsafe { dealloc(self.0.as_ptr().cast(), Layout::new::<Watch>()) }
    }
}

impl WatchMemory {
    /// Bytes that it takes.
    pub const BYTES: usize = size_of::<Watch>();

    /// Memory in this process alone. Its pages exist once they are touched.
    pub fn heap() -> Arc<WatchMemory> {
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc_zeroed(Layout::new::<Watch>()) };
        let Some(base) = NonNull::new(start.cast::<Watch>()) else { handle_alloc_error(Layout::new::<Watch>()) };
        let memory = WatchMemory { base, _owner: Box::new(Heap(base)) };
        memory.initialise();
        Arc::new(memory)
    }

    /// Memory made elsewhere (a memfd's mapping): all zero, or what a [`Watch`] left there. `None` if it is
    /// too short, or not aligned to a cache line.
    ///
    /// # Safety
    /// `base` is valid for reads of `len` bytes for as long as `owner` lives, and for writes unless nothing
    /// that writes is called; it is accessed only through [`Watch`].
    pub unsafe fn from_raw_parts(
        base: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Option<Arc<WatchMemory>> {
        let fits = len >= Self::BYTES && (base.as_ptr() as usize).is_multiple_of(align_of::<Watch>());
        fits.then(|| Arc::new(WatchMemory { base: base.cast(), _owner: owner }))
    }
}

impl fmt::Debug for WatchMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchMemory").finish_non_exhaustive()
    }
}

impl Deref for WatchMemory {
    type Target = Watch;
    #[inline]
    fn deref(&self) -> &Watch {
        // SAFETY: a `Watch` of atomics lies at `base` while `self` lives.
        unsafe { self.base.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layer, Recorded};

    #[test]
    fn what_is_watched_is_found_in_memory_made_elsewhere() {
        let memory = WatchMemory::heap();
        assert!(memory.is_valid());
        let ends = ("10.0.0.1:1".parse().unwrap(), "[fd00::2]:65535".parse().unwrap());
        memory.give(3, 7, ends.0, ends.1, Recorded::Wholly);
        let slot = memory.slot(3).unwrap();
        memory.record(slot, Layer::Place, 100);
        let base = memory.base.cast::<u8>();
        // SAFETY: the memory lives as long as its owner, which is the other handle.
        let again = unsafe { WatchMemory::from_raw_parts(base, WatchMemory::BYTES, Box::new(memory.clone())) }.unwrap();
        let slot = again.slot(3).unwrap();
        assert!(again.is_valid());
        assert_eq!((slot.queue_pair(), slot.ends(), slot.given()), (Some(7), ends, 1));
        assert_eq!((slot.table().layer(Layer::Place).sum, again.all().layer(Layer::Place).sum), (100, 100));
        memory.take_back(3);
        assert_eq!((slot.queue_pair(), slot.ends()), (None, ends));
        memory.give(3, 8, ends.1, ends.0, Recorded::Together);
        memory.record(slot, Layer::Place, 11);
        assert_eq!((slot.table().layer(Layer::Place).sum, again.all().layer(Layer::Place).sum), (0, 111));
        assert!(!slot.is_alone());
        memory.set_one_in(5);
        memory.record(slot, Layer::Place, 7);
        assert_eq!((again.one_in(), again.all().layer(Layer::Place).sum), (5, 146));
        memory.set_recorded(3, Recorded::Wholly);
        memory.record(slot, Layer::Place, 7);
        assert_eq!((slot.table().layer(Layer::Place).count, again.all().layer(Layer::Place).sum), (1, 153));
        memory.set_recorded(3, Recorded::Sampled);
        memory.record(slot, Layer::Place, 7);
        assert_eq!((slot.table().layer(Layer::Place).count, again.all().layer(Layer::Place).sum), (6, 188));
        // SAFETY: never read, for it is refused.
        assert!(unsafe { WatchMemory::from_raw_parts(base, WatchMemory::BYTES - 1, Box::new(())) }.is_none());
        // SAFETY: as above.
        assert!(unsafe { WatchMemory::from_raw_parts(base.add(8), WatchMemory::BYTES, Box::new(())) }.is_none());
    }
}
