//! The record of one connection: its layout, and how the Streamer writes it.
//!
//! Sequence numbers are constants plus stream positions, so each fact is one word, and a
//! word is never half written. The place in the send queue takes three words; it has two
//! slots, of which one counts.
//!
//! ```text
//!   word  0      1 while the record counts, 2 once it has ended
//!         1-4    addresses   5 ports, consumer   6 queue pair, offset of timestamps
//!         7 8    sizes, facts, shifts            9 seq of position 0: sent, received
//!                (the largest payload changes as the path does)
//!        10      rcv_pos, top bit: the peer's FIN was reached
//!        11      right edge, TS.Recent
//!        12      position up to which may have been sent
//!        13      position of our FIN plus 1; 0 for none
//!        14      send window, largest ever
//!        15      which slot counts
//!        16-18   una_pos; index and start of the send extent that holds it
//!        19-21   the other slot
//! ```
//!
//! Whatever may have been sent counts as sent: if it was not, a timeout sends it.

use crate::options::IpFields;
use baton_tcp::command::Synchronized;
use baton_wire::addr::{Addr, Tuple};
use baton_wire::seq::Seq;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Release};

pub(super) const WORDS: usize = 24;
pub(super) const LIVE: usize = 0;
/// Value of [`LIVE`] of a record that has ended.
pub(super) const ENDED: u64 = 2;
pub(super) const ADDRESSES: usize = 1;
pub(super) const NAME: usize = 5;
pub(super) const QP: usize = 6;
pub(super) const SIZES: usize = 7;
pub(super) const FACTS: usize = 8;
pub(super) const BASES: usize = 9;
pub(super) const RECEIVED: usize = 10;
pub(super) const EDGE: usize = 11;
pub(super) const MAY_SEND: usize = 12;
pub(super) const FIN_AT: usize = 13;
pub(super) const WINDOW: usize = 14;
pub(super) const SLOT: usize = 15;
pub(super) const UNA: usize = 16;

pub(super) const FIN_RECEIVED: u64 = 1 << 63;
pub(super) const SACK: u64 = 1;
pub(super) const ECN: u64 = 2;
pub(super) const SCALED: u64 = 4;
pub(super) const TIMESTAMPS: u64 = 8;

/// One connection's record: three cache lines.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct Record(pub(super) [AtomicU64; WORDS]);

pub(super) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

pub(super) fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// Which connection a record is about.
pub(crate) struct Name<'a> {
    pub tuple: &'a Tuple,
    pub consumer: u16,
    pub ip: IpFields,
}

/// Where a connection's queues are, and what its timestamps add to the clock.
pub(crate) struct Place {
    /// `None` until a queue pair is attached.
    pub qp: Option<u32>,
    pub ts_offset: u32,
}

/// Progress of the receiving side that was acknowledged, or may be.
pub(crate) struct Received {
    /// RCV.NXT, the peer's FIN included.
    pub rcv_nxt: Seq,
    /// Stream position: bytes without the FIN.
    pub pos: u64,
    /// The peer's FIN was reached.
    pub fin: bool,
    /// Right edge of the window that was offered.
    pub right_edge: Seq,
    pub ts_recent: u32,
}

/// How far the peer has acknowledged, and where that lies in the send queue.
pub(crate) struct Acknowledged {
    /// Stream position of SND.UNA.
    pub pos: u64,
    /// Queue index of the extent that holds it.
    pub extent: u32,
    /// Stream position of that extent's first byte.
    pub extent_start: u64,
}

/// The send window that we used, and the largest that the peer ever offered, in bytes.
pub(crate) struct SendWindow {
    pub now: u32,
    pub largest: u32,
}

/// Everything that changes while a connection lasts.
pub(crate) struct Progress {
    pub place: Place,
    pub received: Received,
    pub snd_una: Seq,
    pub acknowledged: Acknowledged,
    /// Stream position up to which bytes may have been sent.
    pub sent: u64,
    /// Stream position of our FIN, if one is to follow.
    pub fin_at: Option<u64>,
    pub window: SendWindow,
}

impl Record {
    #[inline]
    pub(super) fn set(&self, word: usize, value: u64) {
        self.0[word].store(value, Release);
    }

    pub(super) fn get(&self, word: usize) -> u64 {
        self.0[word].load(Acquire)
    }

