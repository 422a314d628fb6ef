//! Carrying out what the TCE decided.
//!
//! An order leaves the ring only once it is done: if the port is full, or the event ring has no
//! space for what the order produces, the work stops here and continues next time.

use super::context::{Flow, bits};
use super::headers::{ControlSegment, MAX_HEADER};
use super::{ConnId, Streamer};
use crate::endpoint::HopId;
use crate::frame_io::FrameIo;
use crate::options::IpFields;
use crate::reassembly::Reassembly;
use crate::region::{Completion, Events, Identity};
use crate::seam::event::{Event, Wish};
use crate::seam::kinds::Queues;
use crate::seam::order::{Open, Order};
use baton_tcp::command::{Command, Synchronized, TransmitContext};
use baton_tcp::manner::Manner;
use baton_tcp::segment::{ParkId, Transmitted};
use baton_tcp::time::Instant;
use baton_wire::seq::Seq;
use baton_wire::tcp::{Flags, Timestamps};

/// Orders carried out in one poll.
const PER_POLL: usize = 1024;

impl Streamer {
    /// Carries out orders until there are none, or one cannot be done now.
    pub(super) fn handle_orders<P: FrameIo>(&mut self, now: Instant, port: &mut P) -> usize {
        let mut done = 0;
        while done < PER_POLL && self.events.free() > 0 {
            let Some(order) = self.orders.batch().first().copied() else { break };
            if !self.handle_order(now, port, order) {
                self.counters.tx_port_full += 1;
                break;
            }
            self.orders.advance(1);
            done += 1;
        }
        done
    }

    /// False if the port is full and the order is to be tried again.
    fn handle_order<P: FrameIo>(&mut self, now: Instant, port: &mut P, order: Order) -> bool {
        match order {
            Order::Tcp { conn, command } => return self.handle_command(now, port, conn, command),
            Order::Tuple(tuple) => self.order_tuple = tuple,
            Order::Open(open) => self.open(now, open),
            Order::Reply { flags, seq, ack, wnd, syn, ts } => {
                let tuple = self.order_tuple;
                let Some(hop) = self.endpoint.hop_for(now, tuple.remote) else { return true };
                let ts = ts.map(|(val, ecr)| Timestamps { val, ecr });
                let control = ControlSegment { flags, seq, ack, wnd, syn, ts, unsummed: false };
                let mut header = [0; MAX_HEADER];
                let built = self.build_control(&tuple, hop.0, IpFields::default(), &control, &mut header);
                self.endpoint.hop_release(hop);
                let Some((len, meta)) = built else { return true };
                let sent = self.send_header(port, &header[..len], meta);
                self.counters.tx_replies += u64::from(sent);
                return sent;
            }
            Order::Unpark { park } => self.reassembly.free(park),
            Order::SnapshotHead(half) => self.moves.head = half,
            Order::SnapshotTail(half) => self.moves.tail = half,
            Order::SuspendOption(option) => {
                let _ = self.moves.options.try_push(option);
            }
            Order::Suspended { conn, leaves } => self.suspension_answered(conn, leaves),
            Order::Reopened { conn } => self.reopened(conn),
            Order::AdoptRefused { consumer, token, why, unused } => self.adopt_refused(consumer, token, why, unused),
            Order::Answer { consumer, completion, unused } => {
                if let Some(qp) = unused.qp {
                    self.return_qp(consumer, qp);
                }
                if let Some(hop) = unused.hop {
                    self.endpoint.hop_release(HopId(hop));
                }
                self.answer(consumer, completion);
            }
            Order::Listening { consumer, qp, token } => {
                let (local, local_port) = (self.order_tuple.local, self.order_tuple.local_port);
                let identity = Identity { local, local_port, token, listener: u32::MAX, ..Identity::default() };
                self.describe_qp(consumer, qp, &identity);
                self.answer(consumer, Completion::Opened { qp, token });
            }
            Order::Unlistened { consumer, qp } => self.release_qp(consumer, qp),
            Order::Write { consumer, offset, len, bytes } => {
                if let Some(region) = self.region(consumer)
                    && let Some(extent) = region.extent(offset, u32::from(len))
                {
                    region.copy_in(extent, &bytes[..usize::from(len)]);
                }
            }
        }
        true
    }

