//! Files, read to where a stream's bytes are sent from.
//!
//! What is upheld: the kernel is given memory of a region's data area, which is only ever
//! accessed by raw copies, and writes no more than an extent's bytes there.

use baton_engine::region::{ConsumerRegion, Extent};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads a file from byte `at` on to the start of `to`, as far as the system has it in memory
/// (`RWF_NOWAIT`); 0 at its end.
///
/// # Errors
/// `preadv2(2)`'s: `EAGAIN` if it would have to wait for a disk, `EOPNOTSUPP` of a file system
/// that cannot say.
pub(crate) fn read_cached(file: BorrowedFd<'_>, at: u64, region: &ConsumerRegion, to: Extent) -> io::Result<usize> {
    let place = libc::iovec { iov_base: region.place(to).cast(), iov_len: to.len() as usize };
    let at = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: one live iovec; its memory holds `to.len()` bytes that are valid for writes while
    // the region is borrowed, and of which no reference exists.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &place, 1, at, libc::RWF_NOWAIT) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}
