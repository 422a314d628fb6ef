//! Connections whose service was killed together with its guardian and its engine. Nobody can bring
//! them home, and pinned steering would keep their frames from the kernel for ever.
//!
//! ```text
//!   husk      SOCK_DESTROY          the program's descriptor is a dead socket
//!   tuple     out of the map        frames of the connection reach the kernel, which knows none
//!   peer      a segment to answer   its answer is answered by the kernel, with a reset
//! ```
//!
//! No process is involved, neither the program nor its descriptors: the map contains all that is
//! needed. It does not contain what the engine sent last, so a reset from us would not have the
//! right number (RFC 5961 §3.2). A segment that is not acceptable makes the peer reveal its numbers
//! (RFC 9293 §3.10.7.4). The kernel, which has no such connection, then resets the connection with
//! those (§3.10.7.1).

use super::maps::Left;
use super::pins::Pins;
use super::{SteerError, Steering};
use crate::half_closed::segment;
use crate::{diag, raw};
use baton_port::link;
use baton_wire::addr::{Addr, Tuple};
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;
use baton_wire::tcp::header::Header;
use std::net::SocketAddr;

/// The result of [`Steering::reap`] and [`Steering::reap_all`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reaped {
    /// The number of connections that were ended.
    pub ended: usize,
    /// The number of connections that remain, because a program's own engine still has them.
    pub left: usize,
}

impl Steering {
    /// Ends the connections that a killed service left on an interface and whose engines are gone
    /// too. Removes the steering once none is left. Call this when no process of the service lives.
    ///
    /// # Errors
    /// [`SteerError::Occupied`] if a living process steers the interface, and those of the kernel.
    pub fn reap(interface: &str) -> Result<Reaped, SteerError> {
        reap(interface, |pins, engine| !pins.has_device(engine))
    }

    /// Ends all connections that a killed service left on an interface, including those of
    /// programs' engines, and removes the steering.
    ///
    /// # Errors
    /// Errors from [`Steering::reap`].
    pub fn reap_all(interface: &str) -> Result<Reaped, SteerError> {
        reap(interface, |_, _| true)
    }
}

impl Steering {
    /// Returns true if a killed process left its steering on an interface.
    pub fn is_left(interface: &str) -> bool {
        Pins::find(interface).is_ok_and(|left| left.is_some())
    }
}

fn reap(interface: &str, is_orphan: impl Fn(&Pins, u32) -> bool) -> Result<Reaped, SteerError> {
    let Some(pins) = Pins::find(interface)? else { return Ok(Reaped::default()) };
    let mut reaped = Reaped::default();
    let mut ended = Vec::new();
    let index = link::index(interface).map_err(|e| SteerError::interface(interface, e))?;
    // Without a map, no connection is known.
    if let Ok(mut left) = Left::open(&pins.path("TUPLES")) {
        for (steered, engine) in left.tuples()? {
            if !is_orphan(&pins, engine) {
                reaped.left += 1;
                continue;
            }
            let (local, remote) = ends(&steered.tuple);
            // The program may have closed it.
            let _ = diag::destroy(local, remote, index);
            left.remove(&steered)?;
            ended.push(steered.tuple);
        }
    }
    if reaped.left == 0 {
        pins.remove();
    }
    reaped.ended = ended.len();
    for tuple in &ended {
        // A peer that cannot be reached notices when it sends.
        let _ = provoke(tuple);
    }
    Ok(reaped)
}

fn ends(tuple: &Tuple) -> (SocketAddr, SocketAddr) {
    let end = |addr: Addr, port| SocketAddr::new(addr.ip(), port);
    (end(tuple.local, tuple.local_port), end(tuple.remote, tuple.remote_port))
}

/// Sends the peer two segments, at most one of which can be acceptable to it: half of all sequence
/// numbers lies between them.
fn provoke(tuple: &Tuple) -> std::io::Result<()> {
    let (local, remote) = ends(tuple);
    for seq in [0, 1 << 31] {
        let (src_port, dst_port) = (tuple.local_port, tuple.remote_port);
        let header = Header { src_port, dst_port, seq: Seq(seq), flags: Flags::ACK, ..Header::default() };
        // With a byte of payload, because Linux limits how often it answers segments without any
        // (`tcp_oow_rate_limited()`, `net/ipv4/tcp_input.c`).
        raw::send_unbound(&segment(&header, &[], &[0], local, remote), remote)?;
    }
    Ok(())
}
