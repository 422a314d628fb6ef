//! The client of a Baton service: hands kernel sockets to its engine, and gets them back.
//!
//! A safety rule in addition to those of [`super`]: the object behind a handle is reached
//! through shared references only, except by the one call that frees it, whose caller promises
//! that no other call uses the handle.

use super::{memory, set_errno, status, to_c};
use baton_client::{NotAdopted, Place, SOCKET, Service, Stream};
use baton_socket::posix::{Answer, Errno};
use libc::{c_char, c_int, c_void};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// The connection is in the kernel.
pub const BATON_PLACE_KERNEL: c_int = 0;

/// The connection is in an engine.
pub const BATON_PLACE_ENGINE: c_int = 1;

/// The connection is moving.
pub const BATON_PLACE_MOVING: c_int = 2;

/// The connection has ended.
pub const BATON_PLACE_ENDED: c_int = 3;

/// Its other end is in a program of this machine, and its bytes go through memory that both share.
pub const BATON_PLACE_PAIR: c_int = 4;

/// The first words of handles; no other object begins with them.
const SERVICE: u64 = u64::from_le_bytes(*b"batonsvc");
const STREAM: u64 = u64::from_le_bytes(*b"batonstr");

/// The object that a handle points to. Opaque to C.
#[repr(C)]
pub struct Handle<T> {
    /// The first field, so that the check of an invalid handle reads nothing else.
    mark: AtomicU64,
    inner: T,
}

/// A connection to a service.
pub type baton_service = Handle<Service>;

/// A stream on a connection that may move.
pub type baton_stream = Handle<Stream>;

// Calls by several threads at once are sound.
const _: fn() = || {
    fn shared_by_threads<T: Send + Sync>() {}
    shared_by_threads::<baton_service>();
    shared_by_threads::<baton_stream>();
};

impl<T> Handle<T> {
    fn create(mark: u64, inner: T) -> *mut Handle<T> {
        Box::into_raw(Box::new(Handle { mark: AtomicU64::new(mark), inner }))
    }

    /// The object behind a handle, or `EFAULT` if the handle is invalid.
    ///
    /// # Safety
    /// `handle` is null, points to eight readable bytes, or came from [`Handle::create`] with this
    /// mark; and it is not freed while the reference is in use.
    unsafe fn of<'a>(handle: *mut Handle<T>, mark: u64) -> Answer<&'a T> {
        if handle.is_null() || !handle.is_aligned() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: not null, aligned, and eight bytes are readable by the caller's promise.
        if unsafe { (*handle.cast::<AtomicU64>()).load(Ordering::Acquire) } != mark {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: it has the mark that only `create` sets, one mark for each type.
        Ok(unsafe { &(*handle).inner })
    }

    /// Takes the object out of its handle, which is invalid afterwards.
    ///
    /// # Safety
    /// As for [`Handle::of`], and no other call uses it.
    unsafe fn take(handle: *mut Handle<T>, mark: u64) -> Answer<T> {
        // SAFETY: the caller's promise.
        unsafe { Handle::of(handle, mark)? };
        // SAFETY: it came from `Box::into_raw`, and no other call uses it.
        let marked = unsafe { Box::from_raw(handle) };
        marked.mark.store(0, Ordering::Release);
        Ok(marked.inner)
    }
}

/// Runs `work`. A panic in it becomes `EIO` instead of crossing into C.
pub(super) fn guarded<T>(work: impl FnOnce() -> Answer<T>) -> Answer<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        // Dropping the payload could panic again.
        std::mem::forget(panic);
        Err(Errno(libc::EIO))
    })
}

fn handle_or_null<T>(made: Answer<*mut T>) -> *mut T {
    made.unwrap_or_else(|errno| {
        set_errno(errno);
        std::ptr::null_mut()
    })
}

