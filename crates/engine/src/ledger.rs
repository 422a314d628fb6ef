//! The ledger: for each connection, everything that its peer can have learned, kept where
//! another process can read it. If the engine dies, that process can rebuild its connections
//! from the ledger.
//!
//! A fact is written before any frame can show it to the peer. The Streamer alone writes;
//! a guardian reads once the engine is gone. `ledger/record.rs` has the layout
//! of a record, `ledger/recover.rs` makes a connection of one.
//!
//! If the engine runs inside a program, that program can write anything here, also during
//! a read. A record is therefore copied first and checked afterwards; one that cannot be
//! right counts as no connection.

pub(crate) mod record;
mod recover;
mod sys;
#[cfg(test)]
mod tests;

use crate::seam::event::ConnId;
use baton_wire::addr::Tuple;
use baton_wire::seq::{Seq, WindowScale};
use record::{BASES, EDGE, ENDED, FACTS, FIN_AT, FIN_RECEIVED, LIVE, MAY_SEND, RECEIVED, Record, SLOT, UNA, halves};
pub use recover::Recovered;
pub use sys::Ledger;

/// How a connection ends, as a firewall between the two would see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It goes on, in one direction at least.
    Open,
    /// Both sides have closed. It may wait in TIME-WAIT still.
    Closed,
    /// It ended before that.
    Reset,
}

/// Upper bounds of everything that a peer may have learned by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// Nothing from here on was sent.
    pub sent: Seq,
    /// Nothing from here on was acknowledged.
    pub rcv_nxt: Seq,
    /// Nothing from here on was offered.
    pub right_edge: Seq,
    /// Shift of the windows that we send.
    pub shift: WindowScale,
}

impl Ledger {
    /// How many connections it can hold.
    pub fn len(&self) -> u32 {
        self.records().len() as u32
    }

    /// True if it can hold no connection.
    pub fn is_empty(&self) -> bool {
        self.records().is_empty()
    }

    #[inline]
    pub(crate) fn record(&self, conn: ConnId) -> Option<&Record> {
        self.records().get(conn.0 as usize)
    }

    /// True if the record of connection `index` counts.
    pub fn is_live(&self, index: u32) -> bool {
        self.record(ConnId(index)).is_some_and(|record| record.get(LIVE) == 1)
    }

    /// Addresses and ports of connection `index`, if its record counts.
    pub fn name(&self, index: u32) -> Option<Tuple> {
        self.record(ConnId(index)).filter(|record| record.get(LIVE) == 1).map(Record::tuple)
    }

    /// True if the last connection `index` was this one, whose record counted and does not
    /// any more.
    pub fn has_ended(&self, index: u32, tuple: &Tuple) -> bool {
        self.record(ConnId(index)).is_some_and(|record| record.get(LIVE) == ENDED && record.tuple() == *tuple)
    }

    /// How far the close of this connection has come, if it is, or was last, connection
    /// `index`.
    pub fn end(&self, index: u32, tuple: &Tuple) -> Option<End> {
        let record = self.record(ConnId(index)).filter(|record| record.tuple() == *tuple)?;
        let fin_at = record.get(FIN_AT);
        let both = record.get(RECEIVED) & FIN_RECEIVED != 0 && fin_at != 0;
        let una_pos = record.get(UNA + 3 * (record.get(SLOT) & 1) as usize);
        match record.get(LIVE) {
            1 if both && una_pos >= fin_at => Some(End::Closed),
            1 => Some(End::Open),
            ENDED if both => Some(End::Closed),
            ENDED => Some(End::Reset),
            _ => None,
        }
    }

    /// Stream positions of this connection, if it is, or was last, connection `index`: bytes
    /// acknowledged by the peer, and bytes received.
    pub fn positions(&self, index: u32, tuple: &Tuple) -> Option<(u64, u64)> {
        let record = self.record(ConnId(index)).filter(|record| record.tuple() == *tuple)?;
        let at = UNA + 3 * (record.get(SLOT) & 1) as usize;
        // Our FIN is acknowledged like a byte, but is not one.
        let sent = record.get(FIN_AT).checked_sub(1).unwrap_or(u64::MAX);
        Some((record.get(at).min(sent), record.get(RECEIVED) & !FIN_RECEIVED))
    }

    /// The bounds of everything that the peer of this connection may have learned, if its record
    /// counts. For tests: it searches record by record.
    pub fn published(&self, tuple: &Tuple) -> Option<Published> {
        let record = self.records().iter().find(|record| record.get(LIVE) == 1 && record.tuple() == *tuple)?;
        let (snd_base, rcv_base) = halves(record.get(BASES));
        let received = record.get(RECEIVED);
        let fin = u32::from(received & FIN_RECEIVED != 0);
        Some(Published {
            sent: Seq(snd_base) + record.get(MAY_SEND) as u32,
            rcv_nxt: Seq(rcv_base) + (received as u32) + fin,
            right_edge: Seq(halves(record.get(EDGE)).0),
            shift: WindowScale::new((record.get(FACTS) >> 16) as u8),
        })
    }
}
