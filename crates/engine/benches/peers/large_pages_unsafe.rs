//! Large pages for tables of many connections, as a driver asks for them.
//!
//! This module upholds: the advice given here leaves the contents of the memory as
//! it is, so any addresses will do.

use rustix::mm::{Advice, madvise};
use std::ops::Range;
use std::ptr::without_provenance_mut;

const PAGE: usize = 2 << 20;

/// Asks for large pages where the memory is large enough for some.
pub fn advise(memory: Range<usize>) {
    let (start, end) = (memory.start.next_multiple_of(PAGE), memory.end & !(PAGE - 1));
    if start < end {
        // SAFETY: this advice leaves all contents as they are.
        let _ = unsafe { madvise(without_provenance_mut(start), end - start, Advice::LinuxHugepage) };
    }
}
