//! Creating and driving an engine: frames and time.

use super::config::{baton_config, translate};
use super::{baton, memory, set_errno, status, to_c};
use baton_socket::posix::{Answer, Errno, Posix};
use baton_tcp::time::Instant;
use libc::{c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::sync::atomic::Ordering;

/// Creates an engine. Returns NULL on failure, with `errno` set; if `err` is not NULL, the
/// reason is then written to it as one line of at most `err_len` bytes, including the
/// terminating zero.
///
/// # Safety
/// `config` points to a configuration whose strings are zero-terminated; `err` is NULL or
/// points to `err_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_new(config: *const baton_config, err: *mut c_char, err_len: usize) -> *mut baton {
    let explain = |errno: c_int, why: &str| {
        set_errno(Errno(errno));
        let len = why.len().min(err_len.saturating_sub(1));
        // SAFETY: the caller's promise about `err`; `len` is less than `err_len`.
        if let (1.., Ok(buf)) = (err_len, unsafe { memory::output(err.cast(), len + 1) }) {
            buf[..len].copy_from_slice(&why.as_bytes()[..len]);
            buf[len] = 0;
        }
        std::ptr::null_mut()
    };
    if config.is_null() || !config.is_aligned() {
        return explain(libc::EFAULT, "no configuration");
    }
    // SAFETY: not null, aligned, and a configuration by the caller's promise; its size is
    // checked first.
    if unsafe { (*config).size } != size_of::<baton_config>() {
        return explain(libc::EINVAL, "size: not the size of this library's baton_config");
    }
    // SAFETY: as above, and the size is right.
    let config = unsafe { &*config };
    let made = catch_unwind(|| {
        // SAFETY: the caller's promise about the strings and the secret.
        let posix = unsafe { translate(config)? };
        Posix::new(&posix).map_err(|error| error.to_string())
    });
    match made {
        Ok(Ok(posix)) => Box::into_raw(Box::new(baton::new(posix, config.wait, config.wait_arg))),
        Ok(Err(why)) => explain(libc::EINVAL, &why),
        Err(_) => explain(libc::EIO, "internal error"),
    }
}

/// Frees an engine and all its sockets; nothing is sent to the peers. NULL is allowed.
/// Returns 0, or -1 with `errno` set: `EBUSY` while a call is in progress.
///
/// # Safety
/// `b` is NULL or came from `baton_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_free(b: *mut baton) -> c_int {
    if b.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let engine = match unsafe { baton::of(b) } {
        Ok(engine) => engine,
        Err(errno) => return status(Err(errno)),
    };
    if engine.waiting.load(Ordering::Relaxed) > 0 || engine.busy.swap(true, Ordering::Acquire) {
        return status(Err(Errno(libc::EBUSY)));
    }
    engine.mark.store(0, Ordering::Release);
    // SAFETY: it came from `Box::into_raw`, no call uses it, and without the mark no later
    // call will.
    let engine = unsafe { Box::from_raw(b) };
    if catch_unwind(std::panic::AssertUnwindSafe(|| drop(engine))).is_err() {
        return status(Err(Errno(libc::EIO)));
    }
    0
}

/// Queues one received frame for the engine; the next `baton_drive` processes it. Returns 0,
/// or -1 with `errno` set: `ENOBUFS` if the queue is full, `EMSGSIZE` if the frame is longer
/// than `baton_frame_bytes`. The caller may drop a frame that was not accepted.
///
/// # Safety
/// `frame` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_input(b: *mut baton, frame: *const c_void, len: usize) -> c_int {
    status((|| {
        // SAFETY: the caller's promise.
        let (engine, frame) = unsafe { (baton::of(b)?, memory::input(frame.cast(), len)?) };
        engine.enter(|posix| posix.input(frame))
    })())
}

/// Takes one frame that is to be sent. Returns its length, 0 if no frame is ready, or -1 with
/// `errno` set: `EINVAL` if `cap` is less than `baton_frame_bytes`.
///
/// # Safety
/// `buf` points to `cap` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_output(b: *mut baton, buf: *mut c_void, cap: usize) -> isize {
    to_c((|| {
        // SAFETY: the caller's promise.
        let (engine, buf) = unsafe { (baton::of(b)?, memory::output(buf.cast(), cap)?) };
        engine.enter(|posix| posix.output(buf)).map(|taken| taken.unwrap_or(0))
    })())
}

/// Returns the length in bytes of the largest frame in either direction, or -1 with `errno`
/// set.
///
/// # Safety
/// `b` came from `baton_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_frame_bytes(b: *mut baton) -> isize {
    // SAFETY: the caller's promise.
    to_c(unsafe { baton::of(b) }.and_then(|engine| engine.enter(|posix| Ok(posix.frame_bytes()))))
}

/// Runs the engine at time `now_ns` of the caller's clock: it processes queued frames, due
/// timers, and requests from earlier calls. Returns 0, or -1 with `errno` set.
///
/// # Safety
/// `b` came from `baton_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_drive(b: *mut baton, now_ns: u64) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { baton::of(b) }.and_then(|engine| engine.enter(|posix| posix.drive(Instant(now_ns)))))
}

/// Returns the time, in nanoseconds of the caller's clock, at which `baton_drive` next has
/// work to do if no frame arrives and no call is made before then. A time in the past means
/// now; `UINT64_MAX` means never. Returns 0 with `errno` set if `b` is not an engine.
///
/// # Safety
/// `b` came from `baton_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_next_deadline(b: *mut baton) -> u64 {
    // SAFETY: the caller's promise.
    let answer: Answer<u64> = unsafe { baton::of(b) }
        .and_then(|engine| engine.enter(|posix| Ok(posix.next_deadline().map_or(u64::MAX, |next| next.0))));
    answer.unwrap_or_else(|errno| {
        set_errno(errno);
        0
    })
}
