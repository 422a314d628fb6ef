//! Nothing is allocated after construction, whatever comes.
//!
//! `unsafe` because that is how an allocator is written: this one hands each call on
//! to the system's, unchanged, and counts those of the thread that asks.

mod slow;
mod traffic;

use baton_coalesce::{
    Cause, Checksums, Coalescer, Frame, Limits, Link, Output, Part, Parts, Profile, Reason, Run, Window,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use traffic::Traffic;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as our caller promises; it came from the system's.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as our caller promises; it came from the system's.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Segments(u64);

impl Output<usize> for Segments {
    fn frame(&mut self, _: usize, _: Reason) {}
    fn run(&mut self, _: &Run, parts: &[Part<usize>], _: Cause) {
        self.0 += parts.len() as u64;
    }
}

#[test]
fn nothing_is_allocated_after_construction() {
    let mut merged = 0;
    for seed in 0..200 {
        let mut traffic = Traffic::new(seed);
        let mut frames = Vec::new();
        while frames.len() < 300 {
            traffic.burst(&mut frames);
        }
        for profile in [Profile::Rsc, Profile::Ra] {
            for window in [Window::Input, Limits::of(profile).window] {
                let limits = Limits { window, ..Limits::of(profile) };
                let (mut coalescer, mut parts) = (Coalescer::new(limits), Parts::new(&limits));
                let mut out = Segments(0);
                let before = ALLOCATIONS.get();
                for (at, frame) in frames.iter().enumerate() {
                    let frame = Frame::whole(&frame.bytes, Link::Ethernet);
                    coalescer.handle_frame(&frame, Checksums::Verify, 0, at, &mut parts.to(&mut out));
                }
                coalescer.flush(0, &mut parts.to(&mut out));
                assert_eq!(ALLOCATIONS.get(), before, "{limits:?}");
                merged += coalescer.counts().eliminated();
            }
        }
    }
    assert!(merged > 10_000, "there was something to do: {merged}");
}
