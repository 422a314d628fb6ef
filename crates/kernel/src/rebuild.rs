//! Into the kernel: builds a connection on a descriptor whose own connection is removed first.
//!
//! The kernel dictates the order: it refuses each step unless the steps before it are done.
//!
//! ```text
//!   connect(AF_UNSPEC)    forgets the old connection; in repair mode nothing is sent
//!   TCP_REPAIR on         again: it lets bind take an address that is in use
//!   TCP_MAXSEG            before connect, which computes the segment size
//!   bind, TCP_QUEUE_SEQ   only while closed; wherever the address is (`anyway.rs`)
//!   TCP_FASTOPEN_CONNECT  off before connect, which it would put off
//!   connect               in repair mode: ESTABLISHED, nothing is sent, SO_ERROR clear
//!   TCP_REPAIR_OPTIONS    only once connected and before anything is queued
//!   TCP_TIMESTAMP
//!   -- so far a husk ------------------------------------------------------
//!   route's MTU           while nothing is queued
//!   longest timeout       before a timer runs
//!   receive queue         moves rcv_nxt
//!   send queue, sent      moves snd_nxt
//!   send queue, unsent    behind a closed window
//!   FINs                  behind the same closed window
//!   socket options, buffers
//!   windows               last: rcv_wup may not be after rcv_nxt
//!   TCP_REPAIR off        the connection lives
//! ```
//!
//! All steps but the last can be undone by [`make_husk`]. The first step wakes a waiting program
//! once: `poll` and `epoll` then report POLLHUP until the connect, and a blocked `recv` returns. So
//! the caller must make sure that nobody waits on the descriptor of a connection that it moves.

use crate::agreed::{restore_agreed, restore_segment_size};
use crate::anyway::{bind_anyway, connect_anyway, is_ours};
use crate::buffers::{make_room, restore_buffers};
use crate::capture::{deafen, undeafen};
use crate::captured::{Captured, Invalid};
use crate::error::{During, Failed};
use crate::half_closed::{ask_peer, restore_state, tell_peer};
use crate::path_mtu::restore_path_mtu;
use crate::receive_queue::restore_unread;
use crate::repair::{self, Leave};
use crate::send_queue::{restore_sent, restore_unsent};
use crate::sequence::restore_ends;
use crate::socket_options::{
    IntOption, hasten, restore_reuse_address, restore_socket_options, restore_timeout_max, silence,
};
use crate::timestamps::restore_timestamps;
use crate::windows::{restore_window_clamp, restore_windows, windows_of};
use baton_tcp::state::State;
use baton_wire::seq::Seq;
use rustix::net::{connect_unspec, getsockname};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// Why a connection was not restored. The captured connection is still whole: it can be tried
/// again, or continue in the engine. Until then the socket cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The captured connection contradicts itself. Nothing was done.
    #[error("the captured connection is damaged: {0}")]
    Invalid(#[from] Invalid),
    /// The kernel refused a step.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The socket did not get the connection's address.
    #[error("the kernel gave the socket the address {0}")]
    Address(SocketAddr),
    /// The kernel did not receive the peer's FIN, or its ACK of ours.
    #[error("the kernel did not reach {0:?}: is a firewall dropping segments on the loopback device?")]
    HalfClosed(State),
    /// The kernel would take back this many bytes of the window promised to the peer.
    #[error("the kernel takes back {0} bytes of the receive window promised to the peer")]
    WindowRetraction(u32),
}

/// Makes a husk of a captured connection's socket: empty, without timers, in repair mode, and deaf
/// to segments (through a socket filter, unless the program has one of its own). The descriptor,
/// the addresses, registrations with epoll and the entry in `ss` remain. A program that reads or
/// writes gets `EPERM` and `EINVAL`. Closing a husk sends nothing.
///
/// # Errors
/// Errors from [`rebuild`]; afterwards [`rebuild`] may be tried.
pub fn make_husk(fd: impl AsFd, captured: &Captured) -> Result<(), RestoreError> {
    captured.check()?;
    let p = &captured.protocol;
    let fd = fd.as_fd();
    reopen(fd, captured, p.snd_nxt, p.rcv_nxt)?;
    deafen(fd)?;
    repair::set_windows(fd, windows_of(captured, p.rcv_nxt)).during("setting the windows")?;
    Ok(())
}

/// Removes a husk from its connection's place, so that another connection may have the same
/// addresses and ports. The descriptor then refers to an unconnected socket. Nothing is sent.
///
/// # Errors
/// Errors from the kernel.
pub fn vacate(fd: impl AsFd) -> Result<(), Failed> {
    connect_unspec(fd).during("disconnecting a husk")
}

