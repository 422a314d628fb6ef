//! Reads a connection that is suspended, or whose engine is dead, from the ledger and its program's
//! memory.

use baton_bridge::departed;
use baton_consumer::adoption::LeftBehind;
use baton_consumer::memory::SharedLedger;
use baton_engine::event::ConnId;
use baton_engine::region::EngineRegion;
use baton_engine::streamer::{ConsumerId, MAX_OPTIONS, Suspended};
use baton_kernel::Captured;
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;

/// A connection read from the ledger.
pub(super) struct Found {
    suspended: Suspended,
    send: Vec<u8>,
    /// Received bytes that the program has not read.
    pub unread: u32,
}

impl Found {
    /// The number of bytes received, and the number of written bytes that are included here.
    pub fn positions(&self) -> (u64, u64) {
        (self.suspended.rcv_pos, self.suspended.tail_pos)
    }

    /// The connection as the kernel is to have it, with the bytes that its program left behind. The
    /// options are those of the socket when it was captured; the program sets later ones again.
    pub fn into_captured(mut self, head: &Captured, left: LeftBehind) -> Captured {
        self.suspended.options = head.options.for_engine().into_iter().take(MAX_OPTIONS).collect();
        departed(head, &self.suspended, self.send, left)
    }
}

/// Reads the connection `tuple` as of `now`, in its engine's time. `memory` belongs to its program,
/// which may write to it all the while. Returns `None` if the ledger no longer has the connection,
/// or if the connection has nothing left to do.
pub(super) fn read_from_ledger(
    ledger: &SharedLedger,
    index: u32,
    tuple: &Tuple,
    now: Instant,
    memory: &EngineRegion,
) -> Option<Found> {
    let ledger = ledger.ledger();
    if ledger.name(index)? != *tuple {
        return None;
    }
    let found = ledger.recover(index, now, |_| Some(memory))?;
    let unread = found.snapshot.unread_bytes();
    let mut send = vec![0; found.send.iter().map(|extent| extent.len() as usize).sum()];
    let mut at = 0;
    for extent in &found.send {
        memory.copy_out(*extent, &mut send[at..at + extent.len() as usize]);
        at += extent.len() as usize;
    }
    let suspended = Suspended {
        conn: ConnId(index),
        consumer: ConsumerId(found.consumer),
        qp: found.qp,
        tuple: found.tuple,
        snapshot: found.snapshot,
        ip: found.ip,
        options: Default::default(),
        una_pos: found.una_pos,
        tail_pos: found.tail_pos,
        rcv_pos: found.rcv_pos,
        send: Vec::new(),
    };
    Some(Found { suspended, send, unread })
}
