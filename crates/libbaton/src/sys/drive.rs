//! Making and driving an engine: frames, time.

use super::config::{baton_config, translate};
use super::{baton, done, memory, nothing, set_errno};
use baton_socket::posix::{Answer, Errno, Posix};
use baton_tcp::time::Instant;
use libc::{c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::sync::atomic::Ordering;

/// Makes an engine. NULL on failure, with `errno` set; then `err`, if it is not
/// NULL, has a line of at most `err_len` bytes that says why.
///
/// # Safety
/// `config` leads to a configuration whose strings end in a zero byte; `err` is
/// NULL or leads to `err_len` bytes.
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
    // SAFETY: not null, aligned, and a configuration by the caller's promise; its
    // size is looked at first.
    if unsafe { (*config).size } != size_of::<baton_config>() {
        return explain(libc::EINVAL, "size: not that of this library's baton_config");
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

/// Frees an engine and all its sockets; peers hear nothing. NULL is no error.
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
        Err(errno) => return nothing(Err(errno)),
    };
    if engine.waiting.load(Ordering::Relaxed) > 0 || engine.busy.swap(true, Ordering::Acquire) {
        return nothing(Err(Errno(libc::EBUSY)));
    }
    engine.mark.store(0, Ordering::Release);
    // SAFETY: it came from `Box::into_raw`, no call uses it, and without the mark
    // none will.
    let engine = unsafe { Box::from_raw(b) };
    if catch_unwind(std::panic::AssertUnwindSafe(|| drop(engine))).is_err() {
        return nothing(Err(Errno(libc::EIO)));
    }
    0
}

/// Gives one frame to the engine; `baton_drive` then looks at it. Returns 0, or
/// -1 with `errno` set: `ENOBUFS` if too many wait, `EMSGSIZE` if it is longer
/// than `baton_frame_bytes`. A frame that was not taken may be dropped.
///
/// # Safety
/// `frame` leads to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_input(b: *mut baton, frame: *const c_void, len: usize) -> c_int {
    nothing((|| {
        // SAFETY: the caller's promise.
        let (engine, frame) = unsafe { (baton::of(b)?, memory::input(frame.cast(), len)?) };
        engine.enter(|posix| posix.input(frame))
    })())
}

/// Takes one frame to be sent: its length, 0 if there is none, or -1 with `errno`
/// set: `EINVAL` if `cap` is less than `baton_frame_bytes`.
///
/// # Safety
/// `buf` leads to `cap` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_output(b: *mut baton, buf: *mut c_void, cap: usize) -> isize {
    done((|| {
        // SAFETY: the caller's promise.
        let (engine, buf) = unsafe { (baton::of(b)?, memory::output(buf.cast(), cap)?) };
        engine.enter(|posix| posix.output(buf)).map(|taken| taken.unwrap_or(0))
    })())
}

/// Bytes of the largest frame that comes or goes; -1 with `errno` set.
///
/// # Safety
/// `b` came from `baton_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_frame_bytes(b: *mut baton) -> isize {
    // SAFETY: the caller's promise.
    done(unsafe { baton::of(b) }.and_then(|engine| engine.enter(|posix| Ok(posix.frame_bytes()))))
}

/// Lets the engine work, at time `now_ns` of the caller's clock: frames given,
/// timers due, what calls asked for. Returns 0, or -1 with `errno` set.
///
/// # Safety
/// `b` came from `baton_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_drive(b: *mut baton, now_ns: u64) -> c_int {
    // SAFETY: the caller's promise.
    nothing(unsafe { baton::of(b) }.and_then(|engine| engine.enter(|posix| posix.drive(Instant(now_ns)))))
}

/// When `baton_drive` has something to do, in nanoseconds of the caller's clock,
/// if no frame comes and no call is made before: `UINT64_MAX` for never, a time
/// that has passed for now. 0 with `errno` set if `b` is no engine.
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
