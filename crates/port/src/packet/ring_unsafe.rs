//! The receive ring that a packet socket shares with the kernel (`TPACKET_V2`,
//! Documentation/networking/packet_mmap.rst).
//!
//! ```text
//!   slot   | header 32: status, lengths, offsets | address | ... |virtio 10|frame ...   |
//!            status 0: the kernel's; TP_STATUS_USER: ours, until we write 0
//! ```
//!
//! This module upholds: a slot's bytes are borrowed only while its status says that it is
//! ours, which is looked at with acquire order before, and each slot is given back, with
//! release order, through `&mut self`, so that no borrow is left. Offsets are checked
//! against the slot.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::xsk::Map;

/// A receive ring of a packet socket (`TPACKET_V2`), mapped into this process.
pub struct PacketRing {
    map: Map,
    slot_len: usize,
    slots: usize,
    next: usize,
}

impl PacketRing {
    /// Over a mapping of slots that lie one behind the other.
    ///
    /// # Panics
    /// If the mapping is not a whole number of slots, or these are not aligned.
    pub fn new(map: Map, slot_len: usize) -> Self {
        let slots = map.len() / slot_len;
        assert!(slots * slot_len == map.len() && slot_len.is_multiple_of(16) && slots > 0, "a ring of whole slots");
        Self { map, slot_len, slots, next: 0 }
    }

    fn start(&self, ahead: usize) -> *mut u8 {
        let at = (self.next + ahead % self.slots) % self.slots * self.slot_len;
        // SAFETY: in the mapping, of `slots` times `slot_len` bytes.
        unsafe { self.map.start().as_ptr().add(at) }
    }

    fn status(&self, ahead: usize) -> &AtomicU32 {
        // SAFETY: a slot starts with its status, at a multiple of 16 in a page-aligned
        // mapping; the kernel and we access it atomically only.
        unsafe { AtomicU32::from_ptr(self.start(ahead).cast()) }
    }

    /// The status of the slot that is so many ahead of the next, if it is ours.
    pub fn ready(&self, ahead: usize) -> Option<u32> {
        let status = self.status(ahead).load(Ordering::Acquire);
        (ahead < self.slots && status & libc::TP_STATUS_USER != 0).then_some(status)
    }

    /// The bytes behind the status of a slot that is ours.
    ///
    /// # Panics
    /// If it is the kernel's.
    pub fn bytes(&self, ahead: usize) -> &[u8] {
        assert!(self.ready(ahead).is_some(), "a slot that is ours");
        // SAFETY: ours until `release`, which takes `&mut self`; the status, which the
        // kernel may look at, is left out.
        unsafe { std::slice::from_raw_parts(self.start(ahead).add(4), self.slot_len - 4) }
    }

    /// The same, to be written to.
    ///
    /// # Panics
    /// If it is the kernel's.
    pub fn bytes_mut(&mut self, ahead: usize) -> &mut [u8] {
        assert!(self.ready(ahead).is_some(), "a slot that is ours");
        // SAFETY: as in `bytes`, and `&mut self` makes this the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.start(ahead).add(4), self.slot_len - 4) }
    }

    /// Gives the first `count` slots, which are ours, back.
    pub fn release(&mut self, count: usize) {
        for ahead in 0..count {
            self.status(ahead).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        self.next = (self.next + count) % self.slots;
    }
}
