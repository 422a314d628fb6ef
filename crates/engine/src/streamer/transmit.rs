//! Sending: cut segments straight from the consumer's send queue, one pass of
//! copy and checksum into the frame (LC §3.2).
//!
//! What may be sent is the TCE's to say, in one number (`limit`); when it is
//! worth sending is said by [`baton_tcp::nagle`]. Ports that cut super-frames are
//! given up to 64 KB at once, ports that gather are given references.

use super::context::{Cursor, Flow, bits};
use super::{ConnId, Streamer};
use crate::event::Event;
use crate::frame_io::{FrameIo, PayloadPart, TxMeta};
use baton_tcp::nagle::{self, Partial};
use baton_tcp::segment::Transmitted;
use baton_tcp::time::Instant;
use baton_wire::checksum;
use baton_wire::seq::{Seq, Window};
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};

/// Payload bytes that a connection may send before the next one is served.
const TURN_BYTES: u32 = 64 * 1024;

/// Extents that one frame's payload may be spread over.
pub(super) const MAX_PARTS: usize = 8;

/// ECT(0) in the IP header (RFC 3168 §5).
const ECT0: u8 = 2;

/// Why a connection's turn ended.
enum Turn {
    /// Nothing more may go now.
    Done,
    /// Its share of this round is used up.
    More,
    /// The port takes no more.
    PortFull,
}

/// A segment, or super-frame, about to be built.
pub(super) struct Outgoing {
    pub seq: Seq,
    pub len: u32,
    pub flags: Flags,
    pub ecn: u8,
}

impl Streamer {
    /// Gives each connection that may send one turn, in round robin.
    pub(super) fn serve_active<P: FrameIo>(&mut self, now: Instant, port: &mut P) -> usize {
        let mut served = 0;
        for _ in 0..self.active.len() {
            if self.event_room() < 2 {
                break;
            }
            let Some(conn) = self.active.pop_front() else { break };
            served += 1;
            match self.serve(now, port, conn) {
                Turn::Done => self.flows[conn.0].bits &= !bits::ACTIVE,
                Turn::More => self.active.push_back(conn),
                Turn::PortFull => {
                    self.active.push_front(conn);
                    self.counters.tx_port_full += 1;
                    break;
                }
            }
        }
        served
    }

    /// Puts a connection on the list of those that may have something to send.
    pub(super) fn activate(&mut self, conn: ConnId) {
        let flow = &mut self.flows[conn.0];
        if flow.bits & bits::ACTIVE == 0 && flow.has(bits::SYNCHRONIZED | bits::ATTACHED) {
            flow.bits |= bits::ACTIVE;
            self.active.push_back(conn);
        }
    }

    fn serve<P: FrameIo>(&mut self, now: Instant, port: &mut P, conn: ConnId) -> Turn {
        let flow = &self.flows[conn.0];
        if !flow.has(bits::SYNCHRONIZED | bits::ATTACHED) || flow.has(bits::FIN_SENT) {
            return Turn::Done;
        }
        let start = flow.tx.snd_nxt;
        let mut turn = Turn::More;
        while self.flows[conn.0].tx.snd_nxt.since(start) < TURN_BYTES as i32 {
            let Some((len, fin)) = self.next_cut(conn) else {
                turn = Turn::Done;
                break;
            };
            let flow = &self.flows[conn.0];
            let flags = data_flags(flow, len, fin, false);
            let ecn = if flow.has(bits::ECN) { ECT0 } else { 0 };
            let seq = flow.tx.snd_nxt;
            if !self.send_segment(now, port, conn, &Outgoing { seq, len, flags, ecn }) {
                turn = Turn::PortFull;
                break;
            }
            let flow = &mut self.flows[conn.0];
            flow.tx.snd_nxt = seq + len + u32::from(fin);
            flow.bits &= !bits::CWR;
            if fin {
                flow.bits |= bits::FIN_SENT;
            }
            self.counters.tx_payload_bytes += u64::from(len);
        }
        self.report_sent(conn, start, matches!(turn, Turn::Done));
        turn
    }

