//! Waiting for several descriptors: `poll` and `epoll`. Without a wait callback every timeout
//! is treated as 0: the calls report what is ready now.

use super::{baton, memory, status, to_c};
use baton_socket::posix::{Answer, Errno};
use libc::{c_int, epoll_event, nfds_t, pollfd};

/// The largest number of descriptors that one `baton_poll` accepts.
const POLL_MAX: usize = 1 << 20;

/// `poll(2)` on descriptors of the engine.
///
/// # Safety
/// `fds` points to `count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_poll(b: *mut baton, fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    to_c((|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { baton::of(b)? };
        let count = usize::try_from(count).ok().filter(|count| *count <= POLL_MAX).ok_or(Errno(libc::EINVAL))?;
        if count > 0 && (fds.is_null() || !fds.is_aligned()) {
            return Err(Errno(libc::EFAULT));
        }
        until_ready(engine, timeout_ms, || {
            let mut ready = 0;
            for at in 0..count {
                // SAFETY: an entry that the caller promised, and aligned as checked above; the
                // reference does not outlive this turn, so the wait callback may read it.
                let entry = unsafe { &mut *fds.add(at) };
                let fd = entry.fd;
                let mask = match fd {
                    ..0 => 0,
                    _ => engine.enter(|posix| Ok(posix.poll_mask(fd, entry.events as u16 as u32)))?,
                };
                entry.revents = mask as i16;
                ready += usize::from(mask != 0);
            }
            Ok(ready)
        })
    })())
}

/// `epoll_create1(2)`. Close the instance with `baton_close`.
///
/// # Safety
/// `b` came from `baton_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_epoll_create1(b: *mut baton, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    to_c(unsafe { baton::of(b) }.and_then(|engine| engine.enter(|posix| posix.epoll_create(flags))))
}

/// `epoll_ctl(2)`, with EPOLLET, EPOLLONESHOT and EPOLLRDHUP. Only sockets can be added.
///
/// # Safety
/// `event` is NULL or points to an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_epoll_ctl(
    b: *mut baton,
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    status((|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { baton::of(b)? };
        let (events, data) = match op {
            libc::EPOLL_CTL_DEL => (0, 0),
            // SAFETY: the caller's promise.
            _ => unsafe { memory::read(event) }.map(|event| (event.events, event.u64))?,
        };
        engine.enter(|posix| posix.epoll_ctl(epfd, op, fd, events, data))
    })())
}

/// `epoll_wait(2)`.
///
/// # Safety
/// `events` points to an array of `max` events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_epoll_wait(
    b: *mut baton,
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout_ms: c_int,
) -> c_int {
    to_c((|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { baton::of(b)? };
        let max = usize::try_from(max).ok().filter(|max| *max > 0).ok_or(Errno(libc::EINVAL))?;
        if events.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        until_ready(engine, timeout_ms, || {
            let ready = engine.enter(|posix| posix.epoll_ready(epfd, max))?;
            for (at, (events_bits, data)) in ready.iter().enumerate() {
                let event = epoll_event { events: *events_bits, u64: *data };
                // SAFETY: `at` is below `max`, for which the caller promised room.
                unsafe { memory::write(events.add(at), event)? };
            }
            Ok(ready.len())
        })
    })())
}

/// Repeats `look` until it finds something ready or `timeout_ms` has passed. A negative timeout
/// is infinite.
fn until_ready(engine: &baton, timeout_ms: c_int, mut look: impl FnMut() -> Answer<usize>) -> Answer<usize> {
    let now = engine.enter(|posix| Ok(posix.now().0))?;
    let until_ns = match u64::try_from(timeout_ms) {
        Ok(millis) => now.saturating_add(millis * 1_000_000),
        Err(_) => u64::MAX,
    };
    loop {
        let ready = look()?;
        if ready > 0 || timeout_ms == 0 {
            return Ok(ready);
        }
        match engine.wait(until_ns) {
            Ok(()) => {}
            Err(Errno(libc::EAGAIN)) => return Ok(0),
            Err(errno) => return Err(errno),
        }
    }
}