/// Builds the connection on a husk, or on any TCP socket of its address family, and leaves it in
/// repair mode: nothing is sent before [`resume`]. Call this in the socket's network namespace.
///
/// # Errors
/// [`RestoreError`]; [`make_husk`] then undoes the rebuild.
pub fn rebuild(fd: impl AsFd, captured: &Captured) -> Result<(), RestoreError> {
    captured.check()?;
    let p = &captured.protocol;
    let fd = fd.as_fd();
    let (sent, unsent) = captured.sent_and_unsent();
    // Where the data begins. In FIN-WAIT-2 all of it is acknowledged, and so is the FIN.
    let snd = if p.state == State::FinWait2 { Seq(p.snd_una.0.wrapping_sub(1)) } else { p.snd_una };
    reopen(fd, captured, snd, p.copied_seq)?;
    undeafen(fd)?;
    // This comes before anything is queued, because the kernel would segment and send queued data
    // again. If it fails, the kernel discovers the MTU by itself.
    let _ = restore_path_mtu(fd, captured, snd);
    // An older kernel has no such limit.
    let _ = hasten(fd, &captured.options);
    make_room(fd, captured).during("making room in the buffers")?;
    restore_unread(fd, &captured.receive_queue).during("filling the receive queue")?;
    restore_sent(fd, sent).during("filling the send queue")?;
    let before_fin = p.copied_seq + captured.receive_queue.len() as u32;
    restore_unsent(fd, unsent, sent.len() as u32, windows_of(captured, before_fin))
        .during("filling the send queue with what was not sent")?;
    if !restore_state(fd, captured).during("restoring the closed sides")? {
        return Err(RestoreError::HalfClosed(p.state));
    }
    restore_socket_options(fd, &captured.options).during("setting the socket's options")?;
    restore_buffers(fd, captured).during("setting the sizes of the buffers")?;
    let taken_back = restore_windows(fd, captured).during("setting the windows")?;
    if taken_back > 0 {
        return Err(RestoreError::WindowRetraction(taken_back));
    }
    restore_window_clamp(fd, captured).during("setting the largest window")?;
    Ok(())
}

/// Lets a rebuilt connection run. Its segments must reach the kernel by now. A window probe asks
/// the peer for what was lost. Call this in the socket's network namespace.
///
/// # Errors
/// If the kernel does not turn repair mode off. Segments may have reached the socket since
/// [`rebuild`]: to undo it, call [`recapture`](crate::recapture) first.
pub fn resume(fd: impl AsFd, captured: &Captured) -> Result<(), Failed> {
    let fd = fd.as_fd();
    repair::leave(fd, Leave::Probing).during("turning repair mode off")?;
    // The connection runs. None of these calls fails on a socket. If one did, the connection would
    // still be intact: its unsent data would wait for the peer's next segment.
    let _ = restore_reuse_address(fd, &captured.options);
    let _ = push(fd, captured);
    let _ = restore_timeout_max(fd, &captured.options);
    let (asks, tells) = (wants_answer(captured), captured.protocol.rcv_wnd() < NARROW);
    // Nothing may be sent from an address that the host does not have now.
    if (asks || tells) && is_ours(captured.local).unwrap_or(false) {
        // Errors do not matter here either: without an answer, a timeout resolves it.
        if asks {
            let _ = ask_peer(fd, captured);
        }
        if tells {
            let _ = tell_peer(fd, captured);
        }
    }
    Ok(())
}

/// A peer whose window has at least this many bytes can send segments, and learns of more room from
/// their ACKs.
const NARROW: u32 = 4096;

/// Returns true if the connection could stall until a timeout when the kernel's own probe is not
/// answered: something is to be sent or acknowledged, or the peer had no room for two segments.
fn wants_answer(captured: &Captured) -> bool {
    let p = &captured.protocol;
    let narrow = p.snd_wnd < 2 * u32::from(p.peer_mss) && p.state == State::Established;
    p.snd_una != p.write_seq && p.state != State::FinWait2 || narrow
}

/// [`rebuild`], then [`resume`].
///
/// # Errors
/// Errors from [`rebuild`] and [`resume`].
pub fn restore(fd: impl AsFd, captured: &Captured) -> Result<(), RestoreError> {
    rebuild(&fd, captured)?;
    Ok(resume(&fd, captured)?)
}

/// Data written behind a closed window does not leave by itself. Setting `TCP_NODELAY` pushes it; a
/// corked program wants to wait.
fn push(fd: BorrowedFd<'_>, captured: &Captured) -> std::io::Result<()> {
    let p = &captured.protocol;
    let set = |option| captured.options.int(option).is_some_and(|value| value != 0);
    if p.snd_nxt == p.write_seq || set(IntOption::Cork) {
        return Ok(());
    }
    let pushed = IntOption::NoDelay.write(fd, 1);
    IntOption::NoDelay.write(fd, i32::from(set(IntOption::NoDelay))).and(pushed)
}

/// The steps up to a husk. The queues begin at `snd` and `rcv`.
fn reopen(fd: BorrowedFd<'_>, captured: &Captured, snd: Seq, rcv: Seq) -> Result<(), RestoreError> {
    let p = &captured.protocol;
    // On a socket in repair mode this changes nothing. On any other it keeps the next step from
    // sending a reset.
    repair::enter(fd).during("turning repair mode on")?;
    connect_unspec(fd).during("removing the old connection")?;
    silence(fd).during("turning keepalive off")?;
    restore_segment_size(fd, p.peer_mss).during("setting the segment size")?;
    bind_anyway(fd, captured.local).during("binding the address")?;
    repair::connect_at_once(fd).during("disabling the deferred connect")?;
    restore_ends(fd, snd, rcv).during("setting the sequence numbers")?;
    connect_anyway(fd, captured.local, captured.remote).during("connecting in repair mode")?;
    let local = getsockname(fd).during("asking for the local address")?;
    if let Ok(local) = SocketAddr::try_from(local)
        && (local.ip(), local.port()) != (captured.local.ip(), captured.local.port())
    {
        return Err(RestoreError::Address(local));
    }
    restore_agreed(fd, p).during("setting the options that the SYNs agreed on")?;
    if let Some(timestamps) = p.timestamps {
        restore_timestamps(fd, timestamps).during("setting the timestamp clock")?;
    }
    Ok(())
}
