//! Requests of a [`crate::tcb::Tcb`] to the Streamer.
//!
//! The TCE puts the connection in front of each and writes them to the command ring. A handler
//! issues at most [`MAX_COMMANDS`] per call, so that the TCE can make sure beforehand that the
//! ring has space.

use crate::manner::Manner;
use crate::segment::ParkId;
use baton_wire::seq::{Seq, WindowScale};
use baton_wire::tcp::{Flags, SackBlocks};

/// The most commands that one call into a `Tcb` issues.
pub const MAX_COMMANDS: usize = 32;

/// Ranges ahead of `rcv_nxt` that a connection may have: the Streamer refuses payload that
/// would make one more, and the TCE remembers each, so that the two always agree on the ranges.
pub const MAX_RANGES: usize = 80;

/// Of [`MAX_RANGES`], those that only a [`Command::Place`] may make. The fast path leaves them
/// free, and at that many ranges a `Tcb` places nothing ahead of its turn, so a `Place` always
/// finds a free range.
pub const PLACE_RANGES: usize = 16;

/// SYN options that we send (RFC 9293 §3.7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SynReply {
    /// Our MSS option, in bytes.
    pub mss: u16,
    /// Our window scale shift, if the option goes out.
    pub window_scale: Option<WindowScale>,
    /// Whether SACK-permitted goes out.
    pub sack_permitted: bool,
    /// Whether the option goes out that asks to go without checksums, or grants it.
    pub unsummed: bool,
}

/// The Streamer's first copy of a connection that may now carry data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Synchronized {
    /// Oldest sequence number not acknowledged.
    pub snd_una: Seq,
    /// First sequence number that we may send new data with: `snd_una`, unless the
    /// connection was adopted with data in flight.
    pub snd_nxt: Seq,
    /// Our FIN is the last number before `snd_nxt`.
    pub fin_sent: bool,
    /// First sequence number expected.
    pub rcv_nxt: Seq,
    /// Shift for windows that we send.
    pub rcv_wscale: WindowScale,
    /// Peer's last TSval, if both sides use timestamps.
    pub ts_recent: Option<u32>,
    /// Whether SACK was agreed on.
    pub sack: bool,
    /// Whether ECN was agreed on (RFC 3168 §6.1.1): data goes out as ECT(0).
    pub ecn: bool,
    /// The peer granted our wish to go without checksums (LA §4.2), so it accepts segments without.
    /// Whether it knows that we granted its own, only its segments tell.
    pub unsummed: bool,
    /// Shift of the peer's windows, if windows are scaled. The Streamer only records this and
    /// the following fields, for its successor.
    pub snd_wscale: Option<WindowScale>,
    /// MSS that the peer announced.
    pub peer_mss: u16,
    /// MSS that we announced.
    pub advmss: u16,
    /// Largest packet that the path is taken to carry.
    pub path_mtu: u16,
}

/// Fields of the Streamer's transmit context, replaced as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransmitContext {
    /// Oldest unacknowledged sequence number; send buffer before it is free.
    pub snd_una: Seq,
    /// New data may be sent up to here: what both `snd_wnd` and the congestion
    /// window allow.
    pub limit: Seq,
    /// Payload bytes of a full segment, options already taken off.
    pub mss: u16,
    /// Largest window the peer ever offered, for sender silly-window avoidance
    /// (RFC 9293 §3.8.6.2.1).
    pub max_wnd: u32,
    /// Choices and debts that data is sent with.
    pub manner: Manner,
    /// The bytes queued now leave, though the connection is corked (tcp(7), `TCP_NODELAY`).
    pub push: bool,
}

/// Notices to a consumer; the Streamer writes them to its completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// An active open completed, or a passive one reached ESTABLISHED.
    Established,
    /// The peer's FIN was reached: the receive stream ends at `rcv_nxt`.
    PeerFin,
    /// Everything that we sent, FIN included, is acknowledged.
    SendDone,
    /// The connection is gone, for this reason.
    Closed(CloseReason),
    /// A soft error to report at the next operation (ICMP; RFC 9293 MUST-56).
    SoftError(CloseReason),
    /// Urgent data ends before this sequence number (RFC 9293 MUST-62, RFC 6093).
    Urgent(Seq),
    /// Urgent data was announced, and the segment that did so was dropped: `Config::refuse_urgent`.
    UrgentRefused,
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum CloseReason {
    /// Both sides closed; everything was delivered.
    Normal,
    /// The peer reset it (`ECONNRESET`).
    Reset,
    /// The peer refused our SYN (`ECONNREFUSED`).
    Refused,
    /// Retransmission, keepalive or the user timeout gave up (`ETIMEDOUT`).
    TimedOut,
    /// The network said that the host cannot be reached (`EHOSTUNREACH`).
    HostUnreachable,
    /// The network said that the network cannot be reached (`ENETUNREACH`).
    NetworkUnreachable,
    /// We aborted it (`ECONNABORTED`).
    Aborted,
}

