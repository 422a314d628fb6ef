//! What a dead engine had said: of each connection, all that its peer can have
//! learned, where somebody else can read it (rule 4 of the design).
//!
//! The Streamer alone writes; a guardian reads once the engine is gone. Sequence
//! numbers are constants plus stream positions, so each fact is one word, and a word
//! is never half written. Where the send queue stands takes three: they have two
//! slots, of which one counts.
//!
//! ```text
//!   word  0      1 while the record counts
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
//! What may have been sent counts as sent: if it was not, a timeout sends it.
//!
//! Where the engine is inside a program, the program can write here what it likes, also while
//! it is read: a record is copied first, and what cannot be is no connection.

mod sys;
#[cfg(test)]
mod tests;

use crate::event::ConnId;
use crate::options::IpFields;
use crate::region::{EngineRegion, Extent};
use crate::streamer::Flow;
use crate::streamer::bits;
use baton_tcp::command::Synchronized;
use baton_tcp::snapshot::{Scales, Seeds, Snapshot, Timestamps};
use baton_tcp::state::State;
use baton_tcp::time::Instant;
use baton_wire::addr::{Addr, Tuple};
use baton_wire::seq::{Seq, WindowScale};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Release};
pub use sys::Ledger;

const WORDS: usize = 24;
const LIVE: usize = 0;
/// Value of [`LIVE`]: it counted, and does not any more.
const ENDED: u64 = 2;
const ADDRESSES: usize = 1;
const NAME: usize = 5;
const QP: usize = 6;
const SIZES: usize = 7;
const FACTS: usize = 8;
const BASES: usize = 9;
const RECEIVED: usize = 10;
const EDGE: usize = 11;
const MAY_SEND: usize = 12;
const FIN_AT: usize = 13;
const WINDOW: usize = 14;
const SLOT: usize = 15;
const UNA: usize = 16;

const FIN_RECEIVED: u64 = 1 << 63;
/// Stream positions beyond are none.
const FAR: u64 = 1 << 62;

/// Times that a record is read in the hope that it stands still.
const READINGS: u32 = 64;

const SACK: u64 = 1;
const ECN: u64 = 2;
const SCALED: u64 = 4;
const TIMESTAMPS: u64 = 8;

/// One connection's record: three cache lines.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct Record([AtomicU64; WORDS]);

/// A connection as its record, and its consumer's region, say that it was.
#[derive(Clone, PartialEq, Debug)]
pub struct Recovered {
    /// Whose.
    pub consumer: u16,
    /// Its queue pair.
    pub qp: u32,
    /// Its name.
    pub tuple: Tuple,
    /// Its state, the consumer's queues included.
    pub snapshot: Snapshot,
    /// What its segments' IP headers said.
    pub ip: IpFields,
    /// Stream position of `snd_una`.
    pub una_pos: u64,
    /// Stream position just past the bytes of the send queue.
    pub tail_pos: u64,
    /// Stream position of `rcv_nxt`: unread bytes lie before it.
    pub rcv_pos: u64,
    /// Where the send queue's bytes lie, `una_pos` to `tail_pos`.
    pub send: Vec<Extent>,
}

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

