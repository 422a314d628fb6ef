//! The four rings that an AF_XDP socket shares with the kernel.
//!
//! ```text
//!   fill         port   -> kernel   chunks to receive into       (addresses)
//!   receive      kernel -> port     frames                       (descriptors)
//!   transmit     port   -> kernel   frames                       (descriptors)
//!   completion   kernel -> port     chunks that have been sent   (addresses)
//! ```
//!
//! This module upholds: each ring has one producer and one consumer, of which the
//! kernel is one. Entries in `consumer..producer` (counts modulo 2³²) belong to the
//! consumer, the others to the producer. The side here moves only its own count,
//! with release after it is done with the entries, and reads the kernel's with
//! acquire before it touches them. Offsets come from the kernel and are checked
//! against the mapping once; an index is masked each time.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::xsk::Map;

/// A mapped ring: what producer and consumer have in common.
struct Ring<T> {
    /// Keeps the pointers below valid.
    _map: Map,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    _entries: PhantomData<T>,
}

// SAFETY: the pointers lead into the mapping that goes with them.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn map(fd: BorrowedFd<'_>, page: u64, offset: &libc::xdp_ring_offset, len: u32) -> io::Result<Self> {
        assert!(len.is_power_of_two(), "the length of a ring is a power of two");
        let bytes = offset.desc as usize + len as usize * size_of::<T>();
        let map = Map::ring(fd, bytes, page)?;
        let field = |at: u64, align: usize| {
            assert!(at as usize + 4 <= bytes && (at as usize).is_multiple_of(align), "a ring's field outside of it");
            // SAFETY: within the mapping, by the line above.
            unsafe { map.start().add(at as usize) }
        };
        let (producer, consumer) = (field(offset.producer, 4).cast(), field(offset.consumer, 4).cast());
        let flags = field(offset.flags, 4).cast();
        let entries = field(offset.desc, align_of::<T>()).cast();
        Ok(Self { _map: map, producer, consumer, flags, entries, mask: len - 1, _entries: PhantomData })
    }

    fn len(&self) -> u32 {
        self.mask + 1
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: a u32 in the mapping, aligned, touched by both sides as an atomic.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn entry(&self, count: u32) -> *mut T {
        // SAFETY: masked, so within the `len` entries that were mapped.
        unsafe { self.entries.as_ptr().add((count & self.mask) as usize) }
    }

    /// Whether the kernel asks to be told of new entries.
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as `producer`.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that the port fills and the kernel empties.
pub struct ProducerRing<T> {
    ring: Ring<T>,
    /// Entries written so far, published or not.
    written: u32,
    /// The kernel's count as last seen.
    consumed: u32,
}

impl<T: Copy> ProducerRing<T> {
    /// Maps the ring of the socket `fd` that lies at `page`, of `len` entries.
    ///
    /// # Errors
    /// As `mmap(2)`'s.
    pub fn map(fd: BorrowedFd<'_>, page: u64, offset: &libc::xdp_ring_offset, len: u32) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(fd, page, offset, len)?, written: 0, consumed: 0 })
    }

    /// Writes one entry; false if the ring is full.
    pub fn push(&mut self, entry: T) -> bool {
        if self.written.wrapping_sub(self.consumed) == self.ring.len() {
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
            if self.written.wrapping_sub(self.consumed) == self.ring.len() {
                return false;
            }
        }
        // SAFETY: less than a round ahead of the consumer, so the entry is ours.
        unsafe { self.ring.entry(self.written).write(entry) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Hands what was written to the kernel.
    pub fn publish(&mut self) {
        self.ring.producer().store(self.written, Ordering::Release);
    }

    /// Entries written that the kernel has not taken.
    pub fn pending(&mut self) -> u32 {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.written.wrapping_sub(self.consumed)
    }

    /// Whether the kernel asks to be told of new entries.
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that the kernel fills and the port empties.
pub struct ConsumerRing<T> {
    ring: Ring<T>,
    /// Entries given back so far.
    released: u32,
    /// The kernel's count as last seen.
    produced: u32,
}

impl<T: Copy> ConsumerRing<T> {
    /// Maps the ring of the socket `fd` that lies at `page`, of `len` entries.
    ///
    /// # Errors
    /// As `mmap(2)`'s.
    pub fn map(fd: BorrowedFd<'_>, page: u64, offset: &libc::xdp_ring_offset, len: u32) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(fd, page, offset, len)?, released: 0, produced: 0 })
    }

    /// Entries that wait, `enough` at least if there are that many.
    pub fn waiting(&mut self, enough: u32) -> u32 {
        if self.produced.wrapping_sub(self.released) < enough {
            self.produced = self.ring.producer().load(Ordering::Acquire);
        }
        self.produced.wrapping_sub(self.released)
    }

    /// The `behind`-th waiting entry; `behind` is less than `waiting` has said.
    pub fn entry(&self, behind: u32) -> T {
        assert!(behind < self.produced.wrapping_sub(self.released), "read an entry that is not there");
        // SAFETY: between our count and the kernel's, so written and ours.
        unsafe { self.ring.entry(self.released.wrapping_add(behind)).read() }
    }

    /// Gives the first `n` waiting entries back.
    pub fn release(&mut self, n: u32) {
        assert!(n <= self.produced.wrapping_sub(self.released), "released entries that are not there");
        self.released = self.released.wrapping_add(n);
        self.ring.consumer().store(self.released, Ordering::Release);
    }
}