    /// Payload bytes of the next segment or super-frame, and whether a FIN goes
    /// with it; `None` if nothing should go now.
    fn next_cut(&self, conn: ConnId) -> Option<(u32, bool)> {
        let flow = &self.flows[conn.0];
        let queued = flow.queued().min(1 << 30) as u32;
        let usable = flow.tx.limit.since(flow.tx.snd_nxt).max(0) as u32;
        let mss = u32::from(flow.tx.mss);
        let fin_wanted = flow.has(bits::FIN_WANTED);
        if mss == 0 || usable == 0 || (queued == 0 && !fin_wanted) {
            return None;
        }
        let most = queued.min(usable).min(self.largest_payload(mss));
        let partial = most % mss;
        let whole = most - partial;
        let tail = partial == 0
            || nagle::may_send_partial(&Partial {
                bytes: partial,
                last: most == queued,
                idle: whole == 0 && flow.tx.snd_una == flow.tx.snd_nxt,
                max_wnd: flow.tx.max_wnd,
                nodelay: flow.has(bits::NODELAY) || (fin_wanted && most == queued),
                cork: flow.has(bits::CORK) && !fin_wanted,
            });
        let len = if tail { most } else { whole };
        let fin = fin_wanted && len == queued && usable > len;
        (len > 0 || fin).then_some((len, fin))
    }

    /// The most payload that one frame to this port takes.
    fn largest_payload(&self, mss: u32) -> u32 {
        // 54 bytes of Ethernet and IPv6 headers, 60 of TCP.
        let room = self.capabilities.tx_gso_max.min(65_535).saturating_sub(114);
        if room <= mss { mss } else { room - room % mss }
    }

    /// Tells the TCE what went since `start`, or that nothing can.
    fn report_sent(&mut self, conn: ConnId, start: Seq, done: bool) {
        let flow = &mut self.flows[conn.0];
        let queued = flow.queued().min(u64::from(u32::MAX)) as u32;
        if flow.tx.snd_nxt != start {
            flow.bits &= !bits::BLOCKED_TOLD;
            let sent = Transmitted {
                seq: start,
                end: flow.tx.snd_nxt,
                retransmit: false,
                fin: flow.has(bits::FIN_SENT),
                ack: flow.rx.rcv_nxt,
                queued,
            };
            self.event(Event::Transmitted { conn, sent });
            return;
        }
        let fin_waits = flow.has(bits::FIN_WANTED) && !flow.has(bits::FIN_SENT);
        let waits = queued > 0 || fin_waits;
        let idle = flow.tx.snd_una == flow.tx.snd_nxt;
        if done && waits && idle && !flow.has(bits::BLOCKED_TOLD) {
            flow.bits |= bits::BLOCKED_TOLD;
            self.event(Event::Blocked { conn, queued: queued + u32::from(fin_waits) });
        }
    }

    /// Sends `[seq, end)` again, segment by segment. Returns how far it came:
    /// `end`, or less if the port is full.
    pub(super) fn retransmit<P: FrameIo>(
        &mut self,
        now: Instant,
        port: &mut P,
        conn: ConnId,
        seq: Seq,
        end: Seq,
    ) -> Seq {
        let mut at = seq.latest(self.flows[conn.0].tx.snd_una);
        while at.before(end) {
            let flow = &self.flows[conn.0];
            let fin_seq = flow.has(bits::FIN_SENT).then_some(flow.tx.snd_nxt - 1);
            let posted_end = flow.tx.snd_una + (flow.tx.tail_pos.saturating_sub(flow.tx.una_pos)).min(1 << 30) as u32;
            let data_end = end.earliest(posted_end).earliest(fin_seq.unwrap_or(end));
            let mss = u32::from(flow.tx.mss).max(1);
            let len = (data_end.since(at).max(0) as u32).min(self.largest_payload(mss));
            let fin = fin_seq.is_some_and(|fin_seq| at + len == fin_seq && end.after(fin_seq));
            if len == 0 && !fin {
                return end;
            }
            let flags = data_flags(flow, len, fin, true);
            if !self.send_segment(now, port, conn, &Outgoing { seq: at, len, flags, ecn: 0 }) {
                return at;
            }
            at = at + len + u32::from(fin);
            self.counters.tx_retransmitted_bytes += u64::from(len);
        }
        at
    }

