//! The packet memory of an AF_XDP socket: chunks that the kernel receives into
//! and sends from.
//!
//! ```text
//!   | receive chunks                    | transmit units                     |
//!   | chunk | chunk | ...               | unit: chunks of the longest frame  | ...
//! ```
//!
//! This module upholds: a receive chunk belongs to the kernel from when it is put
//! into the fill ring until it comes out of the receive ring, and to the port
//! otherwise; a transmit unit belongs to the port from when it is taken from the
//! free list until its frame is put into the transmit ring. The callers in
//! `socket` follow these ways, and borrow the memory through `&self` or
//! `&mut self` only for what they own. Ranges are checked against the mapping.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys::xsk::{Map, register_memory};

/// Packet memory.
pub struct Umem {
    map: Map,
}

impl Umem {
    /// Makes packet memory of `len` bytes.
    ///
    /// # Errors
    /// As `mmap(2)`'s.
    pub fn new(len: usize) -> io::Result<Self> {
        Ok(Self { map: Map::anonymous(len)? })
    }

    /// Registers it with the socket `fd`, in chunks of `chunk` bytes. It must be
    /// dropped after the socket.
    ///
    /// # Errors
    /// As `setsockopt(2)`'s.
    pub fn register(&self, fd: BorrowedFd<'_>, chunk: u32) -> io::Result<()> {
        register_memory(fd, &self.map, chunk)
    }

    /// The bytes of a received frame, or of a piece of one.
    ///
    /// # Panics
    /// If they are not in this memory: the kernel is broken.
    pub fn bytes(&self, at: u64, len: u32) -> &[u8] {
        let (at, len) = self.checked(at, len as usize);
        // SAFETY: in the mapping; the chunk came out of the receive ring, so the
        // kernel does not write to it while the caller keeps it out of the fill ring.
        unsafe { std::slice::from_raw_parts(self.map.start().as_ptr().add(at), len) }
    }

    /// The bytes of a transmit unit.
    ///
    /// # Panics
    /// If they are not in this memory.
    pub fn bytes_mut(&mut self, at: u64, len: usize) -> &mut [u8] {
        let (at, len) = self.checked(at, len);
        // SAFETY: in the mapping; `&mut self` makes this the only borrow, and the
        // kernel only reads transmit units.
        unsafe { std::slice::from_raw_parts_mut(self.map.start().as_ptr().add(at), len) }
    }

    fn checked(&self, at: u64, len: usize) -> (usize, usize) {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let fits = start.checked_add(len).is_some_and(|end| end <= self.map.len());
        assert!(fits, "{len} bytes at {at} are outside of the packet memory");
        (start, len)
    }
}
