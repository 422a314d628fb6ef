//! Receiving: validate on the small context, place at the final position, tell
//! the TCE (LC §3.3.1).
//!
//! **Fast path**: plain flags, timestamp not old, acknowledgment recent, data
//! inside the promised window and inside posted buffers; in order or not, with
//! new ACK information or not. The bytes go to the consumer in one pass of copy
//! and checksum and count as received once the sum is right.
//!
//! **Slow path**: everything else that belongs to a connection, and segments that belong to
//! none. The payload is parked in the reassembly area, and the TCE decides about it.

use super::aggregate::{Burst, Unit};
use super::context::{Flow, bits};
use super::place::{FAST_RANGES, Placing};
use super::{ConnId, Streamer};
use crate::endpoint::Verdict;
use crate::frame_io::RxFrame;
use crate::prefetch_unsafe::prefetch_all;
use crate::region::Events;
use crate::seam::event::{Event, SegmentEvent};
use baton_tcp::segment::{Lengths, Placement, SynOptions};
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use baton_wire::packet::{Packet, Reject};
use baton_wire::tcp::options::TcpOption;
use baton_wire::tcp::{Flags, SackBlocks};

/// With fewer connections than this the contexts are in the cache anyway, and
/// looking ahead costs more than it saves.
const PREFETCH_FROM: u32 = 512;
/// Payload of the longest frame, in bytes.
const LONGEST: u32 = 65_535;

/// Facts that hold for all runs of a burst.
#[derive(Clone, Copy)]
struct Known {
    /// The hash of each one's connection was computed.
    ahead: bool,
    /// The points of watched connections' messages are recorded.
    marked: bool,
}

