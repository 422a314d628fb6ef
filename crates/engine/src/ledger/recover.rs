//! A connection rebuilt from its record and from its consumer's region.

use super::Ledger;
use super::record::{
    BASES, ECN, EDGE, FACTS, FIN_AT, FIN_RECEIVED, LIVE, MAY_SEND, NAME, QP, RECEIVED, Record, SACK, SCALED, SIZES,
    SLOT, TIMESTAMPS, UNA, WINDOW, WORDS, halves,
};
use crate::options::IpFields;
use crate::region::{EngineRegion, Extent};
use crate::seam::event::ConnId;
use baton_tcp::snapshot::{Scales, Seeds, Snapshot, Timestamps};
use baton_tcp::state::State;
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use baton_wire::seq::{Seq, WindowScale};
use core::sync::atomic::AtomicU64;

/// Larger stream positions are invalid.
pub(super) const FAR: u64 = 1 << 62;

/// How often a record is read until two readings agree.
pub(super) const READINGS: u32 = 64;

/// A connection as its record, and its consumer's region, say that it was.
#[derive(Clone, PartialEq, Debug)]
pub struct Recovered {
    /// The consumer that owns it.
    pub consumer: u16,
    /// Its queue pair.
    pub qp: u32,
    /// Its addresses and ports.
    pub tuple: Tuple,
    /// Its state, the consumer's queues included.
    pub snapshot: Snapshot,
    /// The fields that it had put into its segments' IP headers.
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

impl Ledger {
    /// Connection `index` as it was when its engine died, at the time `now` of that
    /// engine's clock. `region` finds a consumer's memory; what it holds is checked.
    /// `None` if there is no such connection, or if both sides had closed and the peer has
    /// acknowledged that: then only our last ACK is lost. If the peer has not, our side is
    /// reported as still open (CLOSE-WAIT), and the next owner has to close it again behind
    /// the recovered bytes. The FIN then has the same sequence number as before.
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
        // It cannot hold more than its memory.
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
            ip: IpFields { traffic_class: (name >> 48) as u8, ttl: (name >> 56) as u8, ..IpFields::default() },
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
    /// A copy, consistent if the writer is stopped or writes seldom.
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

    /// The state, without the parts that only the consumer's region has.
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

/// The largest packet that the path carries, by the recorded sizes: the initial one, unless the
/// payload size has changed since.
pub(super) fn path_mtu(sizes: u64, ipv6: bool, timestamps: bool) -> u16 {
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