/// What a peer may have learned by now.
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

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Record {
    #[inline]
    fn set(&self, word: usize, value: u64) {
        self.0[word].store(value, Release);
    }

    fn get(&self, word: usize) -> u64 {
        self.0[word].load(Acquire)
    }

    /// What stays as it is while the connection lasts. It does not count yet.
    pub(crate) fn open(&self, flow: &Flow, sync: &Synchronized) {
        self.set(LIVE, 0);
        let (local, remote) = (flow.rx.tuple.local.0, flow.rx.tuple.remote.0);
        for (at, half) in
            [(local >> 64) as u64, local as u64, (remote >> 64) as u64, remote as u64].into_iter().enumerate()
        {
            self.set(ADDRESSES + at, half);
        }
        let ports = u64::from(flow.rx.tuple.local_port) | u64::from(flow.rx.tuple.remote_port) << 16;
        let ip = u64::from(flow.ip.traffic_class) << 48 | u64::from(flow.ip.ttl) << 56;
        self.set(NAME, ports | u64::from(flow.consumer) << 32 | ip);
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

    /// What changes, all of it; from now on the record counts.
    pub(crate) fn go_live(&self, flow: &Flow) {
        self.set_qp(flow);
        let fin = u32::from(flow.has(bits::FIN_RECEIVED));
        let base = |seq: Seq, pos: u64| seq.0.wrapping_sub(pos as u32);
        self.set(BASES, pair(base(flow.tx.snd_una, flow.tx.una_pos), base(flow.rx.rcv_nxt - fin, flow.rx.rcv_pos)));
        self.set_received(flow);
        self.set_edge(flow);
        self.may_send(flow.snd_pos(flow.tx.snd_nxt));
        self.set(FIN_AT, if flow.has(bits::FIN_WANTED) { flow.tx.tail_pos + 1 } else { 0 });
        self.set_window(flow);
        self.set_acknowledged(flow);
        self.set(LIVE, 1);
    }

    /// Its queue pair was found, or its segments' IP headers changed.
    pub(crate) fn set_qp(&self, flow: &Flow) {
        let qp = if flow.has(bits::ATTACHED) { flow.qp } else { u32::MAX };
        self.set(QP, pair(qp, flow.ts_offset));
    }

    /// Before `rcv_done`, and before any ACK.
    #[inline]
    pub(crate) fn set_received(&self, flow: &Flow) {
        self.set(RECEIVED, flow.rx.rcv_pos | if flow.has(bits::FIN_RECEIVED) { FIN_RECEIVED } else { 0 });
    }

    /// Before the ACK that shows it.
    #[inline]
    pub(crate) fn set_edge(&self, flow: &Flow) {
        self.set(EDGE, pair(flow.rx.right_edge.0, flow.rx.ts_recent));
    }

    /// Before the first frame that reaches beyond what was said before.
    #[inline]
    pub(crate) fn may_send(&self, position: u64) {
        self.set(MAY_SEND, position);
    }

    /// Before the FIN.
    pub(crate) fn set_fin(&self, flow: &Flow) {
        self.set(FIN_AT, flow.tx.tail_pos + 1);
    }

    /// What the peer offers, as far as we used it.
    #[inline]
    pub(crate) fn set_window(&self, flow: &Flow) {
        self.set(WINDOW, pair(flow.tx.limit.since(flow.tx.snd_una).max(0) as u32, flow.tx.max_wnd));
    }

    /// Before `snd_done`, after which the consumer uses the slots again.
    #[inline]
    pub(crate) fn set_acknowledged(&self, flow: &Flow) {
        let cursor = &flow.tx.una_cursor;
        let within = flow.tx.una_pos < cursor.end();
        let (index, start) =
            if within { (cursor.next.wrapping_sub(1), cursor.start) } else { (cursor.next, cursor.end()) };
        let other = self.get(SLOT) ^ 1;
        let at = UNA + 3 * other as usize;
        self.set(at, flow.tx.una_pos);
        self.set(at + 1, u64::from(index));
        self.set(at + 2, start);
        self.set(SLOT, other);
    }

    /// The path carries less than it did, or more.
    pub(crate) fn set_mss(&self, flow: &Flow) {
        self.set(SIZES, self.get(SIZES) & !(0xffff << 48) | u64::from(flow.tx.mss) << 48);
    }

    /// It counts no longer.
    pub(crate) fn close(&self) {
        if self.get(LIVE) == 1 {
            self.set(LIVE, ENDED);
        }
    }

    fn tuple(&self) -> Tuple {
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

impl Ledger {
    /// Connections that there is room for.
    pub fn len(&self) -> u32 {
        self.records().len() as u32
    }

    /// True if there is room for none.
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

    /// The name of connection `index`, if its record counts.
    pub fn name(&self, index: u32) -> Option<Tuple> {
        self.record(ConnId(index)).filter(|record| record.get(LIVE) == 1).map(Record::tuple)
    }

    /// True if the last connection `index` was this one, whose record counted and does not
    /// any more.
    pub fn has_ended(&self, index: u32, tuple: &Tuple) -> bool {
        self.record(ConnId(index)).is_some_and(|record| record.get(LIVE) == ENDED && record.tuple() == *tuple)
    }

    /// How far the end of the connection of this name has come, if it is, or was last,
    /// connection `index`.
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

    /// Stream positions of connection `index`, if its record counts: bytes acknowledged by
    /// the peer, and bytes received.
    pub fn positions(&self, index: u32) -> Option<(u64, u64)> {
        let record = self.record(ConnId(index)).filter(|record| record.get(LIVE) == 1)?;
        let at = UNA + 3 * (record.get(SLOT) & 1) as usize;
        Some((record.get(at), record.get(RECEIVED) & !FIN_RECEIVED))
    }

    /// What the peer of the connection of this name may have learned, if its record
    /// counts. For tests: it looks at one record after the other.
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

    /// Connection `index` as it was when its engine died, at the time `now` of that
    /// engine's clock. `region` finds a consumer's memory; what it holds is checked.
    /// `None` if there is none, or if both sides had closed and the peer has acknowledged
    /// that: then nothing is lost but its last answer. Where it has not, our side is said
    /// to be open still (CLOSE-WAIT): whoever goes on has to close it again, behind the
    /// bytes that are here. The FIN then has the sequence number that it had.
    pub fn recover<'r>(
        &self,
        index: u32,
        now: Instant,
        region: impl FnOnce(u16) -> Option<&'r EngineRegion>,
    ) -> Option<Recovered> {
        let record = &self.record(ConnId(index))?.copy();
        if record.get(LIVE) != 1 {
            return None;
        }
        let name = record.get(NAME);
        let consumer = (name >> 32) as u16;
        let (qp, ts_offset) = halves(record.get(QP));
        let region = region(consumer).filter(|region| qp < region.region().layout().qps)?;
        let words = region.qp(qp);
        let at = UNA + 3 * (record.get(SLOT) & 1) as usize;
        let (una_pos, extent_index, extent_start) = (record.get(at), record.get(at + 1) as u32, record.get(at + 2));
        let fin_at = record.get(FIN_AT).checked_sub(1);
        let received = record.get(RECEIVED);
        let rcv_pos = received & !FIN_RECEIVED;
        if una_pos.max(rcv_pos).max(fin_at.unwrap_or(0)) > FAR {
            return None;
        }
        // More than its memory it cannot hold.
        let furthest = una_pos + region.region().layout().data_bytes.min(1 << 30);
        let tail_pos = fin_at.unwrap_or_else(|| words.snd_tail().clamp(una_pos, furthest));
        if tail_pos > furthest || tail_pos + 1 < una_pos {
            return None;
        }
        let mut recovered = Recovered {
            consumer,
            qp,
            tuple: record.tuple(),
            snapshot: record.snapshot(now, ts_offset, una_pos, tail_pos)?,
            ip: IpFields { traffic_class: (name >> 48) as u8, ttl: (name >> 56) as u8 },
            una_pos: una_pos.min(tail_pos),
            tail_pos,
            rcv_pos,
            send: Vec::new(),
        };
        let unread = (rcv_pos as u32).wrapping_sub(words.rcv_read());
        if u64::from(unread) <= rcv_pos.min(1 << 30) {
            recovered.snapshot.copied_seq = recovered.snapshot.copied_seq - unread;
        }
        recovered.find_send_queue(region, extent_index, extent_start);
        recovered.snapshot.check().is_ok().then_some(recovered)
    }
}

impl Record {
    /// It as it stands, of one moment if its writer stands still or is seldom at it.
    fn copy(&self) -> Record {
        let read = || core::array::from_fn::<u64, WORDS, _>(|word| self.get(word));
        let mut words = read();
        for _ in 0..READINGS {
            let before = core::mem::replace(&mut words, read());
            if before == words {
                break;
            }
        }
        Record(words.map(AtomicU64::new))
    }

    /// The state, without what only the consumer's region says.
    fn snapshot(&self, now: Instant, ts_offset: u32, una_pos: u64, tail_pos: u64) -> Option<Snapshot> {
        let (facts, sizes) = (self.get(FACTS), self.get(SIZES));
        let (snd_base, rcv_base) = halves(self.get(BASES));
        let received = self.get(RECEIVED);
        let peer_fin = received & FIN_RECEIVED != 0;
        let closed = self.get(FIN_AT) != 0;
        if peer_fin && closed && una_pos > tail_pos {
            return None;
        }
        let our_fin = closed && !peer_fin;
        let seq = |base: u32, pos: u64| Seq(base) + pos as u32;
        let write_pos = tail_pos + u64::from(our_fin);
        let state = match (peer_fin, our_fin) {
            (false, false) => State::Established,
            (true, _) => State::CloseWait,
            (false, true) if una_pos == write_pos => State::FinWait2,
            (false, true) => State::FinWait1,
        };
        let rcv_nxt = seq(rcv_base, received & !FIN_RECEIVED) + u32::from(peer_fin);
        let (right_edge, ts_recent) = halves(self.get(EDGE));
        let (snd_wnd, max_wnd) = halves(self.get(WINDOW));
        let shift = |at: u32| WindowScale::new((facts >> at) as u8);
        let ipv6 = !self.tuple().remote.is_v4();
        Some(Snapshot {
            state,
            snd_una: seq(snd_base, una_pos),
            snd_nxt: seq(snd_base, self.get(MAY_SEND).clamp(una_pos, write_pos)),
            write_seq: seq(snd_base, write_pos),
            snd_wnd: snd_wnd.min(max_wnd),
            snd_wl1: rcv_nxt,
            max_wnd,
            copied_seq: rcv_nxt - u32::from(peer_fin),
            rcv_nxt,
            last_ack_sent: rcv_nxt,
            right_edge: Seq(right_edge).latest(rcv_nxt),
            peer_mss: sizes as u16,
            advmss: (sizes >> 16) as u16,
            path_mtu: path_mtu(sizes, ipv6, facts & TIMESTAMPS != 0),
            ipv6,
            scales: (facts & SCALED != 0).then(|| Scales { snd: shift(8), rcv: shift(16) }),
            sack: facts & SACK != 0,
            ecn: facts & ECN != 0,
            timestamps: (facts & TIMESTAMPS != 0).then(|| Timestamps {
                tsval: now.timestamp_ms().wrapping_add(ts_offset),
                microseconds: false,
                ts_recent: Some(ts_recent),
            }),
            seeds: Seeds::default(),
        })
    }
}

/// The largest packet that the path carries, as the sizes tell: as in the beginning,
/// unless payloads are of another size by now than was right then.
fn path_mtu(sizes: u64, ipv6: bool, timestamps: bool) -> u16 {
    let [peer_mss, _, path_mtu, mss] = [0, 16, 32, 48].map(|at| (sizes >> at) as u16);
    let (headers, options): (u16, u16) = (if ipv6 { 60 } else { 40 }, if timestamps { 12 } else { 0 });
    let at_first = peer_mss.min(path_mtu.saturating_sub(headers)).saturating_sub(options);
    if mss == 0 || mss == at_first { path_mtu } else { mss.saturating_add(headers + options) }
}

impl Recovered {
    /// Walks the consumer's send queue from the extent that holds `una_pos`.
    fn find_send_queue(&mut self, region: &EngineRegion, mut index: u32, mut start: u64) {
        let qp = region.qp(self.qp);
        let tail = qp.sq_tail();
        let mut at = self.una_pos;
        for _ in 0..region.region().layout().queue_depth {
            if at >= self.tail_pos || index == tail {
                return;
            }
            let Some(extent) = qp.sq_extent(index) else { return };
            let skip = at.saturating_sub(start).min(u64::from(u32::MAX)) as u32;
            let piece = extent.part(skip, (self.tail_pos - at).min(u64::from(u32::MAX)) as u32);
            at += u64::from(piece.len());
            if !piece.is_empty() {
                self.send.push(piece);
            }
            start = start.saturating_add(extent.len().into());
            index = index.wrapping_add(1);
        }
    }
}

const _: () = assert!(size_of::<Record>() == 192, "three cache lines");
