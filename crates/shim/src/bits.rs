//! The readiness of a connection as event bits, which are the same for `poll` and epoll.

use baton_client::Readiness;

pub const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
pub const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;
pub const HUP: u32 = libc::EPOLLHUP as u32;
pub const PRI: u32 = libc::EPOLLPRI as u32;
pub const ERR: u32 = libc::EPOLLERR as u32;

/// The event bits for a readiness.
pub fn bits(readiness: &Readiness) -> u32 {
    let bit = |is, bits| if is { bits } else { 0 };
    bit(readiness.readable, IN)
        | bit(readiness.writable, OUT)
        | bit(readiness.peer_finished, RDHUP)
        | bit(readiness.ended, HUP)
        | bit(readiness.failed, ERR)
        | bit(readiness.urgent, PRI)
}
