//! Raw memory of a side: the only code that turns its address into words and bytes.
//!
//! This module upholds:
//! * A [`Side`] is `geometry.total` bytes at `base`, 128-byte aligned, zeroed or shared on purpose, valid
//!   until `owner` is dropped, and only ever accessed as atomics (everything before the areas) or by raw
//!   copies (the areas). No `&[u8]` to it exists, since another process may write it at any time.
//! * Every offset used here is within `geometry.total`: slots and words of bits are asserted, ranges of
//!   an area are asserted to lie within it.
//! * A side may be mapped read-only where it is the other program's: a [`Link`](crate::Link) only reads
//!   that one.
//!
//! The bytes of an area may change while they are copied out, if its owner breaks the rules: the reader
//! then gets garbage of the owner's making. No decision depends on bytes read there. A follower's copies
//! may meet writes of an owner that keeps to the rules; they are atomic loads, and `follower` finds out.

use crate::layout::{Geometry, LINES, Layout, LayoutError};
use crate::words::{AtomicU64, Block, Header, SLEEPS_OFFSET};
use core::any::Any;
use core::ops::Range;
use core::ptr::{NonNull, copy_nonoverlapping};
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;
use std::alloc::{Layout as HeapLayout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::sync::Arc;

/// Memory that one of two programs writes and the other reads; see [`words`](crate::words).
pub struct Side {
    base: NonNull<u8>,
    geometry: Geometry,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the memory is shared between processes by design; all access to it is by atomics or raw
// copies, and `owner` is Send and Sync itself.
unsafe impl Send for Side {}
// SAFETY: as above.
unsafe impl Sync for Side {}

/// Heap memory that stays untouched until used.
struct Heap {
    start: NonNull<u8>,
    layout: HeapLayout,
}

// SAFETY: a `Heap` only frees its allocation, which any thread may do.
unsafe impl Send for Heap {}
// SAFETY: it has no method that takes `&self`.
unsafe impl Sync for Heap {}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this layout and is freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl Side {
    /// A new side on the heap, for two ends in this process.
    pub fn heap(layout: Layout) -> Arc<Side> {
        // Aligned by hand: an over-aligned zeroed allocation is cleared by writing, which would touch
        // every page.
        let bytes = layout.bytes() + LINES;
        let heap_layout = HeapLayout::from_size_align(bytes, 16).expect("a layout's size is below isize::MAX");
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc_zeroed(heap_layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(heap_layout) };
        let offset = start.align_offset(LINES);
        let owner = Box::new(Heap { start, layout: heap_layout });
        // SAFETY: the offset is below LINES, which was added to the size; the heap memory lives in `owner`.
        unsafe { Side::from_raw_parts(start.add(offset), layout.bytes(), layout, owner) }
            .expect("the memory was made for this layout")
    }

    /// A new side in memory made elsewhere (a memfd's mapping), all zero. Writes its header.
    ///
    /// # Safety
    /// `base` is valid for reads and writes of `len` bytes for as long as `owner` lives, and this
    /// process accesses it only through sides and raw pointers.
    ///
    /// # Errors
    /// [`LayoutError::Memory`] if it does not fit.
    pub unsafe fn from_raw_parts(
        base: NonNull<u8>,
        len: usize,
        layout: Layout,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<Side>, LayoutError> {
        let side = Side::over(base, len, layout, owner)?;
        // SAFETY: every side begins with a header.
        unsafe { side.words::<Header>(0) }.write(layout);
        Ok(Arc::new(side))
    }

    /// A side that somebody else made, by what its header says: either this program's own, or the other
    /// program's. The sizes are read once and checked against `len`; the header is not looked at again.
    ///
    /// # Safety
    /// As for [`Side::from_raw_parts`]; reads are enough if every [`Link`](crate::Link) over it takes it
    /// as the other program's.
    ///
    /// # Errors
    /// [`LayoutError`] if there is no side there, or it does not fit.
    pub unsafe fn open_raw_parts(
        base: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<Side>, LayoutError> {
        if len < size_of::<Header>() || !base.addr().get().is_multiple_of(LINES) {
            return Err(LayoutError::Memory);
        }
        // SAFETY: aligned, long enough by the check above, and all atomics.
        let layout = unsafe { base.cast::<Header>().as_ref() }.read()?;
        Ok(Arc::new(Side::over(base, len, layout, owner)?))
    }

    fn over(
        base: NonNull<u8>,
        len: usize,
        layout: Layout,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Side, LayoutError> {
        let geometry = layout.geometry().ok_or(LayoutError::Memory)?;
        if len < geometry.total || !base.addr().get().is_multiple_of(LINES) {
            return Err(LayoutError::Memory);
        }
        Ok(Side { base, geometry, _owner: owner })
    }

    /// The sizes that the side was made with.
    pub fn layout(&self) -> Layout {
        self.geometry.layout
    }

    /// A word or struct of words at byte `offset`.
    ///
    /// # Safety
    /// `offset` is aligned for `T`, `T` lies within the memory before the areas, and is made of atomics
    /// alone.
    #[inline]
    unsafe fn words<T>(&self, offset: usize) -> &T {
        // SAFETY: in bounds and aligned by the caller's promise; atomics may be written by others while
        // shared references to them exist.
        unsafe { self.base.add(offset).cast::<T>().as_ref() }
    }

    #[inline]
    pub(crate) fn sleeps(&self) -> &AtomicU64 {
        // SAFETY: the second pair of lines of every side.
        unsafe { self.words(SLEEPS_OFFSET) }
    }

    #[inline]
    pub(crate) fn news(&self, word: u32) -> &AtomicU64 {
        self.bits(self.geometry.news, word)
    }

    #[inline]
    pub(crate) fn seen(&self, word: u32) -> &AtomicU64 {
        self.bits(self.geometry.seen, word)
    }

    #[inline]
    fn bits(&self, part: usize, word: u32) -> &AtomicU64 {
        assert!(word < self.geometry.layout.bit_words());
        // SAFETY: asserted to be one of the part's words.
        unsafe { self.words(part + word as usize * size_of::<AtomicU64>()) }
    }

    #[inline]
    pub(crate) fn block(&self, slot: u32) -> &Block {
        assert!(slot < self.geometry.layout.slots());
        // SAFETY: asserted to be one of the array's.
        unsafe { self.words(self.geometry.blocks + slot as usize * size_of::<Block>()) }
    }

    /// Where a slot's area lies in the side's memory. Its owner may give the memory back to the system
    /// between two pairs, and within one where [`End::unused_memory`](crate::End::unused_memory) says so.
    ///
    /// # Panics
    /// If the side has no such slot.
    pub fn area_of(&self, slot: u32) -> Range<usize> {
        let layout = self.geometry.layout;
        assert!(slot < layout.slots(), "there is no slot {slot}");
        let start = self.geometry.areas + slot as usize * layout.area_bytes() as usize;
        start..start + layout.area_bytes() as usize
    }

    /// Address of `len` bytes from `offset` on of a slot's area.
    #[inline]
    fn area(&self, slot: u32, offset: u32, len: usize) -> *mut u8 {
        let layout = self.geometry.layout;
        assert!(offset as usize + len <= layout.area_bytes() as usize);
        let start = self.area_of(slot).start + offset as usize;
        // SAFETY: asserted to lie within the area, which lies within the side.
        unsafe { self.base.as_ptr().add(start) }
    }

    /// Copies `bytes` into a slot's area, which they fit.
    #[inline]
    pub(crate) fn copy_in(&self, slot: u32, offset: u32, bytes: &[u8]) {
        let to = self.area(slot, offset, bytes.len());
        // SAFETY: `to` has room for them; a slice never overlaps it, since none is made of it.
        unsafe { copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Fills `bytes` from a slot's area, which has so many.
    #[inline]
    pub(crate) fn copy_out(&self, slot: u32, offset: u32, bytes: &mut [u8]) {
        let from = self.area(slot, offset, bytes.len());
        // SAFETY: as in `copy_in`.
        unsafe { copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Fills `bytes` from a slot's area, which has so many, while its owner may write any of them.
    pub(crate) fn copy_along(&self, slot: u32, offset: u32, bytes: &mut [u8]) {
        let from = self.area(slot, offset, bytes.len());
        // Loads of whole words need an address that the memory, not `bytes`, determines.
        let ahead = from.align_offset(size_of::<u64>()).min(bytes.len());
        let (first, rest) = bytes.split_at_mut(ahead);
        let (words, last) = rest.as_chunks_mut::<{ size_of::<u64>() }>();
        let single = |at: usize| {
            // SAFETY: one of the bytes at `from`, which were asserted to lie within the area.
            unsafe { AtomicU8::from_ptr(from.add(at)) }.load(Relaxed)
        };
        first.iter_mut().enumerate().for_each(|(at, byte)| *byte = single(at));
        for (at, word) in words.iter_mut().enumerate() {
            // SAFETY: as above, for eight bytes from an aligned address on.
            let value = unsafe { AtomicU64::from_ptr(from.add(ahead + at * size_of::<u64>()).cast()) };
            *word = value.load(Relaxed).to_ne_bytes();
        }
        let behind = ahead + words.len() * size_of::<u64>();
        last.iter_mut().enumerate().for_each(|(at, byte)| *byte = single(behind + at));
    }
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Side").field("layout", &self.geometry.layout).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new(3, 4096).unwrap()
    }

    /// A second side over the first `len` bytes, as another process would open it.
    fn open(side: &Arc<Side>, len: usize) -> Result<Arc<Side>, LayoutError> {
        // SAFETY: the memory lives as long as the side, which is the owner.
        unsafe { Side::open_raw_parts(side.base, len, Box::new(side.clone())) }
    }

    fn header(side: &Side, word: usize) -> &AtomicU64 {
        assert!(word < size_of::<Header>() / 8);
        // SAFETY: the header is atomics of at most this size.
        unsafe { side.words(word * 8) }
    }

    #[test]
    fn a_side_is_opened_by_what_its_header_says() {
        use core::sync::atomic::Ordering::Relaxed;
        let side = Side::heap(layout());
        let whole = layout().bytes();
        assert_eq!(open(&side, whole).map(|side| side.layout()), Ok(layout()));
        for len in [0, 8, whole - 1] {
            assert_eq!(open(&side, len).map(|side| side.layout()), Err(LayoutError::Memory));
        }
        // SAFETY: never read, for it is refused.
        let crooked = unsafe { Side::open_raw_parts(side.base.add(8), whole - 8, Box::new(())) };
        assert_eq!(crooked.map(|side| side.layout()), Err(LayoutError::Memory));
        for (word, value, error) in [
            (2, 8192, LayoutError::Memory),
            (2, 4097, LayoutError::Area(4097)),
            (1, 2 | 3 << 32, LayoutError::Header),
            (1, 1, LayoutError::Slots(0)),
            (1, 1 | 4 << 32, LayoutError::Memory),
            (0, 0, LayoutError::Header),
        ] {
            let before = header(&side, word).swap(value, Relaxed);
            assert_eq!(open(&side, whole).map(|side| side.layout()), Err(error), "{word} {value}");
            header(&side, word).store(before, Relaxed);
        }
        assert!(open(&side, whole).is_ok());
    }

    #[test]
    fn each_slot_has_an_area_of_its_own() {
        let side = Side::heap(layout());
        for slot in 0..3 {
            side.copy_in(slot, 0, &[slot as u8 + 1; 4096]);
        }
        for slot in 0..3 {
            let mut bytes = [0; 4096];
            side.copy_out(slot, 0, &mut bytes);
            assert_eq!(bytes, [slot as u8 + 1; 4096]);
            side.copy_along(slot, 0, &mut bytes);
            assert_eq!(bytes, [slot as u8 + 1; 4096]);
            let range = side.area_of(slot);
            assert!(range.start.is_multiple_of(4096) && range.end <= layout().bytes());
        }
        let ramp: Vec<u8> = (0..64).collect();
        side.copy_in(1, 100, &ramp);
        for (start, len) in [(0, 64), (1, 3), (3, 30), (4, 8), (7, 0), (5, 59)] {
            let mut bytes = vec![0; len];
            side.copy_along(1, 100 + start as u32, &mut bytes);
            assert_eq!(bytes, ramp[start..start + len]);
        }
        assert_eq!(side.block(2).out.head.load(core::sync::atomic::Ordering::Relaxed), 0);
    }
}
