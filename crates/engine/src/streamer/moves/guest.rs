//! Calls of the driver for connections on an interface of another stack: it says where their
//! frames go, and lets data in flight land before they leave.

use super::super::context::{Flow, bits};
use super::super::{ConnId, Streamer};
use super::Moved;
use crate::endpoint::HopId;
use crate::seam::kinds::Carried;
use baton_tcp::time::Instant;
use baton_wire::addr::{Addr, Tuple};

/// SYNs kept, and bytes of each, at most: what is not kept is lost, as if by the network.
const SYNS: usize = 64;
const SYN_BYTES: usize = 1500;

impl Streamer {
    /// A neighbour whose link address is wanted, or to be confirmed: the driver answers with
    /// [`Streamer::learn_neighbour`]; no answer means that the neighbour is absent.
    pub fn poll_question(&mut self) -> Option<Addr> {
        self.endpoint.pop_question()
    }

    /// A neighbour that connections use has this link address.
    pub fn learn_neighbour(&mut self, now: Instant, neighbour: Addr, mac: [u8; 6]) {
        self.endpoint.place_neighbour(now, neighbour, mac);
    }

    /// A neighbour's link address may have changed: it is asked for again.
    pub fn doubt_neighbour(&mut self, now: Instant, neighbour: Addr) {
        self.endpoint.doubt_neighbour(now, neighbour);
    }

    /// Our own link address changed.
    pub fn set_mac(&mut self, mac: [u8; 6]) {
        self.endpoint.set_mac(mac);
    }

    /// A connection's segments go to another neighbour from now on. False if there is no such
    /// connection, or no space for one more neighbour.
    pub fn reroute(&mut self, now: Instant, conn: ConnId, tuple: &Tuple, via: Addr) -> bool {
        if !self.called(conn, tuple).is_some_and(|flow| flow.has(bits::SYNCHRONIZED)) {
            return false;
        }
        let Some(hop) = self.endpoint.hop_via(now, via) else { return false };
        let before = std::mem::replace(&mut self.flows[conn.0].tx.hop, hop.0);
        if before != u16::MAX {
            self.endpoint.hop_release(HopId(before));
        }
        true
    }

    /// Addresses and ports of the connection that has this index now. Indices are used again
    /// after a connection's end, so callers name a connection by both.
    pub fn name(&self, conn: ConnId) -> Option<Tuple> {
        self.flows.get(conn.0).map(|flow| flow.rx.tuple)
    }

    pub(super) fn called(&self, conn: ConnId, tuple: &Tuple) -> Option<&Flow> {
        self.flows.get(conn.0).filter(|flow| flow.rx.tuple == *tuple)
    }

    /// Sends nothing new of a connection while `quiet`, so that what is in flight can
    /// land; all else goes on. Leaving and coming back end it.
    pub fn quiesce(&mut self, conn: ConnId, tuple: &Tuple, quiet: bool) {
        if !self.called(conn, tuple).is_some_and(|flow| flow.has(bits::SYNCHRONIZED)) {
            return;
        }
        let flow = &mut self.flows[conn.0];
        if quiet {
            flow.bits |= bits::QUIET;
        } else {
            flow.bits &= !bits::QUIET;
            self.activate(conn);
        }
    }

    /// Bytes that a connection has carried; `None` if it is not here.
    pub fn carried(&self, conn: ConnId, tuple: &Tuple) -> Option<Carried> {
        let in_flight = |flow: &Flow| u64::from(flow.tx.snd_nxt.since(flow.tx.snd_una).unsigned_abs());
        self.called(conn, tuple).map(|flow| Carried {
            acknowledged: flow.tx.una_pos,
            received: flow.rx.rcv_pos,
            unsent: flow.tx.tail_pos.saturating_sub(flow.tx.una_pos).saturating_sub(in_flight(flow)),
        })
    }

    /// True once nothing of a connection is in flight: everything sent is acknowledged, and
    /// nothing received lies beyond a gap or waits for a buffer. Such data would be forgotten
    /// if the connection left now, although the peer may have it reported by SACK and would be
    /// slow to send it again. Also true if there is no such connection, and if the gap is
    /// urgent data, which never arrives here.
    pub fn is_settled(&self, conn: ConnId, tuple: &Tuple) -> bool {
        self.called(conn, tuple).filter(|flow| flow.has(bits::SYNCHRONIZED)).is_none_or(|flow| {
            let whole = flow.rx.ranges.is_none() && flow.rx.parked_bytes == 0;
            flow.tx.snd_nxt == flow.tx.snd_una && (whole || flow.has(bits::URGENT_TOLD))
        })
    }

    /// The TCE has dropped a segment that announces urgent data.
    #[cold]
    pub(in super::super) fn urgent_refused(&mut self, conn: ConnId) {
        self.counters.urgent_refused += 1;
        let flow = &mut self.flows[conn.0];
        if !flow.has(bits::URGENT_TOLD) {
            flow.bits |= bits::URGENT_TOLD;
            self.moves.told.push_back(Moved::Urgent { conn });
        }
    }

    /// Keeps a SYN, from its TCP header on, that came for a connection: it may open a new one
    /// in its place, with a listener in the stack that owns this interface.
    pub(in super::super) fn keep_syn(&mut self, conn: ConnId, syn: &[u8]) {
        if !self.endpoint.is_guest() || syn.len() > SYN_BYTES {
            return;
        }
        let syns = &mut self.moves.syns;
        if syns.len() == SYNS {
            syns.pop_front();
        }
        syns.push_back((conn, syn.into()));
    }

    /// The last SYN that came for a connection has ended it.
    pub(in super::super) fn reopened(&mut self, conn: ConnId) {
        let syns = &mut self.moves.syns;
        let last = syns.iter().rposition(|(of, _)| *of == conn);
        if let Some((_, syn)) = last.and_then(|last| syns.remove(last)) {
            self.moves.told.push_back(Moved::Reopened { conn, syn });
        }
        self.moves.syns.retain(|(of, _)| *of != conn);
    }
}
