//! To the kernel: a connection is built on a descriptor whose own is taken away.
//!
//! The order is the kernel's: each step is refused unless those before it were done.
//!
//! ```text
//!   connect(AF_UNSPEC)    forgets the old connection; in repair mode nothing is sent
//!   TCP_REPAIR on         again: it makes bind take the address whoever uses it
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
//! All but the last step can be undone by [`make_husk`]. A waiting program is woken
//! once, at the first step: `poll` and `epoll` then show POLLHUP until the connect, and
//! a blocked `recv` returns. So whoever moves a connection sees to it that nobody waits
//! on its descriptor.

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

/// Why a connection was not put back. The captured connection is still whole: it can be
/// tried again, or go on in the engine. The socket is of no use until then.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// What was captured contradicts itself; nothing was done.
    #[error("the captured connection is damaged: {0}")]
    Invalid(#[from] Invalid),
    /// The kernel said no.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The socket did not get the connection's address.
    #[error("the kernel gave the socket the address {0}")]
    Address(SocketAddr),
    /// The kernel did not hear the peer's FIN, or its ACK of ours.
    #[error("the kernel did not come to {0:?}: is a firewall dropping segments on the loopback device?")]
    HalfClosed(State),
    /// The kernel would take back so many bytes of window that the peer was promised.
    #[error("the kernel takes back {0} bytes of the receive window that was promised")]
    WindowRetraction(u32),
}

/// Makes a husk of a captured connection's socket: empty, without timers, in repair mode,
/// deaf to segments (by a socket filter, unless the program has one of its own).
/// Descriptor, addresses, registrations with epoll and the entry in `ss` stay; a program
/// that reads or writes gets `EPERM` and `EINVAL`; closing it sends nothing.
///
/// # Errors
/// As [`rebuild`]; then [`rebuild`] may be tried.
pub fn make_husk(fd: impl AsFd, captured: &Captured) -> Result<(), RestoreError> {
    captured.check()?;
    let p = &captured.protocol;
    let fd = fd.as_fd();
    reopen(fd, captured, p.snd_nxt, p.rcv_nxt)?;
    deafen(fd)?;
    repair::set_windows(fd, windows_of(captured, p.rcv_nxt)).during("setting the windows")?;
    Ok(())
}

/// Takes a husk out of its connection's place, so that there may be another of that name;
/// whoever holds the descriptor has a socket that is not connected. Nothing is sent.
///
/// # Errors
/// As the kernel's.
pub fn vacate(fd: impl AsFd) -> Result<(), Failed> {
    connect_unspec(fd).during("taking a husk off its connection's place")
}

