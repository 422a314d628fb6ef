//! The boundary to C, and the only unsafe code of this crate.
//!
//! Safety rules of these modules:
//! * A `baton *` is used only after a check that it is not null, is aligned, and has the mark
//!   of an engine. The same holds for the handles of [`service`]. Freeing a handle clears the
//!   mark. (A pointer to unreadable memory cannot be detected.)
//! * `Posix` is reached only through [`baton::enter`], which one call holds at a time; so no
//!   two `&mut` to it exist, not even when a wait callback calls back.
//! * The caller's memory is read or written only within the lengths that the caller gave, and
//!   no reference to it outlives the call.
//! * No panic crosses into C: all work happens within [`baton::enter`] or
//!   [`service::guarded`], which catch panics.

mod config;
mod drive;
mod events;
mod memory;
mod options;
mod service;
mod sockets;
mod transfer;

use baton_socket::posix::{Answer, Errno, Fd, Posix, Side};
use libc::{c_int, c_void};
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The first word of an engine; no other object begins with it.
const MARK: u64 = u64::from_le_bytes(*b"batonabi");

/// Lets time pass while a call blocks; see [`config::baton_config`].
pub type baton_wait_fn = unsafe extern "C" fn(arg: *mut c_void, until_ns: u64) -> c_int;

/// An engine and its sockets. Opaque to C.
#[repr(C)]
pub struct baton {
    /// The first field, so that the check of an invalid handle reads nothing else.
    mark: AtomicU64,
    /// A call is in progress.
    busy: AtomicBool,
    /// A panic was caught: the state of the sockets may be inconsistent.
    dead: AtomicBool,
    /// Number of calls that are in the wait callback.
    waiting: AtomicU32,
    wait: Option<baton_wait_fn>,
    wait_arg: *mut c_void,
    posix: UnsafeCell<Posix>,
}

impl baton {
    fn new(posix: Posix, wait: Option<baton_wait_fn>, wait_arg: *mut c_void) -> baton {
        baton {
            mark: AtomicU64::new(MARK),
            busy: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            wait,
            wait_arg,
            posix: UnsafeCell::new(posix),
        }
    }

    /// The engine behind a handle, or `EFAULT` if the handle is invalid.
    ///
    /// # Safety
    /// `b` is null, points to eight readable bytes, or came from `baton_new`; and it is not freed
    /// while the reference is in use.
    unsafe fn of<'a>(b: *mut baton) -> Answer<&'a baton> {
        if b.is_null() || !b.is_aligned() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: not null, aligned, and eight bytes are readable by the caller's promise; an
        // engine begins with the mark.
        let mark = unsafe { (*b.cast::<AtomicU64>()).load(Ordering::Acquire) };
        if mark != MARK {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: it has the mark that only `new` sets.
        Ok(unsafe { &*b })
    }

    /// Runs `work` on the sockets.
    fn enter<T>(&self, work: impl FnOnce(&mut Posix) -> Answer<T>) -> Answer<T> {
        if self.dead.load(Ordering::Relaxed) {
            return Err(Errno(libc::EIO));
        }
        if self.busy.swap(true, Ordering::Acquire) {
            return Err(Errno(libc::EBUSY));
        }
        // SAFETY: `busy` was false and is true now: this is the only reference.
        let posix = unsafe { &mut *self.posix.get() };
        let done = catch_unwind(AssertUnwindSafe(|| work(posix))).unwrap_or_else(|panic| {
            self.dead.store(true, Ordering::Relaxed);
            // Dropping the payload could panic again.
            std::mem::forget(panic);
            Err(Errno(libc::EIO))
        });
        self.busy.store(false, Ordering::Release);
        done
    }

    /// Calls the caller's wait callback, which returns at `until_ns` at the latest.
    ///
    /// # Errors
    /// `EAGAIN` if `until_ns` has passed or there is no callback, `EINTR` if the callback asks to
    /// stop.
    fn wait(&self, until_ns: u64) -> Answer<()> {
        let wait = self.wait.ok_or(Errno(libc::EAGAIN))?;
        let (now, next) = self.enter(|posix| Ok((posix.now().0, posix.next_deadline())))?;
        if now >= until_ns {
            return Err(Errno(libc::EAGAIN));
        }
        let until_ns = next.map_or(until_ns, |next| next.0.min(until_ns));
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `baton_new` was given the callback and its argument for use by the calling
        // thread; `busy` is not held, so the callback may call the engine.
        let stop = unsafe { wait(self.wait_arg, until_ns) };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if stop == 0 { Ok(()) } else { Err(Errno(libc::EINTR)) }
    }

    /// Repeats `call` until it returns something other than `EAGAIN`, or the socket's time limit
    /// has passed. Calls it once if the call may not wait.
    fn blocking<T>(
        &self,
        fd: Fd,
        side: Side,
        may_wait: bool,
        mut call: impl FnMut(&mut Posix) -> Answer<T>,
    ) -> Answer<T> {
        let mut until = None;
        loop {
            let tried = self.enter(&mut call);
            if !may_wait || !matches!(tried, Err(Errno(libc::EAGAIN))) {
                return tried;
            }
            let until_ns = match until {
                Some(until_ns) => until_ns,
                None => match self.enter(|posix| posix.patience(fd, side))? {
                    Some(until_ns) => *until.insert(until_ns),
                    None => return tried,
                },
            };
            self.wait(until_ns)?;
        }
    }
}

/// Sets `errno`.
fn set_errno(errno: Errno) {
    // SAFETY: glibc and musl return the calling thread's valid `errno`.
    unsafe { *libc::__errno_location() = errno.0 }
}

/// Converts a result to C's convention: a number that is not negative, or -1 with `errno` set.
fn to_c<T: TryInto<R>, R: From<i8>>(answer: Answer<T>) -> R {
    let answer = answer.and_then(|value| value.try_into().map_err(|_| Errno(libc::EOVERFLOW)));
    answer.unwrap_or_else(|errno| {
        set_errno(errno);
        R::from(-1)
    })
}

/// As [`to_c`], for calls that return 0 on success.
fn status(answer: Answer<()>) -> c_int {
    to_c(answer.map(|()| 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_socket::host::HostConfig;
    use baton_socket::posix::PosixConfig;
    use baton_tcp::time::Instant;

    fn engine() -> baton {
        let host = HostConfig::new("10.0.0.1/24".parse().unwrap());
        let config = PosixConfig { host, queue_frames: 8, descriptors: 8, now: Instant(0) };
        baton::new(Posix::new(&config).unwrap(), None, std::ptr::null_mut())
    }

    #[test]
    fn after_a_panic_each_call_on_the_engine_fails() {
        let engine = engine();
        assert_eq!(engine.enter(|_| Ok(1)), Ok(1));
        assert_eq!(engine.enter::<()>(|_| panic!("on purpose")), Err(Errno(libc::EIO)));
        let engine = Box::into_raw(Box::new(engine));
        // SAFETY: the handle is as `baton_new` makes it, and is freed once.
        unsafe {
            assert_eq!(drive::baton_drive(engine, 1), -1);
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
            assert_eq!(drive::baton_free(engine), 0);
        }
    }

    #[test]
    fn one_call_at_a_time_uses_an_engine() {
        let engine = engine();
        let within = engine.enter(|_| Ok(engine.enter(|_| Ok(()))));
        assert_eq!(within, Ok(Err(Errno(libc::EBUSY))));
        assert_eq!(engine.enter(|_| Ok(())), Ok(()));
    }
}
