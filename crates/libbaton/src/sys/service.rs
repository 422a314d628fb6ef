//! A Baton service: sockets of the kernel are handed to its engine, and come back.
//!
//! What is upheld beyond [`super`]'s list: what is behind a handle is reached by shared
//! references only, except by the one call that ends it, whose caller promises to be alone.

use super::{done, memory, nothing, set_errno};
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

/// The kernel has the connection.
pub const BATON_PLACE_KERNEL: c_int = 0;

/// An engine has it.
pub const BATON_PLACE_ENGINE: c_int = 1;

/// It is on its way.
pub const BATON_PLACE_MOVING: c_int = 2;

/// It has ended.
pub const BATON_PLACE_ENDED: c_int = 3;

/// First words of handles; nothing else begins so.
const SERVICE: u64 = u64::from_le_bytes(*b"batonsvc");
const STREAM: u64 = u64::from_le_bytes(*b"batonstr");

/// What a handle leads to. Opaque to C.
#[repr(C)]
pub struct Marked<T> {
    /// First, so that what is no handle is read no further.
    mark: AtomicU64,
    inner: T,
}

/// A connection to a service.
pub type baton_service = Marked<Service>;

/// A stream over a connection that may move.
pub type baton_stream = Marked<Stream>;

// Calls by several threads at once are sound.
const _: fn() = || {
    fn shared_by_threads<T: Send + Sync>() {}
    shared_by_threads::<baton_service>();
    shared_by_threads::<baton_stream>();
};

impl<T> Marked<T> {
    fn handle(mark: u64, inner: T) -> *mut Marked<T> {
        Box::into_raw(Box::new(Marked { mark: AtomicU64::new(mark), inner }))
    }

    /// What is behind a handle; `EFAULT` if it is none.
    ///
    /// # Safety
    /// A pointer that is not null leads to eight readable bytes, or came from [`Marked::handle`]
    /// with this mark; and it is not freed while the reference is used.
    unsafe fn of<'a>(handle: *mut Marked<T>, mark: u64) -> Answer<&'a T> {
        if handle.is_null() || !handle.is_aligned() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: not null, aligned, and eight bytes are readable by the caller's promise.
        if unsafe { (*handle.cast::<AtomicU64>()).load(Ordering::Acquire) } != mark {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: it bears the mark that only `handle` sets, each for one type.
        Ok(unsafe { &(*handle).inner })
    }

    /// Takes what is behind a handle, which is none any more.
    ///
    /// # Safety
    /// As for [`Marked::of`], and nobody else uses it.
    unsafe fn take(handle: *mut Marked<T>, mark: u64) -> Answer<T> {
        // SAFETY: the caller's promise.
        unsafe { Marked::of(handle, mark)? };
        // SAFETY: it came from `Box::into_raw`, and nobody else uses it.
        let marked = unsafe { Box::from_raw(handle) };
        marked.mark.store(0, Ordering::Release);
        Ok(marked.inner)
    }
}

/// Does something that must not panic into C.
pub(super) fn guarded<T>(work: impl FnOnce() -> Answer<T>) -> Answer<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        // Dropping it could panic again.
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

/// Connects to the service that listens at `path`, or, for NULL, where one usually does:
/// /run/baton/baton.sock. NULL on failure, with `errno` set: as `connect(2)`; EACCES also if
/// it refuses this user, or this version of the library.
///
/// # Safety
/// `path` is NULL or ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_service_connect(path: *const c_char) -> *mut baton_service {
    handle_or_null(guarded(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { memory::text(path) }.map_or(OsStr::new(SOCKET), |path| OsStr::from_bytes(path.to_bytes()));
        Ok(Marked::handle(SERVICE, Service::connect(path)?))
    }))
}

/// Frees the handle; streams go on until they are closed. NULL is no error. A handle is
/// freed once: what is at its place later may be another.
///
/// # Safety
/// `service` is NULL or came from `baton_service_connect`, and nobody else uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_service_free(service: *mut baton_service) -> c_int {
    if service.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    nothing(guarded(|| unsafe { Marked::take(service, SERVICE) }.map(drop)))
}

