//! An allocator that counts the bytes that are in use.
//!
//! This module upholds: the allocator hands every call to the system's allocator as it came, and
//! looks at the layout only.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts the bytes that are allocated, now and at most.
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Bytes in use.
pub fn live() -> usize {
    LIVE.load(Relaxed)
}

/// The most bytes in use since the last [`reset`].
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

/// Forgets the peak.
pub fn reset() {
    PEAK.store(live(), Relaxed);
}

// SAFETY: every call goes to the system's allocator, with the caller's layout and pointer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above; the pointer came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}
