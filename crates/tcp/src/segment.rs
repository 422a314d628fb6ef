//! The Streamer's report of a received segment, or of a run of segments.
//!
//! A run is two or more in-sequence segments of one connection that travel
//! through the engine as one. It keeps each segment's length and acknowledgment
//! number ([`Lengths`], `ack` being the same for all of a run that a port
//! handed over), so that congestion control can count acknowledgments and ACK
//! generation can count segments as if they had come one by one (RA §3.4).

use baton_wire::seq::Seq;
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};

/// How a run's payload is cut: `count` segments of `size` bytes, the last one
/// holding the rest.
///
/// ```text
///   | size | size | size | ... | last |      count of them, len bytes in all
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    /// Payload of the whole run, in bytes.
    pub len: u32,
    /// Payload of each segment but the last, in bytes; `len` for a lone segment.
    pub size: u16,
    /// Number of segments, at least 1.
    pub count: u16,
}

impl Lengths {
    /// A single segment of `len` bytes.
    pub const fn single(len: u32) -> Lengths {
        Lengths { len, size: if len > 0xffff { 0xffff } else { len as u16 }, count: 1 }
    }
}

/// The options that only a SYN carries (RFC 9293 §3.7.1, RFC 7323, RFC 2018).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SynOptions {
    /// Maximum segment size in bytes, without IP and TCP headers.
    pub mss: Option<u16>,
    /// Window scale shift as received, unclamped.
    pub window_scale: Option<u8>,
    /// SACK permitted (RFC 2018 §2).
    pub sack_permitted: bool,
    /// The peer asks to go without checksums, and its packet passed no router.
    pub unsummed: bool,
}

/// Header facts of a received segment or run, checksum verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Sequence number of the first byte (of the SYN, if set).
    pub seq: Seq,
    /// Acknowledgment number, meaningful if `flags` has ACK.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window field as received, unscaled.
    pub wnd: u16,
    /// Urgent pointer, meaningful if `flags` has URG.
    pub urgent: u16,
    /// Payload and how it is cut.
    pub lengths: Lengths,
    /// Timestamps option (RFC 7323 §3).
    pub timestamps: Option<Timestamps>,
    /// SACK blocks (RFC 2018 §3); of a run, those of its last segment.
    pub sack: SackBlocks,
    /// SYN options, present only if `flags` has SYN.
    pub syn: SynOptions,
    /// True if the IP header carried Congestion Experienced (RFC 3168 §5).
    pub ce: bool,
}

impl Segment {
    /// SEG.LEN of RFC 9293 §3.4: payload plus one each for SYN and FIN.
    pub fn seg_len(&self) -> u32 {
        self.lengths.len + u32::from(self.flags.contains(Flags::SYN)) + u32::from(self.flags.contains(Flags::FIN))
    }

    /// Sequence number just after the segment.
    pub fn end(&self) -> Seq {
        self.seq + self.seg_len()
    }
}

/// A handle to payload that the Streamer parked in the reassembly area.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ParkId(pub u32);

/// The Streamer's treatment of a segment's payload so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Fast path: new bytes are at their final position. `rcv_nxt` is the Streamer's next
    /// expected byte after it (in order, so bytes parked or missing are not counted).
    /// `new_bytes` of 0 means it was a duplicate.
    Placed {
        /// The Streamer's `rcv_nxt` after placement.
        rcv_nxt: Seq,
        /// Bytes that had not been received before.
        new_bytes: u32,
    },
    /// Slow path: the payload waits for one [`crate::command::Command::Place`]
    /// that leaves no rest, or [`crate::command::Command::Drop`].
    Parked(ParkId),
    /// There was no payload to do anything with.
    Empty,
}

/// The Streamer's report of bytes handed to the port (LC §3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmitted {
    /// First sequence number of the range.
    pub seq: Seq,
    /// Just past the range; counts a FIN that went along.
    pub end: Seq,
    /// True if the range answers a [`crate::command::Command::Retransmit`].
    pub retransmit: bool,
    /// True if a FIN was the last of it.
    pub fin: bool,
    /// Acknowledgment number that the frames carried.
    pub ack: Seq,
    /// Bytes posted by the consumer and not sent yet, behind this range.
    pub queued: u32,
}
