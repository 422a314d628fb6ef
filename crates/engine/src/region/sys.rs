//! Raw memory of a region: the only code that turns its address into words and
//! bytes.
//!
//! This module upholds:
//! * A [`Region`] is `geometry.total` bytes at `base`, 128-byte aligned, zeroed or
//!   shared on purpose, valid for reads and writes until `owner` is dropped, and
//!   only ever accessed as atomics (everything before the data area) or by raw
//!   copies (the data area). No `&[u8]` to it exists, since another process may
//!   write it at any time.
//! * Every offset used here is within `geometry.total`: ring indices are masked,
//!   queue pair indices asserted, extents checked against the data area again.
//!
//! The bytes of the data area may change while they are copied, as those of a buffer that a
//! device reads by DMA would: a consumer that writes to posted memory only sends its own
//! garbage. No decision depends on bytes read there.

use super::layout::{CompletionWords, ExtentWords, Geometry, Header, Layout, LayoutError, QpWords, RequestWords};
use super::request::{Extent, Queue};
use baton_wire::checksum::{copy_and_sum_raw, sum, sum_raw};
use baton_wire::copy_unsafe::copy_raw;
use core::any::Any;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use std::alloc::{Layout as HeapLayout, alloc_zeroed, dealloc, handle_alloc_error};
use std::sync::Arc;

/// Alignment that the words of a region need.
pub(super) const ALIGN: usize = 128;
/// Up to this many bytes the loop that copies and sums is faster than a plain copy: 1448 bytes
/// that no cache holds, received, cost 190 ns with it and 255 with the C library's
/// (`benches/runs`).
pub(crate) const SEGMENT: usize = 4096;

/// The shared memory of one consumer; see [`crate::region`].
pub struct Region {
    base: NonNull<u8>,
    geometry: Geometry,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the memory is shared between processes by design; all access to it is
// by atomics or raw copies, and `owner` is Send and Sync itself.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Heap memory that stays untouched until used.
struct Heap {
    start: *mut u8,
    layout: HeapLayout,
}

// SAFETY: a `Heap` only frees its allocation, which any thread may do.
unsafe impl Send for Heap {}
// SAFETY: it has no method that takes `&self`.
unsafe impl Sync for Heap {}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this layout and is freed once.
        unsafe { dealloc(self.start, self.layout) }
    }
}

impl Region {
    /// A new region on the heap, for a consumer in this process. The system provides its memory
    /// as it is used.
    ///
    /// # Errors
    /// [`LayoutError`] names the size that is out of range.
    pub fn heap(layout: Layout) -> Result<Arc<Region>, LayoutError> {
        let geometry = layout.geometry()?;
        // Aligned by hand: an over-aligned zeroed allocation is cleared by
        // writing, which would touch every page of a large region.
        let bytes = geometry.total + ALIGN;
        let layout = HeapLayout::from_size_align(bytes, 16).expect("geometry bounds the size below isize::MAX");
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        let heap = Heap { start, layout };
        // SAFETY: the offset is below ALIGN, which was added to the size.
        let base = unsafe { start.add(start.align_offset(ALIGN)) };
        let base = NonNull::new(base).expect("an address within an allocation");
        let region = Region { base, geometry, _owner: Box::new(heap) };
        region.initialise();
        Ok(Arc::new(region))
    }

