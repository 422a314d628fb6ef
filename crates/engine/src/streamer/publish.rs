//! Records of a connection in the ledger, written before its peer can learn of a change.

use super::context::{Flow, bits};
use super::{ConnId, Streamer};
use crate::ledger::record::{Acknowledged, Name, Place, Progress, Received, Record, SendWindow};

impl Streamer {
    /// A connection's flow and record, if it has one.
    #[inline]
    pub(super) fn published(&self, conn: ConnId) -> Option<(&Flow, &Record)> {
        Some((self.flows.get(conn.0)?, self.ledger.as_ref()?.record(conn)?))
    }
}

impl Flow {
    pub(super) fn name(&self) -> Name<'_> {
        Name { tuple: &self.rx.tuple, consumer: self.consumer, ip: self.ip }
    }

    pub(super) fn place(&self) -> Place {
        Place { qp: self.has(bits::ATTACHED).then_some(self.qp), ts_offset: self.ts_offset }
    }

    #[inline]
    pub(super) fn received(&self) -> Received {
        Received {
            rcv_nxt: self.rx.rcv_nxt,
            pos: self.rx.rcv_pos,
            fin: self.has(bits::FIN_RECEIVED),
            right_edge: self.rx.right_edge,
            ts_recent: self.rx.ts_recent,
        }
    }

    #[inline]
    pub(super) fn acknowledged(&self) -> Acknowledged {
        let (cursor, pos) = (&self.tx.una_cursor, self.tx.una_pos);
        let (extent, extent_start) =
            if pos < cursor.end() { (cursor.next.wrapping_sub(1), cursor.start) } else { (cursor.next, cursor.end()) };
        Acknowledged { pos, extent, extent_start }
    }

    #[inline]
    pub(super) fn send_window(&self) -> SendWindow {
        SendWindow { now: self.tx.limit.since(self.tx.snd_una).max(0) as u32, largest: self.tx.max_wnd }
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            place: self.place(),
            received: self.received(),
            snd_una: self.tx.snd_una,
            acknowledged: self.acknowledged(),
            sent: self.snd_pos(self.tx.snd_nxt),
            fin_at: self.has(bits::FIN_WANTED).then_some(self.tx.tail_pos),
            window: self.send_window(),
        }
    }
}
