//! Large pages for what many connections lie in.
//!
//! What this module upholds: the advice given here changes how fast memory is and
//! nothing of what is in it, so any addresses will do, mapped or not.

use rustix::mm::{Advice, madvise};
use std::ops::Range;
use std::ptr::without_provenance_mut;

/// What a large page covers; where it is more, the system rounds for itself.
const PAGE: usize = 2 << 20;

/// Smaller memory is not worth it: the small pages whose addresses a processor
/// remembers cover about as much, and a table that holds little would take a large
/// page for it.
const LEAST: usize = 8 << 20;

/// Asks the system to back this memory by large pages as it is first used. A
/// system that knows no such thing leaves it as it is.
pub(crate) fn advise(memory: Range<usize>) {
    let (start, end) = (memory.start.next_multiple_of(PAGE), memory.end & !(PAGE - 1));
    if memory.len() >= LEAST && start < end {
        // SAFETY: this advice leaves all contents as they are.
        let _ = unsafe { madvise(without_provenance_mut(start), end - start, Advice::LinuxHugepage) };
    }
}
