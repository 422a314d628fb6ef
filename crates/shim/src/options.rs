//! Socket options of a connection in an engine.
//!
//! Options that affect the stream are read from it and set on it. Options that only affect the
//! behaviour of calls, or are hints, are kept on the husk, where they still are when the connection
//! comes home. Any other option brings the connection home first.

use crate::os::socket::TCP_INQ;
use crate::state::Moved;
use crate::table::Slot;
use baton_client::Probing;
use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET, c_int};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How a call is served.
pub enum Answer {
    /// The call succeeds with this value.
    Value(Vec<u8>),
    /// The option was set.
    Set,
    /// The call fails with this error number.
    Failed(i32),
    /// The call is made on the husk.
    Husk,
    /// The connection comes home first, and the kernel serves the call.
    Home,
}

fn int(value: c_int) -> Answer {
    Answer::Value(value.to_ne_bytes().to_vec())
}

fn answer(value: io::Result<Answer>) -> Answer {
    value.unwrap_or_else(|error| Answer::Failed(crate::transfer::errno(&error)))
}

/// `getsockopt(2)`.
pub fn get(moved: &Moved, slot: &Slot, level: c_int, name: c_int) -> Answer {
    let stream = &moved.stream;
    let probing = || stream.keepalive().map(|found| found.map(|p| (p.idle, p.interval, p.probes)));
    match (level, name) {
        (SOL_SOCKET, libc::SO_ERROR) => int(error(moved, slot)),
        (SOL_SOCKET, libc::SO_KEEPALIVE) => answer(probing().map(|found| int(found.is_some().into()))),
        (SOL_SOCKET, libc::SO_LINGER) => answer(stream.linger().map(|linger| {
            let seconds = linger.map_or(0, |span| span.as_secs() as c_int);
            let words = [c_int::from(linger.is_some()), seconds];
            Answer::Value(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
        })),
        (IPPROTO_TCP, libc::TCP_CORK) => answer(stream.cork().map(|on| int(on.into()))),
        (IPPROTO_TCP, libc::TCP_NODELAY) => answer(stream.nodelay().map(|on| int(on.into()))),
        (IPPROTO_TCP, libc::TCP_INFO) => answer(stream.tcp_info().map(Answer::Value)),
        (IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT) => match probing() {
            Ok(Some((idle, interval, probes))) => int(match name {
                libc::TCP_KEEPIDLE => idle.as_secs() as c_int,
                libc::TCP_KEEPINTVL => interval.as_secs() as c_int,
                _ => probes as c_int,
            }),
            Ok(None) => Answer::Husk,
            Err(error) => Answer::Failed(crate::transfer::errno(&error)),
        },
        (IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
            answer(stream.user_timeout().map(|span| int(span.map_or(0, |span| span.as_millis() as c_int))))
        }
        // The size of the segments that are sent, which the husk does not know.
        (IPPROTO_TCP, libc::TCP_MAXSEG) => answer(stream.tcp_info().map(|info| {
            let size = info.get(16..20).and_then(|word| word.try_into().ok());
            int(size.map_or(0, c_int::from_ne_bytes))
        })),
        (SOL_SOCKET | IPPROTO_IP | IPPROTO_IPV6, _) => Answer::Husk,
        (IPPROTO_TCP, name) if is_hint(name) || matches!(name, TCP_INQ | libc::TCP_CONGESTION) => Answer::Husk,
        _ => Answer::Home,
    }
}

/// The pending error of the connection, which is reported once, or 0.
fn error(moved: &Moved, slot: &Slot) -> c_int {
    if let Ok(Some(error)) = moved.stream.take_error() {
        return crate::transfer::errno(&error);
    }
    // A read reports the error after the data that came before it, a write at once.
    let found = || moved.stream.peek(&mut [0]).err().or_else(|| moved.stream.send_pieces(&[], 0, false).err());
    if moved.stream.readiness().failed
        && let Some(error) = found()
        && !slot.error_reported.swap(true, Ordering::Relaxed)
    {
        return crate::transfer::errno(&error);
    }
    0
}

/// True for options that affect when segments are sent, but not which bytes.
fn is_hint(name: c_int) -> bool {
    matches!(name, libc::TCP_QUICKACK | libc::TCP_NOTSENT_LOWAT | libc::TCP_THIN_LINEAR_TIMEOUTS)
}

/// `setsockopt(2)`.
pub fn set(moved: &Moved, level: c_int, name: c_int, value: &[u8]) -> Answer {
    let stream = &moved.stream;
    let word = |at: usize| Some(c_int::from_ne_bytes(value.get(4 * at..4 * at + 4)?.try_into().ok()?));
    let done = |done: io::Result<()>| answer(done.map(|()| Answer::Set));
    if (level, name) == (IPPROTO_TCP, libc::TCP_CONGESTION) {
        let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
        return std::str::from_utf8(text)
            .map_or(Answer::Failed(libc::ENOENT), |name| done(stream.set_congestion(name)));
    }
    let Some(first) = word(0) else {
        // Some IP options accept a single byte.
        return if level == SOL_SOCKET || level == IPPROTO_TCP { Answer::Failed(libc::EINVAL) } else { Answer::Home };
    };
    match (level, name) {
        (SOL_SOCKET, libc::SO_KEEPALIVE) => done(keep(moved, |_| {}, first != 0)),
        (SOL_SOCKET, libc::SO_LINGER) => match word(1) {
            Some(seconds) => {
                let span = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
                done(stream.set_linger((first != 0).then_some(span)))
            }
            None => Answer::Failed(libc::EINVAL),
        },
        (IPPROTO_TCP, libc::TCP_NODELAY) => done(stream.set_nodelay(first != 0)),
        (IPPROTO_TCP, libc::TCP_CORK) => done(stream.set_cork(first != 0)),
        (IPPROTO_TCP, libc::TCP_USER_TIMEOUT) if first >= 0 => {
            done(stream.set_user_timeout((first > 0).then(|| Duration::from_millis(first as u64))))
        }
        (IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => Answer::Failed(libc::EINVAL),
        (IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT) => probing(moved, name, first),
        (IPPROTO_IP, libc::IP_TOS) | (IPPROTO_IPV6, libc::IPV6_TCLASS) if (0..=255).contains(&first) => {
            both(stream.set_traffic_class(first as u8))
        }
        // The husk clamps and doubles the value as any socket does, and reports it to `getsockopt`.
        (SOL_SOCKET, libc::SO_SNDBUF) if first > 0 => both(stream.set_send_buffer(first as u32)),
        (SOL_SOCKET, libc::SO_RCVBUF) if first > 0 => both(stream.set_receive_buffer(first as u32)),
        (SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO | libc::SO_REUSEADDR | libc::SO_REUSEPORT) => Answer::Husk,
        (SOL_SOCKET, libc::SO_BROADCAST | libc::SO_DEBUG | libc::SO_OOBINLINE | libc::SO_BUSY_POLL) => Answer::Husk,
        (SOL_SOCKET, libc::SO_RCVLOWAT) if first <= 1 => Answer::Husk,
        (IPPROTO_IP, libc::IP_MTU_DISCOVER) if !needs_kernel(first) => Answer::Husk,
        (IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) if !needs_kernel(first) => Answer::Husk,
        // It has no effect on an open connection (net/ipv4/tcp.c, `do_tcp_setsockopt`).
        (IPPROTO_TCP, libc::TCP_MAXSEG | TCP_INQ) => Answer::Husk,
        (IPPROTO_TCP, name) if is_hint(name) => Answer::Husk,
        _ => Answer::Home,
    }
}

/// True for a mode of path MTU discovery that the engine does not have: it never lets a packet be
/// fragmented, and never sends one that is too long. The husk refuses an invalid mode.
fn needs_kernel(mode: c_int) -> bool {
    const MODES: std::ops::RangeInclusive<c_int> = libc::IP_PMTUDISC_DONT..=libc::IP_PMTUDISC_OMIT;
    MODES.contains(&mode) && !matches!(mode, libc::IP_PMTUDISC_WANT | libc::IP_PMTUDISC_DO)
}

fn both(set: io::Result<()>) -> Answer {
    answer(set.map(|()| Answer::Husk))
}

/// Changes the keepalive settings of a stream, which begin with Linux's defaults.
fn keep(moved: &Moved, change: impl FnOnce(&mut Probing), on: bool) -> io::Result<()> {
    let default = Probing { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 };
    let mut probing = moved.stream.keepalive()?.unwrap_or(default);
    change(&mut probing);
    moved.stream.set_keepalive(on.then_some(probing))
}

fn probing(moved: &Moved, name: c_int, value: c_int) -> Answer {
    let most = if name == libc::TCP_KEEPCNT { 127 } else { 32_767 };
    if !(1..=most).contains(&value) {
        return Answer::Failed(libc::EINVAL);
    }
    match moved.stream.keepalive() {
        // While keepalive is off, the kernel stores its settings.
        Ok(None) => return Answer::Home,
        Ok(Some(_)) => {}
        Err(error) => return Answer::Failed(crate::transfer::errno(&error)),
    }
    let span = Duration::from_secs(value as u64);
    let kept = keep(
        moved,
        |probing| match name {
            libc::TCP_KEEPIDLE => probing.idle = span,
            libc::TCP_KEEPINTVL => probing.interval = span,
            _ => probing.probes = value as u32,
        },
        true,
    );
    answer(kept.map(|()| Answer::Set))
}
