//! A connection that stands still in an engine, or whose engine is dead, read from the
//! ledger and its program's memory.

use baton_engine::event::ConnId;
use baton_engine::region::EngineRegion;
use baton_engine::streamer::{ConsumerId, MAX_OPTIONS, Suspended};
use baton_kernel::Captured;
use baton_mover::engine_side::departed;
use baton_socket::adoption::LeftBehind;
use baton_socket::memory::SharedLedger;
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;

/// What was found.
pub(super) struct Found {
    suspended: Suspended,
    send: Vec<u8>,
    /// Bytes that its program has not read.
    pub unread: u32,
}

impl Found {
    /// Received bytes, and written bytes that are here.
    pub fn positions(&self) -> (u64, u64) {
        (self.suspended.rcv_pos, self.suspended.tail_pos)
    }

    /// As the kernel is to have it, with what its program left behind.
    /// Options are the socket's as it came; what was set since, its program sets again.
    pub fn into_captured(mut self, head: &Captured, left: LeftBehind) -> Captured {
        self.suspended.options = head.options.for_engine().into_iter().take(MAX_OPTIONS).collect();
        departed(head, &self.suspended, self.send, left)
    }
}

/// The connection of this name, as of `now` in its engine's time. `memory` is its
/// program's, who may write to it all the while. `None` if there is no such connection any
/// more, or nothing is left to be done for it.
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
