//! What a connection is ready for, as `poll` and epoll have it: the same bits.

use baton_client::Readiness;

pub const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
pub const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;
pub const HUP: u32 = libc::EPOLLHUP as u32;
pub const ERR: u32 = libc::EPOLLERR as u32;

/// What readiness is in an event.
pub fn bits(there: &Readiness) -> u32 {
    let bit = |is, bits| if is { bits } else { 0 };
    bit(there.readable, IN)
        | bit(there.writable, OUT)
        | bit(there.peer_finished, RDHUP)
        | bit(there.ended, HUP)
        | bit(there.failed, ERR)
}
