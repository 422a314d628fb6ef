//! Sending: cut segments straight from the consumer's send queue, one pass of
//! copy and checksum into the frame (LC §3.2).
//!
//! The TCE says how much may be sent, in one number (`limit`); [`baton_tcp::nagle`] says when
//! sending is worth it. Ports that cut super-frames get up to 64 KB at once, but never more
//! than half a window: if a whole window were one frame and were lost, no later segment would
//! reveal the loss, and the repair would wait for a timer (Linux's `tcp_cwnd_test` holds two in
//! flight for the same reason). Ports that gather are given references.

use super::context::{Flow, bits};
use super::segment::{Cut, Sender};
use super::{ConnId, Streamer};
use crate::frame_io::{FrameIo, TxMeta};
use crate::seam::event::Event;
use baton_tcp::nagle::{self, Partial};
use baton_tcp::segment::Transmitted;
use baton_tcp::time::Instant;
use baton_wire::seq::{Seq, Window};
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};

/// Payload bytes that a connection may send before the next one is served.
const TURN_BYTES: u32 = 128 * 1024;

/// Why a connection's turn ended.
enum Turn {
    /// Nothing more may go now.
    Done,
    /// Its share of this round is used up.
    More,
    /// The port takes no more.
    PortFull,
}

impl Streamer {
    /// Gives each connection that may send one turn, in round robin.
    pub(super) fn serve_active<P: FrameIo>(&mut self, now: Instant, port: &mut P) -> usize {
        if self.active.is_empty() {
            return 0;
        }
        if self.marks.as_ref().is_some_and(|marks| marks.has_writes()) {
            self.mark_writes();
        }
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

    /// The state for sending this connection's segments; `None` if it has no consumer.
    fn sender(&mut self, now: Instant, conn: ConnId) -> Option<Sender<'_>> {
        let ready = self.ready_template(conn);
        let Streamer { flows, consumers, templates, capabilities, counters, ip_id, marks, .. } = self;
        let flow = &mut flows[conn.0];
        let region = &consumers.get(usize::from(flow.consumer))?.as_ref()?.region;
        let template = if ready { templates.template(conn) } else { None };
        let marks = if flow.has(bits::MARKED_OUT) { marks.as_mut().and_then(|marks| marks.turn(conn)) } else { None };
        Some(Sender { now, flow, region, template, capabilities, counters, ip_id, marks })
    }

    fn serve<P: FrameIo>(&mut self, now: Instant, port: &mut P, conn: ConnId) -> Turn {
        let flow = &self.flows[conn.0];
        if !flow.has(bits::SYNCHRONIZED | bits::ATTACHED)
            || flow.bits & (bits::FIN_SENT | bits::SUSPENDED | bits::QUIET) != 0
        {
            return Turn::Done;
        }
        let start = flow.tx.snd_nxt;
        if let Some((flow, record)) = self.published(conn) {
            record.may_send(flow.reach());
        }
        let Some(mut sender) = self.sender(now, conn) else { return Turn::Done };
        let largest = sender.largest_payload();
        let mut turn = Turn::More;
        if largest == u32::from(sender.flow.tx.mss) && !send_full(&mut sender, port, start) {
            turn = Turn::PortFull;
        }
        while matches!(turn, Turn::More) && sender.flow.tx.snd_nxt.since(start) < TURN_BYTES as i32 {
            let window = sender.flow.tx.limit.since(sender.flow.tx.snd_una).max(0) as u32;
            let Some((len, fin)) = next_cut(sender.flow, largest.min(half(window, sender.flow.tx.mss))) else {
                turn = Turn::Done;
                break;
            };
            let flow = &*sender.flow;
            let flags = data_flags(flow, len, fin, false);
            let ecn = sender.ecn();
            let seq = flow.tx.snd_nxt;
            if !sender.send(port, &Cut { seq, len, flags, ecn }) {
                turn = Turn::PortFull;
                break;
            }
            let flow = &mut *sender.flow;
            flow.tx.snd_nxt = seq + len + u32::from(fin);
            flow.bits &= !bits::CWR;
            if len % u32::from(flow.tx.mss) != 0 {
                flow.tx.snd_sml = seq + len;
            }
            if fin {
                flow.bits |= bits::FIN_SENT;
            }
            sender.counters.tx_payload_bytes += u64::from(len);
        }
        self.report_sent(conn, start, matches!(turn, Turn::Done));
        turn
    }