    fn handle_command<P: FrameIo>(&mut self, now: Instant, port: &mut P, conn: ConnId, command: Command) -> bool {
        match command {
            Command::Transmit(context) => self.update_transmit(conn, &context),
            Command::Receive { right_edge, ts_recent } => {
                let flow = &mut self.flows[conn.0];
                flow.rx.right_edge = flow.rx.right_edge.latest(right_edge);
                flow.on_ordered_timestamp(ts_recent);
                if let Some((flow, record)) = self.published(conn) {
                    record.set_edge(&flow.received());
                }
            }
            Command::Ack { ack, sack } => return self.send_ack(now, port, conn, ack, &sack),
            Command::Acks { first, step, count } => return self.send_acks(now, port, conn, first, step, count),
            Command::Retransmit { seq, end } => return self.order_retransmit(now, port, conn, seq, end),
            Command::Place { park, seq, skip, len, rest } => {
                self.place_order(conn, park, seq, skip, len);
                if !rest {
                    self.unpark(conn, park);
                }
            }
            Command::Drop { park } => self.unpark(conn, park),
            Command::Control { flags, seq, ack, wnd, syn, ts_ecr } => {
                let flow = &mut self.flows[conn.0];
                if flags.contains(Flags::SYN | Flags::ACK) && syn.is_some_and(|syn| syn.unsummed) {
                    flow.bits |= bits::ACCEPTS_UNSUMMED;
                }
                let unsummed = flow.has(bits::SENDS_UNSUMMED) && !flags.contains(Flags::SYN);
                let (tuple, hop, ip) = (flow.rx.tuple, flow.tx.hop, flow.ip);
                let (snd_una, snd_nxt) = (flow.tx.snd_una, flow.tx.snd_nxt);
                let resets = flags.contains(Flags::RST) && flow.has(bits::SYNCHRONIZED);
                let ts = flow.control_timestamps(now, ts_ecr);
                let mut send = |seq| {
                    let control = ControlSegment { flags, seq, ack, wnd, syn, ts, unsummed };
                    let mut header = [0; MAX_HEADER];
                    let Some((len, meta)) = self.build_control(&tuple, hop, ip, &control, &mut header) else {
                        return true;
                    };
                    self.send_header(port, &header[..len], meta)
                };
                if !resets {
                    return send(seq);
                }
                // A peer believes a reset at the next number it waits for, and no other (RFC
                // 5961 §3.2): that is behind all that was sent, also since the TCE last heard
                // of it, or before it if it is lost or late.
                let (before, behind) = (snd_una, seq.latest(snd_nxt));
                return (before == behind || send(before)) && send(behind);
            }
            Command::Synchronized(sync) => self.synchronize(conn, &sync),
            Command::PeerFin { seq } => self.peer_fin(conn, seq),
            Command::Fin => {
                self.flows[conn.0].bits |= bits::FIN_WANTED;
                if let Some((flow, record)) = self.published(conn) {
                    record.set_fin(flow.tx.tail_pos);
                }
                self.activate(conn);
            }
            Command::Notify(notice) => self.notify(conn, notice),
            Command::Detach => self.detach(conn),
            Command::Release => self.release(conn),
        }
        true
    }

    fn open(&mut self, now: Instant, open: Open) {
        let tuple = self.order_tuple;
        self.flows.grow_to(open.conn.0);
        // A passive opener's hop was learned from its SYN; an active one's is held.
        let hop = open.hop.map(HopId).or_else(|| self.endpoint.hop_for(now, tuple.remote));
        let flow = &mut self.flows[open.conn.0];
        *flow = Flow::default();
        flow.rx.tuple = tuple;
        flow.tx.hop = hop.map_or(u16::MAX, |hop| hop.0);
        flow.ts_offset = open.ts_offset;
        flow.consumer = open.consumer;
        flow.qp = open.listener;
        flow.ip = open.ip;
        if let Some(qp) = open.qp {
            flow.qp = qp;
            flow.bits |= bits::ATTACHED;
            if let Some(Queues { queued, unread }) = open.adopted {
                (flow.tx.tail_pos, flow.rx.rcv_pos) = (queued.into(), unread.into());
                if queued > 0 || unread > 0 {
                    flow.bits = flow.bits & !bits::ATTACHED | bits::FILLING;
                }
            }
            let identity = Identity {
                local: tuple.local,
                remote: tuple.remote,
                local_port: tuple.local_port,
                remote_port: tuple.remote_port,
                token: open.token,
                listener: u32::MAX,
            };
            self.own_qp(open.consumer, qp, open.conn);
            self.describe_qp(open.consumer, qp, &identity);
            let (token, adopted) = (open.token, open.adopted.is_some());
            let opened = if adopted { Completion::Adopted { qp, token } } else { Completion::Opened { qp, token } };
            self.answer(open.consumer, opened);
            if adopted {
                self.moved_in(open.conn, token);
            }
        }
        let hash = self.table.hash(&tuple);
        assert!(self.table.insert(hash, open.conn.0).is_ok(), "the TCE opens no more connections than the table holds");
        self.note_qp(open.conn);
    }