/// A request to the Streamer for one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// The connection synchronised: the fast path opens.
    Synchronized(Synchronized),
    /// Replace the transmit context.
    Transmit(TransmitContext),
    /// Send one ACK without data. The Streamer fills in its own `snd_nxt`; the
    /// timestamp is `now` and `ts_recent`.
    Ack {
        /// Acknowledgment number. The Streamer sends its own `rcv_nxt` if as much
        /// was acknowledged before.
        ack: Seq,
        /// SACK blocks, a D-SACK first (RFC 2883 §4).
        sack: SackBlocks,
    },
    /// Send `count` ACKs without data, as [`Command::Ack`] without SACK blocks each: a
    /// template (RA §4), expanded at the port's edge.
    Acks {
        /// Acknowledgment number of the first.
        first: Seq,
        /// From one to the next, in bytes.
        step: u32,
        /// How many.
        count: u16,
    },
    /// Send a segment of headers alone: SYN, SYN-ACK, RST, probe, keepalive. The window field
    /// is final (unscaled for a SYN).
    Control {
        /// Control bits.
        flags: Flags,
        /// Sequence number.
        seq: Seq,
        /// Acknowledgment number if `flags` has ACK.
        ack: Seq,
        /// Window field as it goes on the wire.
        wnd: u16,
        /// Options of a SYN.
        syn: Option<SynReply>,
        /// TSecr if the segment has the timestamps option.
        ts_ecr: Option<u32>,
    },
    /// Send `[seq, end)` again, at most as far as it was sent before; a FIN
    /// within it is repeated. Also a zero-window probe with one byte beyond
    /// `limit`: then `end` is past what was sent, and the byte counts as sent.
    Retransmit {
        /// First byte.
        seq: Seq,
        /// Just past the last.
        end: Seq,
    },
    /// Move parked payload to its final position: `len` bytes whose first has sequence number
    /// `seq`, found `skip` bytes into the parked payload. They count as received from here on,
    /// so it must not fail: while payload is parked for a connection its consumer cannot take
    /// buffers back; see also [`PLACE_RANGES`].
    Place {
        /// Which payload.
        park: ParkId,
        /// Sequence number of the first byte placed.
        seq: Seq,
        /// Bytes of the parked payload to skip.
        skip: u32,
        /// Bytes to place.
        len: u32,
        /// The bytes behind them stay parked, for another `Place` or a `Drop`.
        rest: bool,
    },
    /// Forget parked payload.
    Drop {
        /// Which payload.
        park: ParkId,
    },
    /// Receive context: the right edge that we have promised (never moves back),
    /// and the timestamp to echo.
    Receive {
        /// Right edge of the receive window: `rcv_nxt + rcv_wnd`.
        right_edge: Seq,
        /// `TS.Recent` (RFC 7323 §4.3); ignored without timestamps.
        ts_recent: u32,
    },
    /// The peer's FIN occupies this sequence number and all before it arrived:
    /// the Streamer's `rcv_nxt` steps over it.
    PeerFin {
        /// Sequence number of the FIN.
        seq: Seq,
    },
    /// After the last byte posted so far, send a FIN (RFC 9293 §3.10.4).
    Fin,
    /// Tell the consumer.
    Notify(Notice),
    /// Detach from the consumer: no buffer of it is used after this
    /// (TIME-WAIT, or gone).
    Detach,
    /// Forget the connection; its tuple is free.
    Release,
}

/// Takes commands, in order.
pub trait CommandSink {
    /// Adds one command.
    fn command(&mut self, command: Command);
}

impl CommandSink for Vec<Command> {
    fn command(&mut self, command: Command) {
        self.push(command);
    }
}
