//! Reads, writes, polling, event descriptors, network namespaces.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use baton_engine::frame_io::PayloadPart;

/// The most pieces that one [`write_gather`] takes, header pieces included.
pub const GATHER_PARTS: usize = 64;

fn check(n: isize) -> io::Result<usize> {
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// `writev(2)` of two header pieces and `payload`, without a copy in this process.
///
/// The payload parts lie in memory that a consumer may write to meanwhile; only
/// the kernel reads them, and it copies what it finds. The caller of
/// [`FrameIo::gather`](baton_engine::frame_io::FrameIo::gather) vouches that they
/// are mapped; if they are not, the kernel answers `EFAULT`.
///
/// # Errors
/// As the system call's, and `E2BIG` for more than [`GATHER_PARTS`] pieces.
pub fn write_gather(fd: BorrowedFd<'_>, headers: [&[u8]; 2], payload: &[PayloadPart]) -> io::Result<usize> {
    let count = headers.len() + payload.len();
    if count > GATHER_PARTS {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; GATHER_PARTS];
    let headers = headers.iter().map(|h| (h.as_ptr(), h.len()));
    for (piece, (ptr, len)) in pieces.iter_mut().zip(headers.chain(payload.iter().map(|p| (p.ptr, p.len)))) {
        piece.write(libc::iovec { iov_base: ptr.cast_mut().cast(), iov_len: len });
    }
    // SAFETY: the first `count` pieces were written above; the kernel only reads
    // through them, and answers EFAULT instead of touching what is not mapped.
    check(unsafe { libc::writev(fd.as_raw_fd(), pieces.as_ptr().cast(), count as i32) })
}

/// `ppoll(2)` without a signal mask; how many descriptors have something to say.
/// `None` waits for ever.
///
/// # Errors
/// As the system call's; an interrupted wait is 0, not an error.
pub fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let spec = timeout.map(|t| libc::timespec {
        tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let spec_ptr = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `fds` and `spec` outlive the call; a null mask leaves signals alone.
    let n = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, spec_ptr, std::ptr::null()) };
    match check(n as isize) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        other => other,
    }
}

/// Makes a thread, of any process, batch work (`SCHED_BATCH`).
///
/// # Errors
/// As `sched_setscheduler(2)`'s: `EPERM` without `CAP_SYS_NICE`.
pub fn set_batch(thread: u32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` is valid for reads during the call.
    let n = unsafe { libc::sched_setscheduler(thread as libc::pid_t, libc::SCHED_BATCH, &parameters) };
    check(n as isize).map(drop)
}

/// A non-blocking event descriptor.
///
/// # Errors
/// As `eventfd(2)`'s.
pub fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    own(fd)
}

/// Takes ownership of a descriptor that a system call has just returned.
pub fn own(fd: RawFd) -> io::Result<OwnedFd> {
    check(fd as isize)?;
    // SAFETY: `fd` is a descriptor just made for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Moves the calling thread into a new, empty network namespace, which ends with
/// the last thread, process, socket or device descriptor in it.
///
/// # Errors
/// As `unshare(2)`'s: `EPERM` without `CAP_SYS_ADMIN`.
pub fn unshare_net() -> io::Result<()> {
    // SAFETY: takes no pointer; only the calling thread's namespace changes.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) } as isize).map(drop)
}

/// Moves the calling thread into the network namespace behind `file`.
///
/// # Errors
/// As `setns(2)`'s.
pub fn set_net(file: &File) -> io::Result<()> {
    // SAFETY: takes no pointer; only the calling thread's namespace changes.
    check(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } as isize).map(drop)
}
