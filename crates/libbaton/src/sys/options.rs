//! Socket options.

use super::{baton, memory, status};
use libc::{c_int, c_void, socklen_t};

/// `getsockopt(2)`. SOL_SOCKET: SO_ERROR, SO_TYPE, SO_DOMAIN, SO_PROTOCOL,
/// SO_ACCEPTCONN, SO_REUSEADDR, SO_KEEPALIVE, SO_LINGER, SO_RCVBUF, SO_SNDBUF,
/// SO_RCVTIMEO, SO_SNDTIMEO. IPPROTO_TCP: TCP_NODELAY, TCP_CORK, TCP_QUICKACK,
/// TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT, TCP_LINGER2,
/// TCP_MAXSEG, TCP_NOTSENT_LOWAT, TCP_INQ, TCP_CONGESTION, TCP_INFO. IPPROTO_IP: IP_TOS,
/// IP_TTL, IP_MTU_DISCOVER. IPPROTO_IPV6: IPV6_V6ONLY, IPV6_TCLASS, IPV6_UNICAST_HOPS.
///
/// # Safety
/// `value` points to `*len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_getsockopt(
    b: *mut baton,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    status((|| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { baton::of(b)? }.enter(|posix| posix.option(fd, level, name))?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_bytes(&bytes, value.cast(), len) }
    })())
}

/// `setsockopt(2)`, with those options of `baton_getsockopt` that are not read-only. SO_RCVBUF
/// and SO_SNDBUF set how much of the engine's `buffer_bytes` a socket uses: at least 2048, at
/// most all of it. Reading them back returns the value in effect, not doubled as in Linux. A
/// window that was advertised to the peer before is not withdrawn. The congestion control is
/// that of the engine. TCP_MAXSEG applies to connections that the socket opens later.
/// IP_MTU_DISCOVER accepts IP_PMTUDISC_WANT and IP_PMTUDISC_DO, which have the same effect
/// here, and IP_PMTUDISC_DONT; any other value fails with EINVAL.
///
/// # Safety
/// `value` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_setsockopt(
    b: *mut baton,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    status((|| {
        // SAFETY: the caller's promise.
        let (engine, value) = unsafe { (baton::of(b)?, memory::input(value.cast(), len as usize)?) };
        engine.enter(|posix| posix.set_option(fd, level, name, value))
    })())
}