    /// Tells the TCE what went since `start`, or that nothing can.
    fn report_sent(&mut self, conn: ConnId, start: Seq, done: bool) {
        let flow = &mut self.flows[conn.0];
        let queued = flow.queued().min(u64::from(u32::MAX)) as u32;
        if flow.tx.snd_nxt != start {
            flow.last_ack = flow.rx.rcv_nxt;
            flow.bits &= !(bits::BLOCKED_TOLD | if queued == 0 { bits::PUSH } else { 0 });
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
            self.event(Event::Blocked { conn, queued: queued.saturating_add(u32::from(fin_waits)) });
        }
    }

    /// Sends `[seq, end)` again, segment by segment, as far as there is anything.
    /// Returns how far it came, and whether a full port stopped it.
    pub(super) fn retransmit<P: FrameIo>(
        &mut self,
        now: Instant,
        port: &mut P,
        conn: ConnId,
        seq: Seq,
        end: Seq,
    ) -> (Seq, bool) {
        let Some(mut sender) = self.sender(now, conn) else { return (seq, false) };
        // The points of a message are those of its first way.
        sender.marks = None;
        let mut at = seq.latest(sender.flow.tx.snd_una);
        let window = end.since(at).max(0) as u32;
        let largest = sender.largest_payload().min(half(window, sender.flow.tx.mss));
        while at.before(end) {
            let flow = &*sender.flow;
            let fin_seq = flow.has(bits::FIN_SENT).then_some(flow.tx.snd_nxt - 1);
            let posted_end = flow.tx.snd_una + (flow.tx.tail_pos.saturating_sub(flow.tx.una_pos)).min(1 << 30) as u32;
            let data_end = end.earliest(posted_end).earliest(fin_seq.unwrap_or(end));
            let len = (data_end.since(at).max(0) as u32).min(largest);
            let fin = fin_seq.is_some_and(|fin_seq| at + len == fin_seq && end.after(fin_seq));
            if len == 0 && !fin {
                break;
            }
            let flags = data_flags(flow, len, fin, true);
            if !sender.send(port, &Cut { seq: at, len, flags, ecn: 0 }) {
                return (at, true);
            }
            at = at + len + u32::from(fin);
            sender.counters.tx_retransmitted_bytes += u64::from(len);
        }
        (at, false)
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
        if !self.ready_template(conn) {
            self.counters.tx_no_neighbour += 1;
            return true;
        }
        let Streamer { flows, templates, capabilities, counters, ip_id, .. } = self;
        let flow = &mut flows[conn.0];
        let Some(template) = templates.template(conn) else { return true };
        // Later ACKs cover what arrived since: the TCE counts segments. An earlier
        // acknowledgment is not repeated.
        let ack = if ack.after(flow.last_ack) { ack } else { flow.rx.rcv_nxt };
        let sent = super::segment::send_ack(now, port, flow, template, capabilities, ip_id, ack, sack);
        if let Some(len) = sent {
            flow.last_ack = ack;
            counters.tx_acks += 1;
            counters.tx_frames += 1;
            counters.tx_bytes += len as u64;
        }
        sent.is_some()
    }