    fn synchronize(&mut self, conn: ConnId, sync: &Synchronized) {
        let flow = &mut self.flows[conn.0];
        flow.tx.snd_una = sync.snd_una;
        flow.tx.snd_nxt = sync.snd_nxt;
        // Where the last small segment ended is unknown for what another stack sent.
        flow.tx.snd_sml = sync.snd_nxt;
        flow.tx.limit = sync.snd_nxt;
        flow.rx.rcv_nxt = sync.rcv_nxt;
        flow.last_ack = sync.rcv_nxt;
        flow.rx.right_edge = sync.rcv_nxt;
        flow.rx.posted_told = sync.rcv_nxt;
        flow.rcv_wscale = sync.rcv_wscale;
        flow.rx.ts_recent = sync.ts_recent.unwrap_or(0);
        flow.bits |= bits::SYNCHRONIZED;
        if sync.ts_recent.is_some() {
            flow.bits |= bits::TIMESTAMPS;
        }
        if sync.ecn {
            flow.bits |= bits::ECN;
        }
        if sync.unsummed {
            flow.bits |= bits::ACCEPTS_UNSUMMED;
            self.send_unsummed(conn, true);
        }
        let flow = &mut self.flows[conn.0];
        if sync.fin_sent {
            flow.bits |= bits::FIN_WANTED | bits::FIN_SENT;
            if sync.snd_una == sync.snd_nxt {
                // The peer has acknowledged the FIN already: `snd_una` lies behind it.
                flow.tx.una_pos = flow.tx.tail_pos + 1;
            }
        }
        if let Some((flow, record)) = self.published(conn) {
            record.open(&flow.name(), sync);
            if !flow.has(bits::FILLING) {
                record.go_live(&flow.progress());
            }
        }
        if !self.moves.is_idle() {
            self.release_held(conn);
        }
        let flow = &mut self.flows[conn.0];
        if flow.rx.rq_limit > 0 {
            let edge = flow.posted_edge();
            flow.rx.posted_told = edge;
            self.event(Event::Posted { conn, right_edge: edge });
        }
        self.want_buffer_for_parked(conn);
    }

    fn update_transmit(&mut self, conn: ConnId, context: &TransmitContext) {
        let flow = &mut self.flows[conn.0];
        let acked = context.snd_una.since(flow.tx.snd_una).max(0) as u32;
        flow.tx.snd_una += acked;
        flow.tx.una_pos += u64::from(acked);
        flow.tx.limit = context.limit;
        let resized = std::mem::replace(&mut flow.tx.mss, context.mss) != context.mss;
        flow.tx.max_wnd = context.max_wnd;
        flow.bits = flow.bits & !(bits::MANNER | bits::BLOCKED_TOLD) | bits::of_manner(context.manner);
        if context.push && flow.queued() > 0 {
            flow.bits |= bits::PUSH;
        }
        if flow.has(bits::SENDS_UNSUMMED) && context.manner.has(Manner::SUMMED) {
            self.send_unsummed(conn, false);
        }
        if acked > 0 {
            self.publish_acknowledged(conn);
        }
        if let Some((flow, record)) = self.published(conn) {
            record.set_window(&flow.send_window());
            if resized {
                record.set_mss(flow.tx.mss);
            }
        }
        let flow = &self.flows[conn.0];
        if flow.queued() > 0 || flow.has(bits::FIN_WANTED) {
            self.activate(conn);
        }
    }

    /// The consumer's buffers before `snd_una` are free again.
    pub(super) fn publish_acknowledged(&mut self, conn: ConnId) {
        let flow = &mut self.flows[conn.0];
        if !flow.has(bits::ATTACHED) {
            return;
        }
        let Some(Some(slot)) = self.consumers.get(usize::from(flow.consumer)) else { return };
        let qp = slot.region.qp(flow.qp);
        // A FIN takes a sequence number, but no stream position.
        let done = flow.tx.una_pos.min(flow.tx.tail_pos);
        // Moved before the consumer may use the slots again; each extent is read once.
        flow.tx.una_cursor.seek(done, flow.tx.sq_tail, |index| qp.sq_extent(index));
        // The bytes that an adopted connection brought along were never sent from here.
        if flow.tx.nxt_cursor.end() < flow.tx.una_cursor.end() {
            flow.tx.nxt_cursor = flow.tx.una_cursor;
        }
        if let Some(record) = self.ledger.as_ref().and_then(|ledger| ledger.record(conn)) {
            record.set_acknowledged(&flow.acknowledged());
        }
        qp.set_snd_done(done);
        qp.raise(Events::SEND);
    }

