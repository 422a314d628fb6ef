//! Connections that come from another stack, and leave for one: the TCE's part.
//! See `streamer/moves.rs` for the order of things.

use super::open::Begin;
use super::{Tce, push};
use crate::seam::event::ConnId;
use crate::seam::kinds::{AdoptError, MAX_OPTIONS, SnapshotHalf, Unused, snapshot_halves};
use crate::seam::order::Order;
use arrayvec::ArrayVec;
use baton_tcp::command::Command;
use baton_tcp::options::SocketOption;
use baton_tcp::snapshot::{Snapshot, Words};
use baton_tcp::tcb::Tcb;
use baton_tcp::time::Instant;

/// The parts of a connection's state that arrive before its adoption.
#[derive(Default)]
pub(super) struct Arriving {
    pub head: SnapshotHalf,
    pub tail: SnapshotHalf,
    options: ArrayVec<SocketOption, MAX_OPTIONS>,
}

impl Arriving {
    /// One more option; the Streamer sees to their number.
    pub fn option(&mut self, option: SocketOption) {
        let _ = self.options.try_push(option);
    }

    fn take(&mut self) -> (Words, ArrayVec<SocketOption, MAX_OPTIONS>) {
        let words = std::array::from_fn(|at| if at < 7 { self.head[at] } else { self.tail[at - 7] });
        (words, std::mem::take(&mut self.options))
    }
}

impl Tce {
    /// Makes a connection from another stack's snapshot.
    pub(super) fn adopt(&mut self, now: Instant, mut begin: Begin) {
        let (words, options) = self.arriving.take();
        let tuple = self.tuple;
        let refused = match Snapshot::from_words(&words).ok_or(AdoptError::Snapshot) {
            // A segment, or a request, may just have opened one with these addresses and ports.
            _ if self.newborn.find(&tuple).is_some() => AdoptError::NameInUse,
            Ok(snapshot) if snapshot.check().is_ok() => {
                begin.ts_offset = Some(snapshot.ts_offset(now));
                let mtu = self.config.mtu;
                let conn = self.begin(now, &tuple, &begin, |cx, _, out| {
                    Tcb::adopt(cx, &snapshot, mtu, out).expect("the snapshot was checked")
                });
                match conn {
                    Some(conn) => return self.set_options(now, conn, &options),
                    None => AdoptError::TableFull,
                }
            }
            Ok(_) | Err(_) => AdoptError::Snapshot,
        };
        let (consumer, token, unused) = (begin.consumer, begin.token, Unused { qp: begin.qp, hop: begin.hop });
        push(&mut self.orders, Order::AdoptRefused { consumer, token, why: refused, unused });
    }

    fn set_options(&mut self, now: Instant, conn: ConnId, options: &[SocketOption]) {
        for &option in options {
            self.with(now, conn, |tcb, cx, out| tcb.set_option(cx, option, out));
        }
    }

    /// A connection is about to leave: reports what its successor needs, and stops its timers.
    pub(super) fn suspend(&mut self, now: Instant, conn: ConnId) {
        let mut snapshot = None;
        self.with(now, conn, |tcb, cx, out| {
            snapshot = tcb.suspend(cx, out).map(|snapshot| (snapshot, tcb.options().collect::<ArrayVec<_, 8>>()));
        });
        let leaves = snapshot.is_some();
        if let Some((snapshot, options)) = snapshot {
            self.slots[conn.0].suspended = true;
            let (head, tail) = snapshot_halves(&snapshot.to_words());
            push(&mut self.orders, Order::SnapshotHead(head));
            push(&mut self.orders, Order::SnapshotTail(tail));
            for option in options {
                push(&mut self.orders, Order::SuspendOption(option));
            }
        }
        push(&mut self.orders, Order::Suspended { conn, leaves });
    }

    /// It stays after all.
    pub(super) fn resume(&mut self, now: Instant, conn: ConnId) {
        if let Some(slot) = self.slots.get_mut(conn.0) {
            slot.suspended = false;
            self.with(now, conn, |tcb, cx, out| tcb.resume(cx, out));
        }
    }

    /// It has left: it is forgotten here, and the peer is told nothing.
    pub(super) fn let_go(&mut self, conn: ConnId) {
        if self.holds(conn) {
            self.slots[conn.0].suspended = false;
            push(&mut self.orders, Order::Tcp { conn, command: Command::Release });
            self.forget(conn);
        }
    }
}