    /// Builds one frame of data and hands it to the port; false if it is full.
    /// A segment whose neighbour is not known counts as sent: as lost on the way.
    fn send_segment<P: FrameIo>(&mut self, now: Instant, port: &mut P, conn: ConnId, out: &Outgoing) -> bool {
        let Some((parts, count)) = self.payload_parts(conn, out.seq, out.len) else {
            // The consumer took back what it had posted: nothing to send.
            self.counters.hostile_consumer += 1;
            return true;
        };
        if !self.ready_template(conn) {
            self.counters.tx_no_neighbour += 1;
            return true;
        }
        let gso = out.len > u32::from(self.flows[conn.0].tx.mss);
        let mut header = [0; super::headers::MAX_HEADER];
        if self.capabilities.tx_gather {
            let Some((len, meta)) = self.build_header(now, conn, out, gso, None, &mut header) else {
                return true;
            };
            return self.count_sent(port.gather(&header[..len], &parts[..count], meta), conn, len, out);
        }
        let Some(header_len) = self.header_len(conn) else { return true };
        let Some(slot) = port.slot(header_len + out.len as usize) else { return false };
        let sum = self.copy_payload(conn, out, &mut slot[header_len..]);
        let Some((len, meta)) = self.build_header(now, conn, out, gso, sum, slot) else { return true };
        debug_assert_eq!(len, header_len);
        port.commit(header_len + out.len as usize, meta);
        self.count_sent(true, conn, header_len, out)
    }

    fn count_sent(&mut self, sent: bool, conn: ConnId, header_len: usize, out: &Outgoing) -> bool {
        if sent {
            let mss = u32::from(self.flows[conn.0].tx.mss).max(1);
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += (header_len as u64) + u64::from(out.len);
            self.counters.tx_segments += u64::from(out.len.div_ceil(mss));
        }
        sent
    }

    /// Where `[seq, seq + len)` lies in the consumer's memory, for a port that
    /// gathers; and moves the cursor there. `None` if it is not posted.
    fn payload_parts(&mut self, conn: ConnId, seq: Seq, len: u32) -> Option<([PayloadPart; MAX_PARTS], usize)> {
        let mut parts = [PayloadPart { ptr: std::ptr::null(), len: 0 }; MAX_PARTS];
        if len == 0 {
            return Some((parts, 0));
        }
        let flow = &mut self.flows[conn.0];
        let slot = self.consumers.get(usize::from(flow.consumer))?.as_ref()?;
        let (region, tail) = (&slot.region, flow.tx.sq_tail);
        let qp = region.qp(flow.qp);
        let read = |index| qp.sq_extent(index);
        let (mut pos, end) = (flow.snd_pos(seq), flow.snd_pos(seq) + u64::from(len));
        let mut cursor = start_cursor(flow, pos);
        if !cursor.seek(pos, tail, read) {
            return None;
        }
        if seq == flow.tx.snd_nxt {
            flow.tx.nxt_cursor = cursor;
        }
        let mut count = 0;
        while pos < end {
            if count == MAX_PARTS || !cursor.seek(pos, tail, read) {
                return None;
            }
            let piece = cursor.extent.part((pos - cursor.start) as u32, (end - pos).min(u64::from(u32::MAX)) as u32);
            parts[count] = region.part(piece);
            count += 1;
            pos += u64::from(piece.len());
        }
        Some((parts, count))
    }

