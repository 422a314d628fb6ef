//! Large pages for tables that hold many connections.
//!
//! Invariant: the advice given here changes the speed of memory and never its contents, so any
//! address range is allowed, mapped or not.

use rustix::mm::{Advice, madvise};
use std::ops::Range;
use std::ptr::without_provenance_mut;

/// Size of a large page in bytes. If the system's are larger, it rounds by itself.
const PAGE: usize = 2 << 20;

/// Smallest memory in bytes that is worth it. For less, the TLB covers about as much with small
/// pages, and a table with few entries would occupy a whole large page.
const LEAST: usize = 8 << 20;

/// Asks the system to back this memory with large pages when it is first used. Systems without this
/// feature ignore it.
pub(crate) fn advise(memory: Range<usize>) {
    let (start, end) = (memory.start.next_multiple_of(PAGE), memory.end & !(PAGE - 1));
    if memory.len() >= LEAST && start < end {
        // SAFETY: this advice never changes the contents of memory.
        let _ = unsafe { madvise(without_provenance_mut(start), end - start, Advice::LinuxHugepage) };
    }
}
