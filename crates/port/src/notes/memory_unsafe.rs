//! Memory of words that the kernel writes and this side reads: an array of BPF, mapped read-only.
//!
//! This module upholds: a [`Words`] is `len` aligned words within its mapping, which lives as long, and each
//! access is one atomic load.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::xsk::Map;

/// Words that can only be read.
pub struct Words {
    map: Map,
    len: usize,
}

impl Words {
    /// Maps `len` words from the start of a file. The kernel maps no more of an array than there is.
    ///
    /// # Errors
    /// As `mmap(2)`'s.
    pub fn map(file: BorrowedFd<'_>, len: usize) -> io::Result<Words> {
        Ok(Words { map: Map::read_only(file, len * size_of::<u64>())?, len })
    }

    /// A word; 0 past the end.
    pub fn get(&self, at: usize) -> u64 {
        if at >= self.len {
            return 0;
        }
        // SAFETY: within the mapping, which begins at a page and is valid for reads as long as `self`; everybody
        // accesses its words as a whole.
        let word = unsafe { self.map.start().cast::<AtomicU64>().add(at).as_ref() };
        word.load(Ordering::Relaxed)
    }
}
