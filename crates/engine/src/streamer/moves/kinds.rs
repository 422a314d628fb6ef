//! Messages about a connection that moves, between the driver and the Streamer.

use crate::options::IpFields;
use crate::region::Extent;
use crate::seam::event::ConnId;
use crate::seam::kinds::{AdoptError, MAX_OPTIONS};
use crate::streamer::ConsumerId;
use arrayvec::ArrayVec;
use baton_tcp::options::SocketOption;
use baton_tcp::snapshot::Snapshot;
use baton_wire::addr::{Addr, Tuple};

/// A connection that comes from another stack.
#[derive(Clone, Debug)]
pub struct Adopt<'a> {
    /// The consumer that will own it.
    pub consumer: ConsumerId,
    /// Comes back in the consumer's `Adopted` and in [`Moved`].
    pub token: u64,
    /// Its addresses and ports.
    pub tuple: Tuple,
    /// The connection's state, captured from the other stack.
    pub snapshot: &'a Snapshot,
    /// The fields that it puts into its segments' IP headers.
    pub ip: IpFields,
    /// The neighbour that its segments go to; `None` to use the engine's routes.
    pub via: Option<Addr>,
    /// Options to set, [`MAX_OPTIONS`] at most.
    pub options: &'a [SocketOption],
}

/// Why a connection was not suspended. It goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuspendError {
    /// The event ring is full: poll, then try again.
    #[error("the engine is busy")]
    Busy,
    /// No connection, or one that is not open, or is suspended already.
    #[error("no open connection")]
    NotOpen,
    /// Its consumer has not posted yet what it brought along.
    #[error("its consumer has not taken in what it brought along")]
    Filling,
}

/// The result for a connection that was to move.
#[derive(Clone, PartialEq, Debug)]
pub enum Moved {
    /// It is here now; its first frames may have left.
    Adopted {
        /// The connection's number in this engine.
        conn: ConnId,
        /// The consumer that owns it.
        consumer: ConsumerId,
        /// The token given with the adoption.
        token: u64,
        /// Its queue pair.
        qp: u32,
    },
    /// It was not adopted.
    AdoptRefused {
        /// The consumer that would have owned it.
        consumer: ConsumerId,
        /// The token given with the adoption.
        token: u64,
        /// Why the engine does not take it.
        why: AdoptError,
    },
    /// It stands still: `let_go` or `resume` it.
    Suspended(Box<Suspended>),
    /// It cannot leave in its present state, and goes on here.
    Stays {
        /// The connection's number in this engine.
        conn: ConnId,
    },
    /// It ended before it could leave; its consumer was told.
    Ended {
        /// The connection's number in this engine.
        conn: ConnId,
    },
    /// Its peer sends urgent data, which this engine does not take
    /// (`baton_tcp::config::Config::refuse_urgent`): the connection belongs back in the stack
    /// that it came from. Reported once, and again after each suspension that ends here.
    Urgent {
        /// The connection that has to return.
        conn: ConnId,
    },
    /// It was in TIME-WAIT, and has ended for a new one with the same addresses and ports (RFC
    /// 6191 §2). A listener, if there is one, is in the stack that owns the interface.
    Reopened {
        /// The connection's number in this engine.
        conn: ConnId,
        /// The new one's SYN, from the TCP header on.
        syn: Box<[u8]>,
    },
}

/// A connection that stands still. Stream positions count from the start of the
/// queue pair's streams.
#[derive(Clone, PartialEq, Debug)]
pub struct Suspended {
    /// The connection's number in this engine.
    pub conn: ConnId,
    /// The consumer that owns it.
    pub consumer: ConsumerId,
    /// Its queue pair.
    pub qp: u32,
    /// Its addresses and ports.
    pub tuple: Tuple,
    /// Its state, the consumer's queues included.
    pub snapshot: Snapshot,
    /// The fields that it puts into its segments' IP headers.
    pub ip: IpFields,
    /// Options that the consumer changed.
    pub options: ArrayVec<SocketOption, MAX_OPTIONS>,
    /// Stream position of `snd_una`.
    pub una_pos: u64,
    /// Stream position just past the bytes of the send queue.
    pub tail_pos: u64,
    /// Stream position of `rcv_nxt`: unread bytes lie before it.
    pub rcv_pos: u64,
    /// Where the send queue's bytes lie, `una_pos` to `tail_pos`. Less than that
    /// if the consumer did not post what it said.
    pub send: Vec<Extent>,
}