    /// The ACKs that a template stands for (RA §4): their first number, how far they are
    /// apart, and how many; false if the port is full, and the rest is for another time.
    pub(super) fn send_acks<P: FrameIo>(
        &mut self,
        now: Instant,
        port: &mut P,
        conn: ConnId,
        first: Seq,
        step: u32,
        count: u16,
    ) -> bool {
        for n in std::mem::take(&mut self.acks_sent)..count {
            if !self.send_ack(now, port, conn, first + step * u32::from(n), &SackBlocks::EMPTY) {
                self.acks_sent = n;
                return false;
            }
        }
        true
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
}

/// The full segments of a turn, all alike, while there are two or more to send;
/// false if the port is full.
#[inline]
fn send_full<P: FrameIo>(sender: &mut Sender<'_>, port: &mut P, start: Seq) -> bool {
    let mss = u32::from(sender.flow.tx.mss);
    let (queued, limit) = (sender.flow.queued(), sender.flow.tx.limit.since(start).max(0) as u32);
    let most = queued.min(u64::from(limit.min(TURN_BYTES))) as u32 / mss;
    let marked = sender.flow.bits & (bits::ECE | bits::CWR | bits::FIN_WANTED) != 0;
    if most < 2 || marked {
        return true;
    }
    let Some(stamp) = sender.stamp() else { return true };
    for left in (1..=most).rev() {
        let push = left == 1 && queued == u64::from(most * mss);
        if !sender.send_stamped(port, &stamp, push) {
            return false;
        }
        sender.flow.tx.snd_nxt += mss;
        sender.counters.tx_payload_bytes += u64::from(mss);
    }
    true
}

/// The larger half of a window, in bytes of whole segments; a segment at the least.
#[inline]
fn half(window: u32, mss: u16) -> u32 {
    let mss = u32::from(mss.max(1));
    (window / mss).div_ceil(2).max(1) * mss
}

// MUST-60 (RFC 9293 §3.9.1.2): what is queued goes as soon as window and Nagle
// allow; nothing waits for a push.
/// Payload bytes of the next segment or super-frame, at most `largest`, and
/// whether a FIN goes with it; `None` if nothing should go now.
#[inline]
fn next_cut(flow: &Flow, largest: u32) -> Option<(u32, bool)> {
    let queued = flow.queued().min(1 << 30) as u32;
    let usable = flow.tx.limit.since(flow.tx.snd_nxt).max(0) as u32;
    let mss = u32::from(flow.tx.mss);
    if mss == 0 || usable == 0 {
        return None;
    }
    if queued > largest && usable >= largest {
        return Some((largest, false));
    }
    let fin_wanted = flow.has(bits::FIN_WANTED) && !flow.has(bits::FIN_SENT);
    if queued == 0 && !fin_wanted {
        return None;
    }
    let most = queued.min(usable).min(largest);
    let partial = most % mss;
    let whole = most - partial;
    let tail = partial == 0
        || nagle::may_send_partial(&Partial {
            bytes: partial,
            last: most == queued,
            small_in_flight: flow.small_in_flight(),
            max_wnd: flow.tx.max_wnd,
            nodelay: flow.has(bits::NODELAY) || (fin_wanted && most == queued),
            cork: flow.bits & (bits::CORK | bits::PUSH) == bits::CORK && !fin_wanted,
        });
    let len = if tail { most } else { whole };
    let fin = fin_wanted && len == queued && usable > len;
    (len > 0 || fin).then_some((len, fin))
}

/// Control bits of a data segment.
#[inline]
fn data_flags(flow: &Flow, len: u32, fin: bool, again: bool) -> Flags {
    let mut flags = Flags::ACK;
    // MUST-61 (RFC 9293 §3.9.1.2): PSH on the last segment of what is queued. A FIN alone
    // pushes nothing, as in Linux.
    if len > 0 && (fin || again || u64::from(len) == flow.queued()) {
        flags |= Flags::PSH;
    }
    if fin {
        flags |= Flags::FIN;
    }
    if flow.bits & (bits::ECE | bits::CWR) != 0 {
        if flow.has(bits::ECE) {
            flags |= Flags::ECE;
        }
        if flow.has(bits::CWR) && !again && len > 0 {
            flags |= Flags::CWR;
        }
    }
    flags
}

impl Flow {
    /// Stream position that one turn can send up to, at most; a FIN counts.
    #[inline]
    fn reach(&self) -> u64 {
        let usable = self.tx.limit.since(self.tx.snd_nxt).max(0) as u64;
        let fin = u64::from(self.has(bits::FIN_WANTED));
        self.snd_pos(self.tx.snd_nxt) + usable.min(self.queued() + fin)
    }

    /// The window field of everything sent on a synchronised connection that acknowledges
    /// all that was received.
    #[inline]
    pub(super) fn window_field(&self) -> u16 {
        self.window_field_at(self.rx.rcv_nxt)
    }

    /// The window field beside this acknowledgment number.
    #[inline]
    pub(super) fn window_field_at(&self, ack: Seq) -> u16 {
        self.rcv_wscale.field(Window(self.rx.right_edge.since(ack).max(0) as u32))
    }

    /// The timestamps option of everything sent, if they were agreed on.
    #[inline]
    pub(super) fn timestamps(&self, now: Instant) -> Option<Timestamps> {
        self.has(bits::TIMESTAMPS)
            .then(|| Timestamps { val: now.timestamp_ms().wrapping_add(self.ts_offset), ecr: self.rx.ts_recent })
    }
}