    /// Copies payload into the frame; its sum, unless the port fills it in.
    fn copy_payload(&mut self, conn: ConnId, out: &Outgoing, frame: &mut [u8]) -> Option<u32> {
        let flow = &self.flows[conn.0];
        let with_sum = !self.capabilities.tx_checksum;
        let slot = self.consumers[usize::from(flow.consumer)].as_ref()?;
        let (region, tail) = (&slot.region, flow.tx.sq_tail);
        let qp = region.qp(flow.qp);
        let pos = flow.snd_pos(out.seq);
        let mut cursor = start_cursor(flow, pos);
        let mut done = 0;
        let mut total = 0;
        while done < out.len as usize {
            let at = pos + done as u64;
            if !cursor.seek(at, tail, |index| qp.sq_extent(index)) {
                break;
            }
            let piece = cursor.extent.part((at - cursor.start) as u32, out.len - done as u32);
            let to = &mut frame[done..done + piece.len() as usize];
            if with_sum {
                total = checksum::combine(total, done, region.copy_out_sum(piece, to));
            } else {
                region.copy_out(piece, to);
            }
            done += piece.len() as usize;
        }
        with_sum.then_some(total)
    }

    /// An ACK without data; false if the port is full.
    pub(super) fn send_ack<P: FrameIo>(
        &mut self,
        now: Instant,
        port: &mut P,
        conn: ConnId,
        ack: Seq,
        sack: &SackBlocks,
    ) -> bool {
        let mut header = [0; super::headers::MAX_HEADER];
        let flow = &self.flows[conn.0];
        let flags = Flags::ACK | if flow.has(bits::ECE) { Flags::ECE } else { Flags::NONE };
        let out = Outgoing { seq: flow.tx.snd_nxt, len: 0, flags, ecn: 0 };
        let ack = ack.latest(flow.rx.rcv_nxt);
        let Some((len, meta)) = self.build_ack(now, conn, &out, ack, sack, &mut header) else { return true };
        let sent = self.send_header(port, &header[..len], meta);
        self.counters.tx_acks += u64::from(sent);
        sent
    }

    /// Hands a frame of headers alone to the port; false if it is full.
    pub(super) fn send_header<P: FrameIo>(&mut self, port: &mut P, header: &[u8], meta: TxMeta) -> bool {
        let Some(slot) = port.slot(header.len()) else { return false };
        slot[..header.len()].copy_from_slice(header);
        port.commit(header.len(), meta);
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += header.len() as u64;
        true
    }

    /// Frames of the endpoint: ARP, neighbour discovery, ICMP.
    pub(super) fn send_outbox<P: FrameIo>(&mut self, port: &mut P) -> usize {
        let mut sent = 0;
        while let Some(frame) = self.endpoint.peek_outbox() {
            let Some(slot) = port.slot(frame.len()) else { break };
            slot[..frame.len()].copy_from_slice(frame);
            let len = frame.len();
            port.commit(len, TxMeta::default());
            self.endpoint.pop_outbox();
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += len as u64;
            sent += 1;
        }
        sent
    }

    /// The window field of everything sent on a synchronised connection.
    pub(super) fn window_field(flow: &Flow) -> u16 {
        flow.rcv_wscale.field(Window(flow.rx.right_edge.since(flow.rx.rcv_nxt).max(0) as u32))
    }

    pub(super) fn timestamps(flow: &Flow, now: Instant) -> Option<Timestamps> {
        flow.has(bits::TIMESTAMPS)
            .then(|| Timestamps { val: now.timestamp_ms().wrapping_add(flow.ts_offset), ecr: flow.rx.ts_recent })
    }
}

/// Control bits of a data segment.
fn data_flags(flow: &Flow, len: u32, fin: bool, again: bool) -> Flags {
    let mut flags = Flags::ACK;
    // MUST-60..61 (RFC 9293 §3.9.1.2): PSH on the last segment of what is queued.
    if fin || u64::from(len) == flow.queued() || again {
        flags |= Flags::PSH;
    }
    if fin {
        flags |= Flags::FIN;
    }
    if flow.has(bits::ECE) {
        flags |= Flags::ECE;
    }
    if flow.has(bits::CWR) && !again && len > 0 {
        flags |= Flags::CWR;
    }
    flags
}

/// The cursor from which a send position is reached soonest.
fn start_cursor(flow: &Flow, pos: u64) -> Cursor {
    if pos >= flow.tx.nxt_cursor.start { flow.tx.nxt_cursor } else { flow.tx.una_cursor }
}