impl Streamer {
    /// Acts on a burst of frames.
    pub(super) fn handle_burst(&mut self, now: Instant, frames: &[RxFrame<'_>]) {
        self.counters.rx_frames += frames.len() as u64;
        self.counters.rx_bytes += frames.iter().map(|frame| frame.data.len() as u64).sum::<u64>();
        let taken = self.stamp();
        let mut burst = self.aggregator.take(frames);
        let marked = taken > 0;
        if marked {
            self.mark_parsed(taken);
        }
        let ahead = self.table.len() >= PREFETCH_FROM;
        if ahead {
            self.look_ahead(&mut burst);
        }
        for unit in &burst.units {
            self.handle_unit(now, frames, &burst, unit, Known { ahead, marked });
        }
        self.flush_run();
        self.aggregator.done(burst);
    }

    /// Prefetches the memory that the units of a burst need while others are handled, in two
    /// steps.
    fn look_ahead(&mut self, burst: &mut Burst) {
        let mut units = std::mem::take(&mut burst.units);
        for unit in &mut units {
            if let Ok(packet) = burst.headers(unit.first, &mut None) {
                unit.hash = self.table.hash(&tuple_of(packet));
                self.table.prefetch(unit.hash);
            }
        }
        for unit in &units {
            if let Some((index, note)) = self.table.likely(unit.hash) {
                prefetch_all(&self.flows[index]);
                self.prefetch_noted(note);
                if let Some(companion) = &self.companion {
                    companion.prefetch(index);
                }
            }
        }
        burst.units = units;
    }

    /// Handles a run, or a single frame.
    #[inline]
    fn handle_unit(&mut self, now: Instant, frames: &[RxFrame<'_>], burst: &Burst, unit: &Unit, known: Known) {
        let frame = &frames[usize::from(unit.first)];
        let mut room = None;
        let packet = match burst.headers(unit.first, &mut room) {
            Ok(packet) => packet,
            Err(reject) => return self.handle_other(now, frame.data, reject),
        };
        let conn = if known.ahead {
            let tuple = tuple_of(packet);
            self.table.lookup(unit.hash, |index| self.flows[index].rx.tuple == tuple).map(ConnId)
        } else {
            self.conn_of(packet)
        };
        if known.marked {
            self.mark_found(conn, frame.meta.arrived);
        }
        self.handle_packet(now, frame, packet, conn);
        let mut at = burst.next(unit.first);
        if at.is_some() {
            self.counters.rx_runs += 1;
        }
        while let Some(place) = at {
            self.counters.rx_coalesced += 1;
            self.handle_follower(now, &frames[usize::from(place)], burst, place, conn);
            at = burst.next(place);
        }
        // Super-frames that follow each other are one event, as far as they agree.
        if frame.meta.gso_size == 0 {
            self.flush_run();
        }
        if known.marked {
            self.mark_placed(conn, packet);
        }
    }

    /// A segment of a run behind its first.
    #[inline]
    fn handle_follower(&mut self, now: Instant, frame: &RxFrame<'_>, burst: &Burst, place: u16, conn: Option<ConnId>) {
        let Some((packet, predicted)) = burst.follower(place) else { return };
        if conn.is_some_and(|conn| self.follow(conn, frame, packet, predicted)) {
            return;
        }
        if let Ok(packet) = burst.headers(place, &mut None) {
            self.handle_packet(now, frame, packet, conn);
        }
    }

    /// The connection of a segment: most often that of the one before it.
    #[inline]
    fn conn_of(&mut self, packet: &Packet) -> Option<ConnId> {
        let tuple = tuple_of(packet);
        if self.flows.get(self.last_conn.0).is_some_and(|flow| flow.rx.tuple == tuple) {
            return Some(self.last_conn);
        }
        let conn = self.find(&tuple)?;
        if self.config.header_prediction {
            self.last_conn = conn;
        }
        Some(conn)
    }

    #[inline]
    fn handle_packet(&mut self, now: Instant, frame: &RxFrame<'_>, packet: &Packet, conn: Option<ConnId>) {
        let lengths = lengths_of(packet, frame.meta.gso_size);
        self.counters.rx_segments += u64::from(lengths.count);
        match conn {
            Some(conn) => self.handle_segment(conn, frame, packet, lengths),
            None => self.handle_unknown(now, frame, packet, lengths),
        }
    }

    #[inline]
    fn handle_segment(&mut self, conn: ConnId, frame: &RxFrame<'_>, packet: &Packet, lengths: Lengths) {
        if packet.payload_len == 0 {
            if self.checksum_right(conn, frame, packet) {
                self.tell_segment(conn, frame, packet, lengths, Placement::Empty);
            }
            return;
        }
        let flow = &self.flows[conn.0];
        if !is_fast(flow, packet) {
            self.park_segment(conn, frame, packet, lengths);
            return;
        }
        let may_be_unsummed = flow.has(bits::ACCEPTS_UNSUMMED);
        // The sum of everything but the payload; `None` if it is not needed.
        let header_sum = (!flow.trusts(frame, packet)).then(|| packet.header_sum(frame.data));
        match self.place(conn, packet.seq, packet.payload(frame.data), header_sum, FAST_RANGES) {
            Placing::Done(new_bytes) => {
                self.counters.rx_fast += 1;
                if may_be_unsummed {
                    self.heard(conn, frame, packet);
                }
                let flow = &mut self.flows[conn.0];
                if let Some(timestamps) = packet.timestamps.filter(|_| flow.has(bits::TIMESTAMPS)) {
                    flow.on_timestamp(packet.seq, timestamps.val);
                }
                let rcv_nxt = flow.rx.rcv_nxt;
                self.tell_segment(conn, frame, packet, lengths, Placement::Placed { rcv_nxt, new_bytes });
            }
            Placing::NoBuffer => self.park_segment(conn, frame, packet, lengths),
            Placing::Corrupt => self.count_corrupt(conn, frame, packet),
            Placing::TooManyRanges => self.counters.drop_ranges_full += 1,
        }
    }

    /// Slow path: keeps the payload for the TCE to judge.
    fn park_segment(&mut self, conn: ConnId, frame: &RxFrame<'_>, packet: &Packet, lengths: Lengths) {
        if !self.checksum_right(conn, frame, packet) {
            return;
        }
        self.counters.rx_slow += 1;
        self.want_buffer(conn, packet);
        let payload = packet.payload(frame.data);
        let rx = &mut self.flows[conn.0].rx;
        // The next expected segment is always kept: everything parked may be waiting for it.
        let next = packet.seq.before_eq(rx.rcv_nxt) && (packet.seq + packet.payload_len).after(rx.rcv_nxt);
        let more = if next { LONGEST } else { 0 };
        let parked = &mut rx.parked_bytes;
        if *parked + packet.payload_len > self.config.reassembly_bytes_per_connection + more {
            self.counters.drop_reassembly_full += 1;
            return;
        }
        match self.reassembly.park(payload) {
            Some(id) => {
                *parked += packet.payload_len;
                self.tell_segment(conn, frame, packet, lengths, Placement::Parked(id));
            }
            None => self.counters.drop_reassembly_full += 1,
        }
    }

    /// A segment that no connection answers to: the TCE looks for a listener.
    fn handle_unknown(&mut self, now: Instant, frame: &RxFrame<'_>, packet: &Packet, lengths: Lengths) {
        if !self.moves.is_idle() && self.hold_frame(frame, &tuple_of(packet)) {
            return;
        }
        // MUST-57 (RFC 9293 §3.9.2.3): only our unicast addresses are answered for.
        if !self.endpoint.is_ours(packet.dst) {
            self.counters.drop_not_ours += 1;
            return;
        }
        // MUST-63 (RFC 9293 §3.9.2.3): nor are segments without a valid source.
        if !self.endpoint.is_peer(packet.src) {
            self.counters.drop_source += 1;
            return;
        }
        if !self.checksum_right(ConnId::NONE, frame, packet) {
            return;
        }
        self.counters.rx_unknown += 1;
        if packet.flags.contains(Flags::SYN) {
            // The answer goes to the link address that the SYN came from, without address
            // resolution.
            if let Some(hop) = self.endpoint.hop_from_frame(now, packet.src, frame.data) {
                self.endpoint.hop_release(hop);
            }
        }
        let placement = match packet.payload_len {
            0 => Placement::Empty,
            // Only data that completes a handshake by SYN cookie is ever used.
            _ if packet.flags.without(Flags::PSH) != Flags::ACK => Placement::Empty,
            _ => match self.reassembly.park_stranger(tuple_of(packet), packet.payload(frame.data)) {
                Some(id) => Placement::Parked(id),
                None => {
                    self.counters.drop_reassembly_full += 1;
                    return;
                }
            },
        };
        self.event_tuple(tuple_of(packet));
        self.tell_segment(ConnId::NONE, frame, packet, lengths, placement);
    }

    /// One event for the run, with an entry before it for rare options. Segments
    /// that continue the run before them become part of it.
    #[inline]
    fn tell_segment(
        &mut self,
        conn: ConnId,
        frame: &RxFrame<'_>,
        packet: &Packet,
        lengths: Lengths,
        placement: Placement,
    ) {
        let rare = !packet.plain_options || packet.flags.intersects(Flags::SYN | Flags::URG);
        if rare {
            self.tell_rare(conn, frame, packet);
        }
        let flow = self.flows.get_mut(conn.0).filter(|flow| flow.has(bits::SYNCHRONIZED));
        let posted = flow.map(|flow| {
            let edge = flow.posted_edge();
            flow.rx.posted_told = edge;
            edge
        });
        let event = SegmentEvent::new(conn, packet, lengths, placement, posted, rare);
        if let Some(run) = &mut self.run {
            if run.join(&event) {
                return;
            }
            self.flush_run();
        }
        if event.is_plain_data() {
            self.run = Some(event);
        } else {
            self.event(Event::Segment(event));
        }
    }

    /// Entries before a segment's own: its tuple if it is a SYN, which may reopen
    /// it, and the options that only few segments have.
    #[cold]
    fn tell_rare(&mut self, conn: ConnId, frame: &RxFrame<'_>, packet: &Packet) {
        if conn != ConnId::NONE && packet.flags.contains(Flags::SYN) {
            self.event_tuple(tuple_of(packet));
            let end = usize::from(packet.payload_offset) + packet.payload_len as usize;
            self.keep_syn(conn, &frame.data[usize::from(packet.tcp_offset)..end]);
        }
        let (sack, syn) = rare_options(packet, frame.data);
        self.event(Event::Options { sack, syn, urgent: packet.urgent });
    }

    /// Tells the TCE of the run that was being collected.
    #[inline]
    pub(super) fn flush_run(&mut self) {
        if let Some(run) = self.run.take() {
            self.event(Event::Segment(run));
        }
    }

    /// Asks the consumer for a buffer if this payload lies in the offered window but has none.
    /// Otherwise, if nobody is reading, parked payload would wait for ever.
    fn want_buffer(&mut self, conn: ConnId, packet: &Packet) {
        let flow = &self.flows[conn.0];
        let end = packet.seq + packet.payload_len;
        let promised = end.after(flow.rx.rcv_nxt) && packet.seq.before(flow.rx.right_edge);
        if !flow.has(bits::SYNCHRONIZED) || !promised || end.before_eq(flow.posted_edge()) {
            return;
        }
        self.raise_want(conn);
    }

    /// Asks the consumer for a buffer if payload was parked before there was anybody to ask:
    /// data of the handshake's segments, and data that came while an adopted connection's
    /// queues were filled. Called when a connection is both synchronised and attached.
    pub(super) fn want_buffer_for_parked(&mut self, conn: ConnId) {
        let flow = &self.flows[conn.0];
        let room = flow.posted_edge().since(flow.rx.rcv_nxt).max(0) as u32;
        let early = room == 0 && self.reassembly.has_stranger(&flow.rx.tuple);
        if flow.has(bits::SYNCHRONIZED) && (flow.rx.parked_bytes > room || early) {
            self.raise_want(conn);
        }
    }

    /// Tells the consumer once that a buffer is wanted.
    fn raise_want(&mut self, conn: ConnId) {
        let flow = &mut self.flows[conn.0];
        if flow.bits & (bits::WANT_TOLD | bits::ATTACHED) == bits::ATTACHED {
            flow.bits |= bits::WANT_TOLD;
            if let Some(Some(slot)) = self.consumers.get_mut(usize::from(flow.consumer)) {
                slot.region.qp(flow.qp).raise(Events::WANT_BUFFER);
            }
        }
    }

    /// Hands frames without a TCP segment to the endpoint, or counts and drops them.
    fn handle_other(&mut self, now: Instant, frame: &[u8], reject: Reject) {
        match reject {
            Reject::Malformed => self.counters.drop_malformed += 1,
            Reject::IpChecksum => self.counters.drop_ip_checksum += 1,
            Reject::Fragment => self.counters.drop_fragment += 1,
            Reject::NotIp | Reject::NotTcp => {
                let mut about = None;
                match self.endpoint.handle_frame(now, frame, &mut |icmp| about = Some(icmp)) {
                    Verdict::Malformed => self.counters.drop_malformed += 1,
                    Verdict::NotOurs => self.counters.drop_not_ours += 1,
                    Verdict::Ignored if reject == Reject::NotIp => self.counters.drop_not_ip += 1,
                    Verdict::Ignored => self.counters.drop_protocol += 1,
                    // The endpoint counts what it acted upon itself.
                    _ => {}
                }
                if let Some(icmp) = about
                    && let Some(conn) = self.find(&icmp.tuple)
                {
                    self.counters.icmp_errors += 1;
                    self.event(Event::Icmp { conn, error: icmp.error });
                }
            }
        }
    }
}

/// The fast path's validation (LC §3.3.1), on the hot context alone.
#[inline]
fn is_fast(flow: &Flow, packet: &Packet) -> bool {
    let (rx, tx) = (&flow.rx, &flow.tx);
    let plain = packet.flags.without(Flags::PSH) == Flags::ACK && flow.has(bits::SYNCHRONIZED | bits::ATTACHED);
    let fresh = flow.bits & bits::TIMESTAMPS == 0
        || packet.timestamps.is_some_and(|ts| ts.val.wrapping_sub(rx.ts_recent) as i32 >= 0);
    let acked = packet.ack.since(tx.snd_una);
    let recent = acked <= tx.snd_nxt.since(tx.snd_una) && acked >= -(tx.max_wnd.min(1 << 30) as i32);
    let end = packet.seq + packet.payload_len;
    // A segment wholly before rcv_nxt is a duplicate that the TCE answers.
    let inside = end.before_eq(rx.right_edge) && rx.rcv_nxt.since(packet.seq) < 1 << 30;
    plain && fresh && recent && inside && flow.bits & bits::FIN_RECEIVED == 0
}

fn tuple_of(packet: &Packet) -> Tuple {
    Tuple { local: packet.dst, remote: packet.src, local_port: packet.dst_port, remote_port: packet.src_port }
}

/// How a frame's payload is cut: a super-frame is a run (RA §3.4).
fn lengths_of(packet: &Packet, gso_size: u16) -> Lengths {
    let len = packet.payload_len;
    if gso_size == 0 || len <= u32::from(gso_size) {
        return Lengths::single(len);
    }
    let count = len.div_ceil(u32::from(gso_size)).min(0xffff) as u16;
    Lengths { len, size: gso_size, count }
}

fn rare_options(packet: &Packet, frame: &[u8]) -> (SackBlocks, SynOptions) {
    let (mut sack, mut syn) = (SackBlocks::new(), SynOptions::default());
    for option in packet.options(frame) {
        match option {
            Ok(TcpOption::Mss(mss)) => syn.mss = Some(mss),
            Ok(TcpOption::WindowScale(shift)) => syn.window_scale = Some(shift),
            Ok(TcpOption::SackPermitted) => syn.sack_permitted = true,
            Ok(TcpOption::Sack(blocks)) => sack = blocks,
            Ok(TcpOption::Unsummed { ttl }) => syn.unsummed = ttl == packet.ttl,
            Ok(_) => {}
            // MUST-7 (RFC 9293 §3.1): an illegal length ends the walk, quietly.
            Err(_) => break,
        }
    }
    (sack, syn)
}
