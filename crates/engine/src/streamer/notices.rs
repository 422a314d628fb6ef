//! Notices of the TCE to consumers: a connection is established, its peer has sent FIN, or it has ended.

use super::context::bits;
use super::{ConnId, Streamer};
use crate::region::{Events, Identity};
use crate::seam::event::Event;
use crate::seam::kinds::Errno;
use baton_tcp::command::{CloseReason, Notice};

impl Streamer {
    /// Completes to the consumer's queue. A connection that was listened for
    /// gets its queue pair now: half-open ones have none.
    pub(super) fn notify(&mut self, conn: ConnId, notice: Notice) {
        let held = self.flows[conn.0].bits & (bits::ATTACHED | bits::FILLING) != 0;
        if notice == Notice::Established && !held {
            self.accept(conn);
            return;
        }
        if !held {
            return;
        }
        if notice == Notice::UrgentRefused {
            return self.urgent_refused(conn);
        }
        let flow = &self.flows[conn.0];
        let Some(Some(slot)) = self.consumers.get(usize::from(flow.consumer)) else { return };
        let qp = slot.region.qp(flow.qp);
        match notice {
            Notice::Established => qp.raise(Events::ESTABLISHED),
            Notice::PeerFin => {
                if flow.has(bits::ATTACHED) {
                    qp.set_rcv_done(flow.rx.rcv_pos);
                }
                qp.raise(Events::PEER_FIN);
            }
            Notice::SendDone => qp.raise(Events::SEND),
            Notice::Closed(reason) => {
                qp.set_error(errno(reason));
                qp.raise(if reason == CloseReason::Normal { Events::CLOSED } else { Events::CLOSED | Events::ERROR });
            }
            Notice::SoftError(reason) => {
                qp.set_error(errno(reason));
                qp.raise(Events::ERROR);
            }
            Notice::Urgent(seq) => {
                let ahead = i64::from(seq.since(flow.rx.rcv_nxt));
                qp.set_urgent(flow.rx.rcv_pos.saturating_add_signed(ahead));
                qp.raise(Events::URGENT);
            }
            Notice::UrgentRefused => {}
        }
    }

    fn accept(&mut self, conn: ConnId) {
        let flow = &self.flows[conn.0];
        let tuple = flow.rx.tuple;
        let identity = Identity {
            local: tuple.local,
            remote: tuple.remote,
            local_port: tuple.local_port,
            remote_port: tuple.remote_port,
            token: 0,
            listener: flow.qp,
        };
        match self.accept_qp(flow.consumer, conn, identity) {
            Some(qp) => {
                let flow = &mut self.flows[conn.0];
                flow.qp = qp;
                flow.bits |= bits::ATTACHED;
                self.note_qp(conn);
                if let Some((flow, record)) = self.published(conn) {
                    record.set_place(&flow.place());
                }
                self.want_buffer_for_parked(conn);
            }
            None => {
                self.counters.no_queue_pair += 1;
                self.event(Event::NoQueuePair { conn });
            }
        }
    }
}

/// Linux's number for why a connection ended.
fn errno(reason: CloseReason) -> u32 {
    match reason {
        CloseReason::Normal => 0,
        CloseReason::Reset => Errno::CONNECTION_RESET,
        CloseReason::Refused => Errno::CONNECTION_REFUSED,
        CloseReason::TimedOut => Errno::TIMED_OUT,
        CloseReason::HostUnreachable => Errno::HOST_UNREACHABLE,
        CloseReason::NetworkUnreachable => Errno::NETWORK_UNREACHABLE,
        CloseReason::Aborted => Errno::CONNECTION_ABORTED,
    }
}
