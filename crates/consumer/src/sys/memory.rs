//! A mapping of a memfd as the memory of a region.
//!
//! Invariants of this module:
//!
//! * A [`Mapping`] is `len` bytes at `base`, mapped shared, readable and (but for a reader) writable, until it is
//!   dropped in the process that mapped it. Only the region made over it uses it, and only by atomics
//!   and raw copies.
//! * The file behind it is sealed against shrinking before it is mapped, so no access can find its
//!   page missing (SIGBUS), whichever process also holds the file.

use super::fork::Process;
use baton_engine::ledger::Ledger;
use baton_engine::region::{Layout, LayoutError, Region};
use baton_latency::WatchMemory;
use baton_pair::Side;
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
            // In a child, something else may be mapped there.
            return;
        }
        // SAFETY: mapped by `map` with this length and unmapped once. The region that used it is
        // gone, because it owned this value.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of a valid mapping succeeds");
    }
}

/// Maps the first `len` bytes of a file that is sealed against shrinking.
fn map(file: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
    map_as(file, len, ProtFlags::READ | ProtFlags::WRITE)
}

fn map_as(file: BorrowedFd<'_>, len: usize, access: ProtFlags) -> io::Result<Mapping> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    let base = unsafe { mmap(null_mut(), len, access, MapFlags::SHARED | MapFlags::NORESERVE, file, 0)? };
    let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    Ok(Mapping { base, len, process: Process::this() })
}

/// Creates a region over a file of `len` zero bytes that is sealed against shrinking.
pub(crate) fn create(file: BorrowedFd<'_>, len: usize, layout: Layout) -> io::Result<Arc<Region>> {
    let mapping = map(file, len)?;
    // SAFETY: the mapping is valid for as long as it, the owner, lives.
    unsafe { Region::from_raw_parts(mapping.base, len, layout, Box::new(mapping)) }.map_err(invalid)
}

/// Maps the region that another process made over a file of `len` bytes, sealed against shrinking.
/// Forked children do not inherit it, because two processes would act as one consumer.
pub(crate) fn open(file: BorrowedFd<'_>, len: usize) -> io::Result<Arc<Region>> {
    let mapping = map(file, len)?;
    // SAFETY: the mapping is ours. A child does not have it then, and nobody uses it there.
    unsafe { madvise(mapping.base.as_ptr().cast(), mapping.len, Advice::LinuxDontFork)? };
    // SAFETY: as in `create`.
    unsafe { Region::open_raw_parts(mapping.base, len, Box::new(mapping)) }.map_err(invalid)
}

/// Maps the ledger in a file of `len` bytes that is sealed against shrinking.
pub(crate) fn ledger(file: BorrowedFd<'_>, len: usize) -> io::Result<Arc<Ledger>> {
    let mapping = map(file, len)?;
    // SAFETY: as in `create`; only ledgers use this mapping.
    unsafe { Ledger::from_raw_parts(mapping.base, len, Box::new(mapping)) }
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Maps the memory of what is watched in a file of `len` bytes that is sealed against shrinking.
pub(crate) fn watch(file: BorrowedFd<'_>, len: usize) -> io::Result<Arc<WatchMemory>> {
    let mapping = map(file, len)?;
    // SAFETY: as in `create`; only a `WatchMemory` uses this mapping.
    unsafe { WatchMemory::from_raw_parts(mapping.base, len, Box::new(mapping)) }
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The same for a reader, who must not call anything that writes.
pub(crate) fn watch_read_only(file: BorrowedFd<'_>, len: usize) -> io::Result<Arc<WatchMemory>> {
    let mapping = map_as(file, len, ProtFlags::READ)?;
    // SAFETY: as in `watch`; its only user is a `WatchReader`, which reads.
    unsafe { WatchMemory::from_raw_parts(mapping.base, len, Box::new(mapping)) }
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Makes a side of a link over a file of `len` zero bytes that is sealed against shrinking.
pub(crate) fn new_side(file: BorrowedFd<'_>, len: usize, layout: baton_pair::Layout) -> io::Result<Arc<Side>> {
    let mapping = map(file, len)?;
    // SAFETY: as in `create`; only a `Side` uses this mapping.
    let side = unsafe { Side::from_raw_parts(mapping.base, len, layout, Box::new(mapping)) };
    side.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Maps a side of a link that another process made. One that is only to be read must be a link's other
/// side, or a follower's. Forked children do not inherit it, because two processes would act as one end.
pub(crate) fn side(file: BorrowedFd<'_>, len: usize, writes: bool) -> io::Result<Arc<Side>> {
    let access = if writes { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    let mapping = map_as(file, len, access)?;
    // SAFETY: as in `open`.
    unsafe { madvise(mapping.base.as_ptr().cast(), mapping.len, Advice::LinuxDontFork)? };
    // SAFETY: as in `create`; a side that may only be read is taken as a link's other side or by
    // a follower, which the callers see to.
    let side = unsafe { Side::open_raw_parts(mapping.base, len, Box::new(mapping)) };
    side.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

fn invalid(error: LayoutError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