/// Hands a connected TCP socket over and waits until the engine has it. From then on the
/// descriptor is the stream's: neither it nor a duplicate is used or closed before
/// `baton_stream_restore`. What was set on the socket goes along, except O_NONBLOCK: a
/// stream begins blocking.
///
/// NULL on failure, with `errno` set. EOPNOTSUPP: it stays in the kernel; `why`, if it is
/// not NULL, has a line of at most `why_len` bytes, the zero included, that says the reason.
/// ENOTCONN: the service cannot be asked. In both cases, and with EBADF and EFAULT, the descriptor
/// is the caller's, as it was. ECONNABORTED: the connection was lost with the service, and
/// the descriptor is closed.
///
/// # Safety
/// `service` came from `baton_service_connect`; `fd` is the caller's; `why` is NULL or leads
/// to `why_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_service_adopt(
    service: *mut baton_service,
    fd: c_int,
    why: *mut c_char,
    why_len: usize,
) -> *mut baton_stream {
    handle_or_null(guarded(|| {
        // SAFETY: the caller's promise.
        let service = unsafe { Marked::of(service, SERVICE)? };
        // SAFETY: asks about a number.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(Errno(libc::EBADF));
        }
        // SAFETY: it is open, and the caller's, who gives it to us.
        let refused = match service.adopt(unsafe { OwnedFd::from_raw_fd(fd) }) {
            Ok(stream) => return Ok(Marked::handle(STREAM, stream)),
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

/// Gives a socket that stays back to the caller, who has its number.
fn errno_of(refused: NotAdopted) -> Errno {
    let NotAdopted { fd, code, .. } = refused;
    Errno(match fd.map(IntoRawFd::into_raw_fd) {
        None => libc::ECONNABORTED,
        Some(_) if code == NotAdopted::NOT_ASKED => libc::ENOTCONN,
        Some(_) => libc::EOPNOTSUPP,
    })
}

/// The stream behind a handle, for one call.
///
/// # Safety
/// As for [`Marked::of`].
unsafe fn with<T>(stream: *mut baton_stream, call: impl FnOnce(&Stream) -> std::io::Result<T>) -> Answer<T> {
    // SAFETY: the caller's promise.
    guarded(|| call(unsafe { Marked::of(stream, STREAM)? }).map_err(Errno::from))
}

/// `read(2)`, wherever the connection is. A signal does not end a wait, here and below.
///
/// # Safety
/// `stream` came from `baton_service_adopt`; `buf` leads to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_read(stream: *mut baton_stream, buf: *mut c_void, len: usize) -> isize {
    // SAFETY: the caller's promise.
    done(unsafe { memory::output(buf.cast(), len).and_then(|buf| with(stream, |mut stream| stream.read(buf))) })
}

/// `write(2)`, wherever the connection is.
///
/// # Safety
/// `stream` came from `baton_service_adopt`; `buf` leads to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_write(stream: *mut baton_stream, buf: *const c_void, len: usize) -> isize {
    // SAFETY: the caller's promise.
    done(unsafe { memory::input(buf.cast(), len).and_then(|data| with(stream, |mut stream| stream.write(data))) })
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
        _ => return nothing(Err(Errno(libc::EINVAL))),
    };
    // SAFETY: the caller's promise.
    nothing(unsafe { with(stream, |stream| stream.shut(how)) })
}

/// Whether reads and writes fail with EAGAIN instead of waiting.
///
/// # Safety
/// `stream` came from `baton_service_adopt`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_set_nonblocking(stream: *mut baton_stream, on: c_int) -> c_int {
    // SAFETY: the caller's promise.
    nothing(unsafe {
        with(stream, |stream| {
            stream.set_nonblocking(on != 0);
            Ok(())
        })
    })
}

/// An eventfd for a poll set, wherever the connection is (its descriptor tells nothing while
/// an engine has it): readable (POLLIN, EPOLLIN) once a read or write that failed with EAGAIN
/// is worth another try. So who waits tries first; who sees it readable reads its eight bytes,
/// then tries both. It is the stream's, which closes it at its end; each call returns the
/// same.
///
/// # Safety
/// `stream` came from `baton_service_adopt`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_eventfd(stream: *mut baton_stream) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { with(stream, |stream| Ok(stream.eventfd()?.as_raw_fd())) })
}

/// Where the connection is: one of `BATON_PLACE_...`.
///
/// # Safety
/// `stream` came from `baton_service_adopt`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_place(stream: *mut baton_stream) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe {
        with(stream, |stream| {
            Ok(match stream.place() {
                Place::Kernel => BATON_PLACE_KERNEL,
                Place::Engine => BATON_PLACE_ENGINE,
                Place::Moving => BATON_PLACE_MOVING,
                Place::Ended => BATON_PLACE_ENDED,
            })
        })
    })
}

/// Has the whole connection given back to the kernel, and waits for it. Returns the
/// descriptor that was handed over, a plain socket again and the caller's; the handle is
/// freed. On failure the stream goes on, and its handle with it.
///
/// # Safety
/// `stream` came from `baton_service_adopt`, and nobody else uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_restore(stream: *mut baton_stream) -> c_int {
    // SAFETY: the caller's promise, and once it has succeeded the stream is of no more use.
    done(unsafe {
        with(stream, Stream::take_back).and_then(|fd| {
            guarded(|| Marked::take(stream, STREAM).map(drop))?;
            Ok(fd.into_raw_fd())
        })
    })
}

/// Closes the connection and frees the handle: in form, or by a reset if received bytes were
/// never read. NULL is no error. A handle is freed once, by this or by
/// `baton_stream_restore`: what is at its place later may be another.
///
/// # Safety
/// `stream` is NULL or came from `baton_service_adopt`, and nobody else uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_stream_close(stream: *mut baton_stream) -> c_int {
    if stream.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    nothing(guarded(|| unsafe { Marked::take(stream, STREAM) }.map(drop)))
}
