//! Out of the kernel: reads a connection without disturbing it.
//!
//! The steps, in this order:
//!
//! 1. `examine.rs`: may it move at all?
//! 2. Read what the program set. Repair mode, which changes some of it, comes after.
//! 3. Make the socket deaf, unless the program has a filter of its own. Otherwise the kernel could
//!    acknowledge segments that arrived before the steering took effect, and nobody else would know
//!    of them. Then turn repair mode on. Nothing is sent for that, but segments would still be
//!    processed.
//! 4. If something is unsent, close the peer's window, as far as the kernel knows, so that it stays
//!    unsent (see `send_queue.rs`).
//! 5. Read numbers, queues, windows and clock. If the numbers have changed afterwards, a segment or
//!    a timer interfered, and everything is read again.
//!
//! Until [`make_husk`](crate::make_husk) this can be undone: [`release`] makes an ordinary socket
//! of it.

use crate::agreed::capture_peer_mss;
use crate::capture_error::CaptureError;
use crate::captured::{Captured, is_v6};
use crate::error::{During, Failed};
use crate::examine::{Examined, examine, receiving_side_is_shut};
use crate::repair::{self, Leave, Windows};
use crate::seeds::capture_seeds;
use crate::sequence::{Marks, capture_marks};
use crate::socket_options::{IntOption, SocketOptions, capture_socket_options, restore_reuse_address};
use crate::tcp_info::TcpInfo;
use crate::timestamps::capture_timestamps;
use crate::{receive_queue, send_queue, sys, windows};
use baton_policy::Refusal;
use baton_tcp::snapshot::{Scales, Snapshot};
use baton_tcp::state::State;
use baton_wire::seq::{Seq, WindowScale};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// How often a changing connection is read before it is refused.
const ATTEMPTS: u32 = 16;

/// Captures a connection and leaves its socket in repair mode. Steering must already keep the
/// connection's segments from the kernel. Call this in the socket's network namespace.
///
/// # Errors
/// [`CaptureError`]; the socket is then as it was.
pub fn capture(fd: impl AsFd) -> Result<Captured, CaptureError> {
    let fd = fd.as_fd();
    let Examined { local, remote, .. } = examine(fd)?;
    let options = capture_socket_options(fd).during("reading the socket's options")?;
    repair::enter(fd).map_err(|e| match e.raw_os_error() {
        Some(libc::EPERM) => CaptureError::Refused(Refusal::Permission),
        _ => Failed { during: "turning repair mode on", source: e }.into(),
    })?;
    let deaf = deafen(fd).map_err(CaptureError::from);
    let captured = deaf.and_then(|()| read(fd, local, remote, &options));
    if captured.is_err() {
        // The first error is the one to report. A socket that cannot leave repair mode is lost.
        let _ = undo(fd, &options);
    }
    captured
}

/// Turns a captured socket that was not made a husk back into an ordinary one. The connection
/// continues as if nothing had happened.
///
/// # Errors
/// If the kernel does not let it leave repair mode.
pub fn release(fd: impl AsFd, captured: &Captured) -> Result<(), Failed> {
    if captured.protocol.snd_nxt != captured.protocol.write_seq {
        let windows = windows::windows_of(captured, captured.protocol.rcv_nxt);
        repair::set_windows(fd.as_fd(), windows).during("opening the window again")?;
    }
    undo(fd.as_fd(), &captured.options)
}

/// Returns true if the socket is in repair mode, so that somebody has captured it or is rebuilding
/// it.
///
/// # Errors
/// Errors from `getsockopt(2)`, for example if it is not a TCP socket.
pub fn is_captured(fd: impl AsFd) -> Result<bool, Failed> {
    repair::is_on(fd.as_fd()).during("asking for repair mode")
}

/// Turns a socket back into an ordinary one if a process was killed while it captured the
/// connection, before it made a husk. Unlike [`release`] this knows no more than the socket itself.
/// A socket that nobody was capturing is left as it is.
///
/// # Errors
/// If the kernel does not let it leave repair mode.
pub fn abandon(fd: impl AsFd) -> Result<(), Failed> {
    let fd = fd.as_fd();
    if !is_captured(fd)? {
        return Ok(());
    }
    undeafen(fd).or_else(|_| undeafen(fd))?;
    // This deselects the queues. If the window was closed, the answer to the probe opens it.
    repair::enter(fd).during("turning repair mode on")?;
    repair::leave(fd, Leave::Probing).during("turning repair mode off")
}

/// Captures a rebuilt connection that was not resumed, to take it back. Unlike [`capture`] this
/// expects repair mode, and leaves it on in every case.
///
/// # Errors
/// [`CaptureError`]; the socket is as it was, in repair mode.
pub fn recapture(fd: impl AsFd, previous: &Captured) -> Result<Captured, CaptureError> {
    let mut captured = read(fd.as_fd(), previous.local, previous.remote, &previous.options)?;
    captured.shut_read |= previous.shut_read;
    Ok(captured)
}

/// Makes a socket without a filter receive nothing. If no filter can be attached, because the
/// program has locked it, only steering protects the socket.
pub(crate) fn deafen(fd: BorrowedFd<'_>) -> Result<(), Failed> {
    const WHAT: &str = "attaching a filter that drops everything";
    if sys::filter(fd).during(WHAT)? == sys::Filter::None {
        match sys::set_deaf(fd, true) {
            Err(error) if error.raw_os_error() != Some(libc::EPERM) => return Err(error).during(WHAT),
            _ => {}
        }
    }
    Ok(())
}