    fn order_retransmit<P: FrameIo>(&mut self, now: Instant, port: &mut P, conn: ConnId, seq: Seq, end: Seq) -> bool {
        let flow = &self.flows[conn.0];
        if !flow.has(bits::SYNCHRONIZED | bits::ATTACHED) || flow.has(bits::SUSPENDED) {
            return true;
        }
        if let Some((flow, record)) = self.published(conn).filter(|(flow, _)| end.after(flow.tx.snd_nxt)) {
            record.may_send(flow.snd_pos(end));
        }
        let from = self.resume.take().unwrap_or(seq);
        let (reached, full) = self.retransmit(now, port, conn, from, end);
        if full {
            self.resume = Some(reached);
            return false;
        }
        let flow = &mut self.flows[conn.0];
        flow.last_ack = flow.rx.rcv_nxt;
        let new = reached.after(flow.tx.snd_nxt);
        if new {
            // The TCE sent what the sender had held back; the sender may go on.
            flow.tx.snd_nxt = reached;
            flow.bits &= !bits::BLOCKED_TOLD;
        }
        let sent = Transmitted {
            seq,
            end: reached,
            retransmit: !new,
            fin: flow.has(bits::FIN_SENT) && reached == flow.tx.snd_nxt,
            ack: flow.rx.rcv_nxt,
            queued: flow.queued().min(u64::from(u32::MAX)) as u32,
        };
        self.event(Event::Transmitted { conn, sent });
        if new {
            self.activate(conn);
        }
        true
    }

    /// The TCE counts these bytes as received already. An honest consumer always has space for
    /// them (see [`Command::Place`]). If there is none, the consumer claimed to have posted
    /// more than there is, and it loses the connection.
    fn place_order(&mut self, conn: ConnId, park: ParkId, seq: Seq, skip: u32, len: u32) {
        // Taken out of the Streamer meanwhile: placing needs the rest of it.
        let reassembly = std::mem::replace(&mut self.reassembly, Reassembly::new(0));
        let (from, to) = (skip as usize, skip as usize + len as usize);
        let piece = reassembly.get(park).get(from..to);
        if !piece.is_some_and(|piece| self.place_parked(conn, seq, piece)) {
            self.counters.hostile_consumer += 1;
            self.event(Event::Consumer { conn, wish: Wish::Abort });
        }
        self.reassembly = reassembly;
        self.mark_decided(conn);
        self.publish_received();
    }

    fn unpark(&mut self, conn: ConnId, park: ParkId) {
        // Payload that came with a SYN cookie was parked for no connection.
        if !self.reassembly.is_stranger(park) {
            let len = self.reassembly.get(park).len() as u32;
            let parked = &mut self.flows[conn.0].rx.parked_bytes;
            *parked = parked.saturating_sub(len);
        }
        self.reassembly.free(park);
    }

    fn peer_fin(&mut self, conn: ConnId, seq: Seq) {
        let flow = &mut self.flows[conn.0];
        if seq == flow.rx.rcv_nxt && !flow.has(bits::FIN_RECEIVED) {
            flow.rx.rcv_nxt += 1;
            flow.bits |= bits::FIN_RECEIVED;
        }
        if let Some((flow, record)) = self.published(conn) {
            record.set_received(&flow.received());
        }
    }

    /// No buffer of the consumer is used after this. Its queue pair goes back
    /// now, or once the consumer lets go of it too: it may have bytes to read.
    fn detach(&mut self, conn: ConnId) {
        if let Some((_, record)) = self.published(conn) {
            record.close();
        }
        self.forget_marks(conn);
        let flow = &mut self.flows[conn.0];
        if flow.bits & (bits::ATTACHED | bits::FILLING) != 0 {
            flow.bits &= !(bits::ATTACHED | bits::FILLING);
            let (consumer, qp, abandoned) = (flow.consumer, flow.qp, flow.has(bits::ABANDONED));
            flow.rx.ranges = None;
            if abandoned {
                self.release_qp(consumer, qp);
            } else {
                self.leave_qp(consumer, qp);
            }
        }
    }

    fn release(&mut self, conn: ConnId) {
        self.detach(conn);
        let flow = &mut self.flows[conn.0];
        let (tuple, hop) = (flow.rx.tuple, flow.tx.hop);
        // It may still be on the active list; its turn then finds nothing to do.
        flow.bits &= bits::ACTIVE;
        flow.rx.tuple = Default::default();
        let hash = self.table.hash(&tuple);
        if !self.table.remove(hash, conn.0) {
            self.ended_on_the_way(conn, &tuple);
        }
        if hop != u16::MAX {
            self.endpoint.hop_release(HopId(hop));
        }
        self.templates.forget(conn);
        self.event(Event::Released { conn });
    }
}
