//! Connections that go without checksums (LA §4.2, [`baton_wire::tcp::unsummed`]).
//!
//! ```text
//!   opens:    SYN, asks --> SYN-ACK grants --> accepts the mark, sends the mark
//!   accepts:  SYN asks --> SYN-ACK, grants --> accepts the mark
//!             handshake's last segment has the mark, so the grant arrived --> sends the mark
//!   both:     a right checksum from the peer, or the TCE's word --> sends checksums, for good
//! ```
//!
//! A right checksum is always accepted. A peer that sends one does not send marks any more: its
//! connection has moved to a stack that does not know them, and would drop ours. Somebody who
//! forges such a segment only brings the checksums back.

use super::context::{Flow, bits};
use super::place::sums_right;
use super::{ConnId, Streamer};
use crate::frame_io::RxFrame;
use baton_wire::checksum;
use baton_wire::packet::Packet;
use baton_wire::tcp::Flags;
use baton_wire::tcp::unsummed::is_marked;

impl Flow {
    /// True if nothing has to be summed: the port vouches for the segment, or it carries the
    /// mark that both ends agreed on. `packet` holds where the headers of `frame` are.
    #[inline]
    pub(super) fn trusts(&self, frame: &RxFrame<'_>, packet: &Packet) -> bool {
        frame.meta.checksum_verified || (self.has(bits::ACCEPTS_UNSUMMED) && has_mark(frame, packet))
    }
}

impl Streamer {
    /// True if the checksum of a segment is right, or none is due on its connection.
    #[inline]
    pub(super) fn checksum_right(&mut self, conn: ConnId, frame: &RxFrame<'_>, packet: &Packet) -> bool {
        // MUST-3 (RFC 9293 §3.1): the receiver checks the checksum.
        let right = self.flows.get(conn.0).map_or(frame.meta.checksum_verified, |flow| flow.trusts(frame, packet))
            || sums_right(packet.header_sum(frame.data), checksum::sum(packet.payload(frame.data)));
        if !right {
            self.count_corrupt(conn, frame, packet);
        } else if conn != ConnId::NONE {
            self.heard(conn, frame, packet);
        }
        right
    }

    /// Learns from an accepted segment of a connection which kind its peer sends.
    #[inline(never)]
    pub(super) fn heard(&mut self, conn: ConnId, frame: &RxFrame<'_>, packet: &Packet) {
        let flow = &self.flows[conn.0];
        if flow.has(bits::ACCEPTS_UNSUMMED) && !packet.flags.contains(Flags::SYN) {
            let marked = !frame.meta.checksum_verified && has_mark(frame, packet);
            self.counters.rx_unsummed += u64::from(marked);
            if !marked || !flow.has(bits::SYNCHRONIZED) {
                self.send_unsummed(conn, marked);
            }
        }
    }

    /// Sends a connection's segments without checksums from now on, or with them.
    #[cold]
    pub(super) fn send_unsummed(&mut self, conn: ConnId, unsummed: bool) {
        let flow = &mut self.flows[conn.0];
        if flow.has(bits::SENDS_UNSUMMED) != unsummed {
            flow.bits ^= bits::SENDS_UNSUMMED;
            self.templates.forget(conn);
        }
    }

    /// Counts a segment whose checksum is wrong.
    #[cold]
    pub(super) fn count_corrupt(&mut self, conn: ConnId, frame: &RxFrame<'_>, packet: &Packet) {
        if conn != ConnId::NONE && has_mark(frame, packet) {
            self.counters.drop_unsummed += 1;
        } else {
            self.counters.drop_tcp_checksum += 1;
        }
    }
}

#[inline]
fn has_mark(frame: &RxFrame<'_>, packet: &Packet) -> bool {
    frame.data.get(usize::from(packet.tcp_offset)..).is_some_and(is_marked)
}