/// Lets the socket receive again.
pub(crate) fn undeafen(fd: BorrowedFd<'_>) -> Result<(), Failed> {
    const WHAT: &str = "removing the filter";
    if sys::filter(fd).during(WHAT)? == sys::Filter::Deaf {
        sys::set_deaf(fd, false).during(WHAT)?;
    }
    Ok(())
}

fn undo(fd: BorrowedFd<'_>, options: &SocketOptions) -> Result<(), Failed> {
    undeafen(fd).or_else(|_| undeafen(fd))?;
    if let Some(offset) = options.int(IntOption::PeekOffset).filter(|offset| *offset >= 0) {
        IntOption::PeekOffset.write(fd, offset).during("setting the peek offset")?;
    }
    // The probe's answer brings what was lost meanwhile.
    repair::leave(fd, Leave::Probing).during("turning repair mode off")?;
    restore_reuse_address(fd, options).during("setting SO_REUSEADDR")
}

/// Reads until the connection did not change meanwhile. If that succeeds and there are unsent
/// bytes, the peer's window is closed afterwards; otherwise the window is as before.
fn read(
    fd: BorrowedFd<'_>,
    local: SocketAddr,
    remote: SocketAddr,
    options: &SocketOptions,
) -> Result<Captured, CaptureError> {
    if options.int(IntOption::PeekOffset).is_some_and(|offset| offset >= 0) {
        // Otherwise the queue would be read from that offset.
        IntOption::PeekOffset.write(fd, -1).during("turning the peek offset off")?;
    }
    for _ in 0..ATTEMPTS {
        let windows = repair::windows(fd).during("reading the windows")?;
        let held = send_queue::hold_back(fd, windows).during("closing the window")?;
        let result = read_once(fd, local, remote, options, windows, held.unsent);
        if let Ok(Some(captured)) = result {
            return Ok(captured);
        }
        if held.closed {
            repair::set_windows(fd, windows).during("opening the window again")?;
        }
        result?;
    }
    Err(Refusal::Unsettled.into())
}

/// Reads once. Returns `None` if something happened meanwhile.
fn read_once(
    fd: BorrowedFd<'_>,
    local: SocketAddr,
    remote: SocketAddr,
    options: &SocketOptions,
    windows: Windows,
    unsent: u32,
) -> Result<Option<Captured>, CaptureError> {
    let info = TcpInfo::of(fd).during("reading TCP_INFO")?;
    let marks = capture_marks(fd).during("reading the sequence numbers")?;
    let state = info.state().unwrap_or(State::Closed);
    if !matches!(state, State::Established | State::CloseWait | State::FinWait1 | State::FinWait2) {
        return Err(Refusal::State.into());
    }
    let numbers = Marks { windows, ..marks };
    let protocol = protocol(fd, state, &info, &numbers, unsent, is_v6(local)).during("reading the connection")?;
    if protocol.check().is_err() {
        return Ok(None);
    }
    let unacked = protocol.unacked_bytes() + protocol.unsent_bytes();
    let captured = Captured {
        local,
        remote,
        send_queue: send_queue::capture_unacked(fd, unacked).during("reading the send queue")?,
        receive_queue: receive_queue::capture_unread(fd, marks.unread).during("reading the receive queue")?,
        protocol,
        shut_read: receiving_side_is_shut(fd, state).during("polling the socket")?,
        options: options.clone(),
    };
    let still = capture_marks(fd).during("reading the sequence numbers again")? == marks;
    let same = TcpInfo::of(fd).during("reading TCP_INFO again")?.state() == Some(state);
    Ok((still && same && captured.check().is_ok()).then_some(captured))
}

fn protocol(
    fd: BorrowedFd<'_>,
    state: State,
    info: &TcpInfo,
    marks: &Marks,
    unsent: u32,
    ipv6: bool,
) -> std::io::Result<Snapshot> {
    let before_fin = Seq(marks.rcv_nxt.0.wrapping_sub(u32::from(state == State::CloseWait)));
    Ok(Snapshot {
        state,
        snd_una: marks.snd_una(),
        snd_nxt: Seq(marks.write_seq.0.wrapping_sub(unsent)),
        write_seq: marks.write_seq,
        snd_wnd: marks.windows.snd_wnd,
        snd_wl1: marks.windows.snd_wl1,
        max_wnd: marks.windows.max_window.max(marks.windows.snd_wnd),
        copied_seq: Seq(before_fin.0.wrapping_sub(marks.unread)),
        rcv_nxt: marks.rcv_nxt,
        last_ack_sent: marks.windows.rcv_wup.earliest(marks.rcv_nxt),
        right_edge: windows::right_edge(marks),
        peer_mss: capture_peer_mss(fd)?,
        advmss: info.advmss().min(u32::from(u16::MAX)) as u16,
        path_mtu: info.pmtu().min(u32::from(u16::MAX)) as u16,
        ipv6,
        scales: info.scales().map(|(snd, rcv)| Scales { snd: WindowScale::new(snd), rcv: WindowScale::new(rcv) }),
        sack: info.sack(),
        ecn: info.ecn(),
        timestamps: info.timestamps().then(|| capture_timestamps(fd)).transpose()?,
        seeds: capture_seeds(info),
    })
}