    /// A new region in memory made elsewhere (a memfd's mapping), all zero.
    ///
    /// # Safety
    /// `base` is valid for reads and writes of `len` bytes for as long as `owner`
    /// lives, and this process accesses it only through regions and raw pointers.
    ///
    /// # Errors
    /// [`LayoutError`] if the layout is invalid, or does not fit the memory.
    pub unsafe fn from_raw_parts(
        base: NonNull<u8>,
        len: usize,
        layout: Layout,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<Region>, LayoutError> {
        let geometry = layout.geometry()?;
        if len < geometry.total || !(base.as_ptr() as usize).is_multiple_of(ALIGN) {
            return Err(LayoutError::Memory);
        }
        let region = Region { base, geometry, _owner: owner };
        region.initialise();
        Ok(Arc::new(region))
    }

    /// A region that somebody else made, by what its header says. The sizes are
    /// read once and checked against `len`; the header is not looked at again.
    ///
    /// # Safety
    /// As for [`Region::from_raw_parts`].
    ///
    /// # Errors
    /// [`LayoutError`] if there is no region there, or it does not fit.
    pub unsafe fn open_raw_parts(
        base: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<Region>, LayoutError> {
        if len < size_of::<Header>() || !(base.as_ptr() as usize).is_multiple_of(ALIGN) {
            return Err(LayoutError::Memory);
        }
        // SAFETY: aligned, long enough by the check above, and all atomics.
        let sizes = unsafe { &base.cast::<Header>().as_ref().sizes };
        let geometry = sizes.read()?.geometry()?;
        if len < geometry.total {
            return Err(LayoutError::Memory);
        }
        Ok(Arc::new(Region { base, geometry, _owner: owner }))
    }

    /// Addresses of its words, that is of all but the data area; see
    /// [`Engine::tables`](crate::engine::Engine::tables).
    pub fn words_span(&self) -> Range<usize> {
        let base = self.base.addr().get();
        base..base + self.geometry.data
    }

    #[inline]
    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// A word or struct of words at byte `offset`.
    ///
    /// # Safety
    /// `offset` is aligned for `T`, `T` lies within the memory before the data
    /// area, and `T` is made of atomics alone.
    #[inline]
    unsafe fn words<T>(&self, offset: usize) -> &T {
        // SAFETY: in bounds and aligned by the caller's promise; atomics may be
        // written by others while shared references to them exist.
        unsafe { self.base.add(offset).cast::<T>().as_ref() }
    }

    #[inline]
    pub(super) fn header(&self) -> &Header {
        // SAFETY: every geometry starts with a header.
        unsafe { self.words(0) }
    }

    #[inline]
    pub(super) fn doorbell(&self, index: u32) -> &AtomicU32 {
        let slot = (index & (self.geometry.doorbells - 1)) as usize;
        // SAFETY: the masked slot is one of the ring's.
        unsafe { self.words(self.geometry.doorbell_ring + slot * size_of::<AtomicU32>()) }
    }

    #[inline]
    pub(super) fn request(&self, index: u32) -> &RequestWords {
        let slot = (index & (self.geometry.layout.requests - 1)) as usize;
        // SAFETY: the masked slot is one of the ring's.
        unsafe { self.words(self.geometry.request_ring + slot * size_of::<RequestWords>()) }
    }

    #[inline]
    pub(super) fn completion(&self, index: u32) -> &CompletionWords {
        let slot = (index & (self.geometry.completions - 1)) as usize;
        // SAFETY: the masked slot is one of the ring's.
        unsafe { self.words(self.geometry.completion_ring + slot * size_of::<CompletionWords>()) }
    }

    #[inline]
    pub(super) fn qp(&self, qp: u32) -> &QpWords {
        assert!(qp < self.geometry.layout.qps, "queue pair {qp} was checked when it was read");
        // SAFETY: asserted to be one of the array's.
        unsafe { self.words(self.geometry.qp_array + qp as usize * self.geometry.qp_size) }
    }

    #[inline]
    pub(super) fn queue_slot(&self, qp: u32, queue: Queue, index: u32) -> &ExtentWords {
        assert!(qp < self.geometry.layout.qps, "queue pair {qp} was checked when it was read");
        let depth = self.geometry.layout.queue_depth;
        let slot = (index & (depth - 1)) + if queue == Queue::Receive { depth } else { 0 };
        let queues = self.geometry.qp_array + qp as usize * self.geometry.qp_size + size_of::<QpWords>();
        // SAFETY: a queue pair ends in 2 * depth extents and `slot` is below that.
        unsafe { self.words(queues + slot as usize * size_of::<ExtentWords>()) }
    }

    /// Address of an extent's first byte; all of it lies within the data area.
    #[inline]
    pub(super) fn data(&self, extent: Extent) -> *mut u8 {
        let end = extent.offset() + u64::from(extent.len());
        assert!(end <= self.geometry.layout.data_bytes, "an extent of another region");
        // SAFETY: the data area is `data_bytes` long and starts at `geometry.data`.
        unsafe { self.base.as_ptr().add(self.geometry.data + extent.offset() as usize) }
    }

    /// Copies `src` to the start of `to`, which is at least as long.
    #[inline]
    pub(super) fn copy_in(&self, to: Extent, src: &[u8]) {
        assert!(src.len() <= to.len() as usize);
        // SAFETY: `to` lies within the data area and holds `src.len()` bytes; a
        // slice never overlaps it, since none is made of it.
        unsafe {
            if src.len() <= SEGMENT {
                copy_and_sum_raw(self.data(to), src.as_ptr(), src.len());
            } else {
                copy_raw(self.data(to), src.as_ptr(), src.len());
            }
        }
    }

    /// Copies the start of `from`, which is at least as long, to `dst`.
    #[inline]
    pub(super) fn copy_out(&self, from: Extent, dst: &mut [u8]) {
        assert!(dst.len() <= from.len() as usize);
        // SAFETY: as in `copy_in`.
        unsafe { copy_raw(dst.as_mut_ptr(), self.data(from), dst.len()) }
    }

    /// As [`Region::copy_in`], and the sum of what was read from `src`.
    #[inline]
    pub(super) fn copy_in_sum(&self, to: Extent, src: &[u8]) -> u32 {
        assert!(src.len() <= to.len() as usize);
        // SAFETY: as in `copy_in`.
        unsafe { copy_and_sum_raw(self.data(to), src.as_ptr(), src.len()) }
    }

    /// As [`Region::copy_out`], and the sum of what was written to `dst`.
    #[inline]
    pub(super) fn copy_out_sum(&self, from: Extent, dst: &mut [u8]) -> u32 {
        assert!(dst.len() <= from.len() as usize);
        // SAFETY: as in `copy_in`.
        unsafe { copy_and_sum_raw(dst.as_mut_ptr(), self.data(from), dst.len()) }
    }

    /// As [`Region::copy_in_sum`] in two passes. The consumer may write to the copy meanwhile, so
    /// the sum is that of `src`.
    #[cold]
    pub(super) fn copy_in_then_sum(&self, to: Extent, src: &[u8]) -> u32 {
        assert!(src.len() <= to.len() as usize);
        // SAFETY: as in `copy_in`.
        unsafe { copy_raw(self.data(to), src.as_ptr(), src.len()) }
        sum(src)
    }

    /// As [`Region::copy_out_sum`] in two passes; the sum is that of `dst`.
    #[cold]
    pub(super) fn copy_out_then_sum(&self, from: Extent, dst: &mut [u8]) -> u32 {
        self.copy_out(from, dst);
        sum(dst)
    }

    /// The sum of an extent's bytes, where they lie.
    #[inline]
    pub(super) fn sum(&self, from: Extent) -> u32 {
        // SAFETY: `from` lies within the data area.
        unsafe { sum_raw(self.data(from), from.len() as usize) }
    }
}
