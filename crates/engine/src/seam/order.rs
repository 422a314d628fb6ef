//! Orders of the TCE to the Streamer: commands for connections (LC §3.2, §3.3.2), and the orders
//! that open, answer and forget connections.
//!
//! As with events, an entry is one cache line, and a tuple travels in an entry of its own
//! before the order that needs it.

use super::event::ConnId;
use super::kinds::{AdoptError, Queues, SnapshotHalf, Unused};
use crate::options::IpFields;
use crate::region::Completion;
use baton_tcp::command::{Command, SynReply};
use baton_wire::addr::Tuple;
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

/// Bytes of an [`Order::Write`].
pub const WRITE_BYTES: usize = 40;

/// One entry of the command ring.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// A decision about one connection.
    Tcp {
        /// The connection's number in this engine.
        conn: ConnId,
        /// The command of the connection's Tcb.
        command: Command,
    },
    /// Addresses of the [`Order::Open`] or [`Order::Reply`] that follows.
    Tuple(Tuple),
    /// A connection exists from now on: enter it in the flow table.
    Open(Open),
    /// Send a segment that belongs to no connection (RST, SYN cookie).
    Reply {
        /// Control bits.
        flags: Flags,
        /// SEG.SEQ.
        seq: Seq,
        /// SEG.ACK.
        ack: Seq,
        /// Window field.
        wnd: u16,
        /// Options of a SYN-ACK.
        syn: Option<SynReply>,
        /// TSval and TSecr, if the segment has them.
        ts: Option<(u32, u32)>,
    },
    /// Free parked payload that belongs to no connection.
    Unpark {
        /// Which payload.
        park: baton_tcp::segment::ParkId,
    },
    /// The first half of the snapshot for the [`Order::Suspended`] that follows.
    SnapshotHead(SnapshotHalf),
    /// The second half.
    SnapshotTail(SnapshotHalf),
    /// An option of the connection of the [`Order::Suspended`] that follows.
    SuspendOption(baton_tcp::options::SocketOption),
    /// Answer to [`super::event::Event::Suspend`].
    Suspended {
        /// The connection's number in this engine.
        conn: ConnId,
        /// True: its snapshot came before. False: it cannot leave, or is gone.
        leaves: bool,
    },
    /// A connection's place is free for the SYN that ended its TIME-WAIT.
    Reopened {
        /// The connection's number in this engine.
        conn: ConnId,
    },
    /// An adoption failed.
    AdoptRefused {
        /// The consumer that would have owned it.
        consumer: u16,
        /// The token given with the adoption.
        token: u64,
        /// Why the engine does not take it.
        why: AdoptError,
        /// Resources that were meant for it and are free again.
        unused: Unused,
    },
    /// Answer a consumer's request.
    Answer {
        /// Number of the consumer's region.
        consumer: u16,
        /// The completion that the consumer reads.
        completion: Completion,
        /// Resources that were meant for the request and are free again.
        unused: Unused,
    },
    /// A listener exists; its local address came before.
    Listening {
        /// Number of the consumer's region.
        consumer: u16,
        /// The listener's queue pair.
        qp: u32,
        /// The request's token.
        token: u64,
    },
    /// A listener is gone: its queue pair goes back.
    Unlistened {
        /// Number of the consumer's region.
        consumer: u16,
        /// The listener's queue pair.
        qp: u32,
    },
    /// Write bytes to a consumer's data area.
    Write {
        /// Number of the consumer's region.
        consumer: u16,
        /// Byte offset in the data area.
        offset: u64,
        /// How many of `bytes` count.
        len: u8,
        /// The bytes to write, of which the first `len` count.
        bytes: [u8; WRITE_BYTES],
    },
}

/// How a connection begins for the Streamer; its tuple came before.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Its index in both halves.
    pub conn: ConnId,
    /// The consumer that owns the connection, or will once it is accepted.
    pub consumer: u16,
    /// Its queue pair if the consumer asked for the connection; else one is
    /// taken when it is established.
    pub qp: Option<u32>,
    /// The request's token.
    pub token: u64,
    /// Queue pair of the listener that it came to.
    pub listener: u32,
    /// Added to the millisecond clock for our TSval (RFC 7323 §5.4).
    pub ts_offset: u32,
    /// Next hop of the route, if it is known and referenced already.
    pub hop: Option<u16>,
    /// The fields that it puts into its segments' IP headers.
    pub ip: IpFields,
    /// The queued bytes that an adopted connection brings along.
    pub adopted: Option<Queues>,
}

const _: () = assert!(size_of::<Order>() <= 64, "an order is one cache line");