/// Connects to the service that listens at `path`; NULL stands for the default path,
/// /run/baton/baton.sock. Returns NULL on failure, with `errno` set as by `connect(2)`; EACCES
/// also if the service refuses this user or this version of the library.
///
/// # Safety
/// `path` is NULL or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_service_connect(path: *const c_char) -> *mut baton_service {
    handle_or_null(guarded(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { memory::text(path) }.map_or(OsStr::new(SOCKET), |path| OsStr::from_bytes(path.to_bytes()));
        Ok(Handle::create(SERVICE, Service::connect(path)?))
    }))
}

/// Frees the handle; streams stay usable until they are closed. NULL is allowed. Free a handle
/// only once: another object may later have the same address.
///
/// # Safety
/// `service` is NULL or came from `baton_service_connect`, and no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_service_free(service: *mut baton_service) -> c_int {
    if service.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    status(guarded(|| unsafe { Handle::take(service, SERVICE) }.map(drop)))
}

/// Hands a connected TCP socket over and waits until the engine has it. From then on the stream
/// owns the descriptor: the caller must not use or close it or a duplicate of it before
/// `baton_stream_restore`. Socket options keep their values, but O_NONBLOCK does not: a stream
/// begins as blocking.
///
/// Returns NULL on failure, with `errno` set. EOPNOTSUPP: the connection stays in the kernel; if
/// `why` is not NULL, the reason is written to it as one line of at most `why_len` bytes,
/// including the terminating zero. ENOTCONN: the service cannot be reached. In both cases, and
/// with EBADF and EFAULT, the caller keeps the descriptor, unchanged. ECONNABORTED: the
/// connection was lost because the service died, and the descriptor is closed.
///
/// # Safety
/// `service` came from `baton_service_connect`; the caller owns `fd`; `why` is NULL or points to
/// `why_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_service_adopt(
    service: *mut baton_service,
    fd: c_int,
    why: *mut c_char,
    why_len: usize,
) -> *mut baton_stream {
    handle_or_null(guarded(|| {
        // SAFETY: the caller's promise.
        let service = unsafe { Handle::of(service, SERVICE)? };
        // SAFETY: only queries a descriptor number.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(Errno(libc::EBADF));
        }
        // SAFETY: it is open, and the caller, who owns it, passes it to us.
        let refused = match service.adopt(unsafe { OwnedFd::from_raw_fd(fd) }) {
            Ok(stream) => return Ok(Handle::create(STREAM, stream)),
            Err(refused) => refused,
        };
        if !why.is_null() && why_len > 0 {
            let text = refused.to_string();
            let len = text.len().min(why_len - 1);
            // SAFETY: the caller's promise about `why`; `len` is less than `why_len`.
            let line = unsafe { memory::output(why.cast(), len + 1)? };
            line[..len].copy_from_slice(&text.as_bytes()[..len]);
            line[len] = 0;
        }
        Err(errno_of(refused))
    }))
}

/// The error number of a refusal. A socket that stays is given back to the caller, who still has
/// its descriptor.
fn errno_of(refused: NotAdopted) -> Errno {
    let NotAdopted { fd, code, .. } = refused;
    Errno(match fd.map(IntoRawFd::into_raw_fd) {
        None => libc::ECONNABORTED,
        Some(_) if code == NotAdopted::NOT_ASKED => libc::ENOTCONN,
        Some(_) => libc::EOPNOTSUPP,
    })
}

/// Makes one call on the stream behind a handle.
///
/// # Safety
/// As for [`Handle::of`].
unsafe fn with<T>(stream: *mut baton_stream, call: impl FnOnce(&Stream) -> std::io::Result<T>) -> Answer<T> {
    // SAFETY: the caller's promise.
    guarded(|| call(unsafe { Handle::of(stream, STREAM)? }).map_err(Errno::from))
}

