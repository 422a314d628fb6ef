//! A mapping of a memfd, as the memory of a region.
//!
//! What this module upholds:
//! * A [`Mapping`] is `len` bytes at `base`, mapped shared, readable and writable,
//!   until it is dropped in the process that mapped it; nothing but the region made
//!   over it uses it, and that only by atomics and raw copies.
//! * The file behind it is sealed against shrinking before it is mapped, so that
//!   no access can find its page gone (SIGBUS), whoever else holds the file.

use super::fork::Process;
use baton_engine::ledger::Ledger;
use baton_engine::region::{Layout, LayoutError, Region};
use rustix::fd::BorrowedFd;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

struct Mapping {
    base: NonNull<u8>,
    len: usize,
    process: Process,
}

// SAFETY: a `Mapping` only unmaps its memory, which any thread may do.
unsafe impl Send for Mapping {}
// SAFETY: it has no method that takes `&self`.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // A child may have something else there.
            return;
        }
        // SAFETY: mapped by `map` with this length, unmapped once, and the region
        // that used it is gone: it owned this.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}

/// Maps the first `len` bytes of a file that is sealed against shrinking.
fn map(file: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    let base = unsafe {
        mmap(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE, file, 0)?
    };
    let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    Ok(Mapping { base, len, process: Process::this() })
}

/// A new region over a file of `len` zero bytes, sealed against shrinking.
pub(crate) fn create(file: BorrowedFd<'_>, len: usize, layout: Layout) -> io::Result<Arc<Region>> {
    let mapping = map(file, len)?;
    // SAFETY: the mapping is valid for as long as it, the owner, lives.
    unsafe { Region::from_raw_parts(mapping.base, len, layout, Box::new(mapping)) }.map_err(invalid)
}

/// The region that somebody else made over a file of `len` bytes, sealed against
/// shrinking. A child of this process does not have it: two would be one consumer.
pub(crate) fn open(file: BorrowedFd<'_>, len: usize) -> io::Result<Arc<Region>> {
    let mapping = map(file, len)?;
    // SAFETY: it is ours, and in a child, which lacks it then, nobody uses it.
    unsafe { madvise(mapping.base.as_ptr().cast(), mapping.len, Advice::LinuxDontFork)? };
    // SAFETY: as in `create`.
    unsafe { Region::open_raw_parts(mapping.base, len, Box::new(mapping)) }.map_err(invalid)
}

/// The ledger in a file of `len` bytes, sealed against shrinking.
pub(crate) fn ledger(file: BorrowedFd<'_>, len: usize) -> io::Result<Arc<Ledger>> {
    let mapping = map(file, len)?;
    // SAFETY: as in `create`; only ledgers use this mapping.
    unsafe { Ledger::from_raw_parts(mapping.base, len, Box::new(mapping)) }
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn invalid(error: LayoutError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