/// Builds the connection on a husk, or on any TCP socket of its address family, and
/// leaves it in repair mode: nothing is sent before [`resume`]. The caller is in the
/// socket's network namespace.
///
/// # Errors
/// [`RestoreError`]; then [`make_husk`] undoes it.
pub fn rebuild(fd: impl AsFd, captured: &Captured) -> Result<(), RestoreError> {
    captured.check()?;
    let p = &captured.protocol;
    let fd = fd.as_fd();
    let (sent, unsent) = captured.sent_and_unsent();
    // Where the data begins; in FIN-WAIT-2 all of it is acknowledged, and the FIN too.
    let snd = if p.state == State::FinWait2 { Seq(p.snd_una.0.wrapping_sub(1)) } else { p.snd_una };
    reopen(fd, captured, snd, p.copied_seq)?;
    undeafen(fd)?;
    // Before anything is queued, which the kernel would cut anew and send again. Where it
    // does not work the kernel finds out by itself.
    let _ = restore_path_mtu(fd, captured, snd);
    // An older kernel has no such limit.
    let _ = hasten(fd, &captured.options);
    make_room(fd, captured).during("making room in the buffers")?;
    restore_unread(fd, &captured.receive_queue).during("filling the receive queue")?;
    restore_sent(fd, sent).during("filling the send queue")?;
    let before_fin = p.copied_seq + captured.receive_queue.len() as u32;
    restore_unsent(fd, unsent, sent.len() as u32, windows_of(captured, before_fin))
        .during("filling the send queue with what was not sent")?;
    if !restore_state(fd, captured).during("closing what was closed")? {
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

/// Lets a rebuilt connection live. Its segments must reach the kernel by now. The peer is
/// asked, by a window probe, for what was lost. The caller is in the socket's network
/// namespace.
///
/// # Errors
/// If the kernel does not turn repair mode off. Segments may have reached the socket since
/// [`rebuild`]: to undo it, [`recapture`](crate::recapture) first.
pub fn resume(fd: impl AsFd, captured: &Captured) -> Result<(), Failed> {
    let fd = fd.as_fd();
    repair::leave(fd, Leave::Probing).during("turning repair mode off")?;
    // It lives. None of these fails on a socket; if one did, the connection would be
    // none the worse: its unsent data waits for the peer's next segment.
    let _ = restore_reuse_address(fd, &captured.options);
    let _ = push(fd, captured);
    let _ = restore_timeout_max(fd, &captured.options);
    let (asks, tells) = (wants_answer(captured), captured.protocol.rcv_wnd() < NARROW);
    // From an address that is away nothing is said.
    if (asks || tells) && is_ours(captured.local).unwrap_or(false) {
        // Nor this: without an answer a timeout finds out.
        if asks {
            let _ = ask_peer(fd, captured);
        }
        if tells {
            let _ = tell_peer(fd, captured);
        }
    }
    Ok(())
}

/// Who may send so much, in bytes, sends segments, and hears of more room by their ACKs.
const NARROW: u32 = 4096;

/// Whether it could stand still until a timeout if the kernel's own probe is not answered:
/// something is to be sent or acknowledged, or the peer had no room for two segments.
fn wants_answer(captured: &Captured) -> bool {
    let p = &captured.protocol;
    let narrow = p.snd_wnd < 2 * u32::from(p.peer_mss) && p.state == State::Established;
    p.snd_una != p.write_seq && p.state != State::FinWait2 || narrow
}

/// [`rebuild`] and [`resume`].
///
/// # Errors
/// As those.
pub fn restore(fd: impl AsFd, captured: &Captured) -> Result<(), RestoreError> {
    rebuild(&fd, captured)?;
    Ok(resume(&fd, captured)?)
}

/// What was written behind a closed window does not leave by itself. Setting
/// `TCP_NODELAY` pushes; a corked program wants to wait.
fn push(fd: BorrowedFd<'_>, captured: &Captured) -> std::io::Result<()> {
    let p = &captured.protocol;
    let set = |option| captured.options.int(option).is_some_and(|value| value != 0);
    if p.snd_nxt == p.write_seq || set(IntOption::Cork) {
        return Ok(());
    }
    let pushed = IntOption::NoDelay.write(fd, 1);
    IntOption::NoDelay.write(fd, i32::from(set(IntOption::NoDelay))).and(pushed)
}

/// The steps up to a husk, with the queues' ends where they are to begin.
fn reopen(fd: BorrowedFd<'_>, captured: &Captured, snd: Seq, rcv: Seq) -> Result<(), RestoreError> {
    let p = &captured.protocol;
    // On a socket that is in repair mode already this changes nothing; on any other it
    // keeps the next step from sending a reset.
    repair::enter(fd).during("turning repair mode on")?;
    connect_unspec(fd).during("taking the old connection off")?;
    silence(fd).during("turning keepalive off")?;
    restore_segment_size(fd, p.peer_mss).during("setting the segment size")?;
    bind_anyway(fd, captured.local).during("binding the address")?;
    repair::connect_at_once(fd).during("having the connect done at once")?;
    restore_ends(fd, snd, rcv).during("setting the sequence numbers")?;
    connect_anyway(fd, captured.local, captured.remote).during("connecting in repair mode")?;
    let local = getsockname(fd).during("asking for the local address")?;
    if let Ok(local) = SocketAddr::try_from(local)
        && (local.ip(), local.port()) != (captured.local.ip(), captured.local.port())
    {
        return Err(RestoreError::Address(local));
    }
    restore_agreed(fd, p).during("setting what the SYNs agreed on")?;
    if let Some(timestamps) = p.timestamps {
        restore_timestamps(fd, timestamps).during("setting the timestamp clock")?;
    }
    Ok(())
}