/// `read(2)`, wherever the connection is. A signal does not interrupt the wait of this or of any
/// call below.
///
/// # Safety
/// `stream` came from `baton_service_adopt`; `buf` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_read(stream: *mut baton_stream, buf: *mut c_void, len: usize) -> isize {
    // SAFETY: the caller's promise.
    to_c(unsafe { memory::output(buf.cast(), len).and_then(|buf| with(stream, |mut stream| stream.read(buf))) })
}

/// `write(2)`, wherever the connection is.
///
/// # Safety
/// `stream` came from `baton_service_adopt`; `buf` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_write(stream: *mut baton_stream, buf: *const c_void, len: usize) -> isize {
    // SAFETY: the caller's promise.
    to_c(unsafe { memory::input(buf.cast(), len).and_then(|data| with(stream, |mut stream| stream.write(data))) })
}

/// `shutdown(2)`, with SHUT_RD, SHUT_WR or SHUT_RDWR.
///
/// # Safety
/// `stream` came from `baton_service_adopt`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_shutdown(stream: *mut baton_stream, how: c_int) -> c_int {
    let how = match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return status(Err(Errno(libc::EINVAL))),
    };
    // SAFETY: the caller's promise.
    status(unsafe { with(stream, |stream| stream.shut(how)) })
}

/// Sets whether reads and writes fail with EAGAIN (`on` is not 0) instead of waiting.
///
/// # Safety
/// `stream` came from `baton_service_adopt`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_set_nonblocking(stream: *mut baton_stream, on: c_int) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe {
        with(stream, |stream| {
            stream.set_nonblocking(on != 0);
            Ok(())
        })
    })
}

/// Returns an eventfd to poll, which works wherever the connection is. (The connection's own
/// descriptor is not meaningful while an engine has it.) It becomes readable (POLLIN, EPOLLIN)
/// when a read or write that failed with EAGAIN is worth another try. So first try to read or
/// write; wait only after EAGAIN; when the eventfd is readable, read its eight bytes, then try
/// both. The stream owns the eventfd and closes it at its end; every call returns the same one.
///
/// # Safety
/// `stream` came from `baton_service_adopt`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_eventfd(stream: *mut baton_stream) -> c_int {
    // SAFETY: the caller's promise.
    to_c(unsafe { with(stream, |stream| Ok(stream.eventfd()?.as_raw_fd())) })
}

/// Returns where the connection is: one of `BATON_PLACE_...`.
///
/// # Safety
/// `stream` came from `baton_service_adopt`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_place(stream: *mut baton_stream) -> c_int {
    // SAFETY: the caller's promise.
    to_c(unsafe {
        with(stream, |stream| {
            Ok(match stream.place() {
                Place::Kernel => BATON_PLACE_KERNEL,
                Place::Engine => BATON_PLACE_ENGINE,
                Place::Moving => BATON_PLACE_MOVING,
                Place::Ended => BATON_PLACE_ENDED,
                Place::Pair => BATON_PLACE_PAIR,
            })
        })
    })
}

/// Moves the whole connection back to the kernel, and waits for that. Returns the descriptor
/// that was handed over; it is an ordinary socket again and the caller owns it. The handle is
/// freed. On failure the stream and its handle stay usable.
///
/// # Safety
/// `stream` came from `baton_service_adopt`, and no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_restore(stream: *mut baton_stream) -> c_int {
    // SAFETY: the caller's promise; after success the stream is not used again.
    to_c(unsafe {
        with(stream, Stream::take_back).and_then(|fd| {
            guarded(|| Handle::take(stream, STREAM).map(drop))?;
            Ok(fd.into_raw_fd())
        })
    })
}

/// Closes the connection and frees the handle. The connection ends with a FIN, or with a reset
/// if received bytes were never read. NULL is allowed. Free a handle only once, with this call or
/// with `baton_stream_restore`: another object may later have the same address.
///
/// # Safety
/// `stream` is NULL or came from `baton_service_adopt`, and no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_close(stream: *mut baton_stream) -> c_int {
    if stream.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    status(guarded(|| unsafe { Handle::take(stream, STREAM) }.map(drop)))
}
