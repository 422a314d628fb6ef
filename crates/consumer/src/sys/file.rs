//! Reads files directly into the memory that a stream sends from.
//!
//! Invariant: the kernel gets memory of a region's data area, which is accessed by raw copies only,
//! and writes no more than an extent's bytes there.

use baton_engine::region::{ConsumerRegion, Extent};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads a file, starting at offset `at`, to the start of `to`, as far as it is in the page cache
/// (`RWF_NOWAIT`). Returns 0 at the end of the file.
///
/// # Errors
/// Those of `preadv2(2)`: `EAGAIN` if the call would have to wait for a disk, `EOPNOTSUPP` if the
/// file system does not support the flag.
pub(crate) fn read_cached(file: BorrowedFd<'_>, at: u64, region: &ConsumerRegion, to: Extent) -> io::Result<usize> {
    let place = libc::iovec { iov_base: region.place(to).cast(), iov_len: to.len() as usize };
    let at = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: one live iovec; its memory holds `to.len()` bytes that are valid for writes while the
    // region is borrowed, and no reference to it exists.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &place, 1, at, libc::RWF_NOWAIT) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}