    /// Writes what stays as it is while the connection lasts. The record does not count yet.
    pub(crate) fn open(&self, name: &Name<'_>, sync: &Synchronized) {
        self.set(LIVE, 0);
        let (local, remote) = (name.tuple.local.0, name.tuple.remote.0);
        for (at, half) in
            [(local >> 64) as u64, local as u64, (remote >> 64) as u64, remote as u64].into_iter().enumerate()
        {
            self.set(ADDRESSES + at, half);
        }
        let ports = u64::from(name.tuple.local_port) | u64::from(name.tuple.remote_port) << 16;
        let ip = u64::from(name.ip.traffic_class) << 48 | u64::from(name.ip.ttl) << 56;
        self.set(NAME, ports | u64::from(name.consumer) << 32 | ip);
        let sizes = [sync.peer_mss, sync.advmss, sync.path_mtu].into_iter().enumerate();
        self.set(SIZES, sizes.fold(0, |word, (at, size)| word | u64::from(size) << (16 * at)));
        let fact = |on: bool, bit: u64| if on { bit } else { 0 };
        let facts = fact(sync.sack, SACK)
            | fact(sync.ecn, ECN)
            | fact(sync.snd_wscale.is_some(), SCALED)
            | fact(sync.ts_recent.is_some(), TIMESTAMPS);
        let shift = sync.snd_wscale.unwrap_or_default().shift();
        self.set(FACTS, facts | u64::from(shift) << 8 | u64::from(sync.rcv_wscale.shift()) << 16);
    }

    /// Writes everything that changes; from now on the record counts.
    pub(crate) fn go_live(&self, progress: &Progress) {
        self.set_place(&progress.place);
        let (received, acknowledged) = (&progress.received, &progress.acknowledged);
        let base = |seq: Seq, pos: u64| seq.0.wrapping_sub(pos as u32);
        let rcv_base = base(received.rcv_nxt - u32::from(received.fin), received.pos);
        self.set(BASES, pair(base(progress.snd_una, acknowledged.pos), rcv_base));
        self.set_received(received);
        self.set_edge(received);
        self.may_send(progress.sent);
        self.set(FIN_AT, progress.fin_at.map_or(0, |at| at + 1));
        self.set_window(&progress.window);
        self.set_acknowledged(acknowledged);
        self.set(LIVE, 1);
    }

    /// A queue pair was attached.
    pub(crate) fn set_place(&self, place: &Place) {
        self.set(QP, pair(place.qp.unwrap_or(u32::MAX), place.ts_offset));
    }

    /// To be called before `rcv_done` moves, and before any ACK.
    #[inline]
    pub(crate) fn set_received(&self, received: &Received) {
        self.set(RECEIVED, received.pos | if received.fin { FIN_RECEIVED } else { 0 });
    }

    /// To be called before the ACK that shows it.
    #[inline]
    pub(crate) fn set_edge(&self, received: &Received) {
        self.set(EDGE, pair(received.right_edge.0, received.ts_recent));
    }

    /// Bytes up to this stream position may be sent. To be called before the first frame
    /// that reaches beyond the position of the last call.
    #[inline]
    pub(crate) fn may_send(&self, position: u64) {
        self.set(MAY_SEND, position);
    }

    /// Our FIN is to follow the byte before this stream position. To be called before it goes.
    pub(crate) fn set_fin(&self, position: u64) {
        self.set(FIN_AT, position + 1);
    }

    /// Records the peer's window, as far as we used it.
    #[inline]
    pub(crate) fn set_window(&self, window: &SendWindow) {
        self.set(WINDOW, pair(window.now, window.largest));
    }

    /// To be called before `snd_done` moves, after which the consumer reuses the queue's entries.
    #[inline]
    pub(crate) fn set_acknowledged(&self, acknowledged: &Acknowledged) {
        let other = self.get(SLOT) ^ 1;
        let at = UNA + 3 * other as usize;
        self.set(at, acknowledged.pos);
        self.set(at + 1, u64::from(acknowledged.extent));
        self.set(at + 2, acknowledged.extent_start);
        self.set(SLOT, other);
    }

    /// The path now carries segments of this payload, in bytes.
    pub(crate) fn set_mss(&self, mss: u16) {
        self.set(SIZES, self.get(SIZES) & !(0xffff << 48) | u64::from(mss) << 48);
    }

    /// The record no longer counts.
    pub(crate) fn close(&self) {
        if self.get(LIVE) == 1 {
            self.set(LIVE, ENDED);
        }
    }

    pub(super) fn tuple(&self) -> Tuple {
        let half = |at: usize| u128::from(self.get(ADDRESSES + at));
        let name = self.get(NAME);
        Tuple {
            local: Addr(half(0) << 64 | half(1)),
            remote: Addr(half(2) << 64 | half(3)),
            local_port: name as u16,
            remote_port: (name >> 16) as u16,
        }
    }
}

const _: () = assert!(size_of::<Record>() == 192, "three cache lines");
