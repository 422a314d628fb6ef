//! One segment, or one super-frame, from the consumer's memory to the port.

use super::context::{Cursor, Flow, bits};
use super::marks::Outgoing;
use crate::counters::StreamerCounters;
use crate::frame_io::{Capabilities, FrameIo, PayloadPart, TxMeta};
use crate::region::EngineRegion;
use baton_tcp::time::Instant;
use baton_wire::checksum;
use baton_wire::seq::Seq;
use baton_wire::stamp::{self, Stamp};
use baton_wire::tcp::{Flags, SackBlocks};
use baton_wire::template::{Emit, MAX_HEADERS, Template};

/// Extents that one gathered frame's payload may be spread over.
const MAX_PARTS: usize = 8;

/// Bytes that a super-frame leaves for headers: 18 of link, 40 of IPv6, 60 of TCP.
const HEADER_ROOM: u32 = 118;

/// ECT(0) in the IP header (RFC 3168 §5).
const ECT0: u8 = 2;

/// Contents of a segment to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub seq: Seq,
    /// Payload; more than the MSS makes it a super-frame that the port cuts.
    pub len: u32,
    pub flags: Flags,
    pub ecn: u8,
}

/// The state that sending one connection's segments needs.
pub(super) struct Sender<'a> {
    pub now: Instant,
    pub flow: &'a mut Flow,
    pub region: &'a EngineRegion,
    /// `None` while the neighbour is not known.
    pub template: Option<&'a Template>,
    pub capabilities: &'a Capabilities,
    pub counters: &'a mut StreamerCounters,
    pub ip_id: &'a mut u16,
    /// Where the points of a watched connection go; not for what is sent again.
    pub marks: Option<&'a mut Outgoing>,
}

impl Sender<'_> {
    /// The most payload that one frame to this port takes.
    pub(super) fn largest_payload(&self) -> u32 {
        let mss = u32::from(self.flow.tx.mss).max(1);
        let room = self.capabilities.tx_gso_max.min(65_535).saturating_sub(HEADER_ROOM);
        if room <= mss { mss } else { room - room % mss }
    }

    /// Builds one frame and hands it to the port; false if it is full. A segment
    /// whose neighbour is not known counts as sent: as lost on the way.
    #[inline]
    pub(super) fn send<P: FrameIo>(&mut self, port: &mut P, cut: &Cut) -> bool {
        if self.marks.is_some() { self.send_as::<true, P>(port, cut) } else { self.send_as::<false, P>(port, cut) }
    }

    /// As [`Sender::send`]. With `MARKED` it says when which part was done, so that frames of which nobody
    /// asks do not ask at each.
    #[inline]
    fn send_as<const MARKED: bool, P: FrameIo>(&mut self, port: &mut P, cut: &Cut) -> bool {
        let Some(template) = self.template else {
            self.counters.tx_no_neighbour += 1;
            return true;
        };
        let pos = self.flow.snd_pos(cut.seq);
        if !self.seek(pos, cut) {
            // The consumer took back what it had posted: nothing to send.
            self.counters.hostile_consumer += 1;
            return true;
        }
        if MARKED && let Some(marks) = &mut self.marks {
            marks.begin();
        }
        // A single segment is copied for less than what a second piece costs.
        let sent = if self.capabilities.tx_gather && cut.len > u32::from(self.flow.tx.mss) {
            self.gather(port, template, cut, pos)
        } else {
            self.copy::<MARKED, P>(port, template, cut, pos)
        };
        let Some(header_len) = sent else { return false };
        if MARKED && let Some(marks) = &mut self.marks {
            marks.handed(pos, pos + u64::from(cut.len));
        }
        let mss = u32::from(self.flow.tx.mss);
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += header_len as u64 + u64::from(cut.len);
        self.counters.tx_segments += if cut.len <= mss { 1 } else { u64::from(cut.len.div_ceil(mss)) };
        true
    }

    /// The frame that the full segments of a turn have in common, for a port that takes copies
    /// one by one.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let template = self.template.filter(|_| !self.capabilities.tx_gather)?;
        let sum = self.is_summed().then_some(0);
        let cut =
            Cut { seq: self.flow.tx.snd_nxt, len: u32::from(self.flow.tx.mss), flags: Flags::ACK, ecn: self.ecn() };
        Stamp::new(template, &self.emit(&cut, sum, 0)).filter(|stamp| stamp.len() + cut.len as usize >= stamp::SPAN)
    }

    /// Sends one full segment like those before it; false if the port is full.
    #[inline]
    pub(super) fn send_stamped<P: FrameIo>(&mut self, port: &mut P, stamp: &Stamp, push: bool) -> bool {
        if self.marks.is_some() {
            self.send_stamped_as::<true, P>(port, stamp, push)
        } else {
            self.send_stamped_as::<false, P>(port, stamp, push)
        }
    }

    #[inline]
    fn send_stamped_as<const MARKED: bool, P: FrameIo>(&mut self, port: &mut P, stamp: &Stamp, push: bool) -> bool {
        let seq = self.flow.tx.snd_nxt;
        let len = usize::from(self.flow.tx.mss);
        let pos = self.flow.snd_pos(seq);
        let cut = Cut { seq, len: len as u32, flags: Flags::ACK, ecn: 0 };
        if !self.seek(pos, &cut) {
            self.counters.hostile_consumer += 1;
            return true;
        }
        if MARKED && let Some(marks) = &mut self.marks {
            marks.begin();
        }
        let total = stamp.len() + len;
        let Some(frame) = port.slot(total) else { return false };
        let Some(head) = frame.first_chunk_mut() else { return false };
        stamp.lay(head);
        if MARKED && let Some(marks) = &mut self.marks {
            marks.copying();
        }
        let sum = self.copy_payload(pos, &mut frame[stamp.len()..total]).unwrap_or(0);
        if MARKED && let Some(marks) = &mut self.marks {
            marks.copied();
        }
        *self.ip_id = self.ip_id.wrapping_add(1);
        if let Some(head) = frame.first_chunk_mut() {
            stamp.fill(head, seq, *self.ip_id, push, sum);
        }
        let meta = TxMeta {
            checksum_start: if self.capabilities.tx_checksum { stamp.checksum_start() } else { 0 },
            gso_size: 0,
            header_len: stamp.len() as u16,
            ipv6: stamp.is_v6(),
            follows: seq != self.flow.tx.snd_una,
        };
        if MARKED && let Some(marks) = &mut self.marks {
            marks.built();
        }
        port.commit(total, meta);
        if MARKED && let Some(marks) = &mut self.marks {
            marks.handed(pos, pos + len as u64);
        }
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += total as u64;
        self.counters.tx_segments += 1;
        true
    }

    /// True if the engine sums what it sends: the port does not, and the ends have not agreed to go without.
    #[inline]
    fn is_summed(&self) -> bool {
        !(self.capabilities.tx_checksum || self.flow.has(bits::SENDS_UNSUMMED))
    }

    /// The ECN field of data sent for the first time.
    #[inline]
    pub(super) fn ecn(&self) -> u8 {
        if self.flow.has(bits::ECN) { ECT0 } else { 0 }
    }

    /// Moves the cursor for new data to `pos`; false if it is not posted.
    #[inline]
    fn seek(&mut self, pos: u64, cut: &Cut) -> bool {
        let tx = &mut self.flow.tx;
        if cut.len == 0 || pos < tx.nxt_cursor.start {
            return true;
        }
        if pos < tx.nxt_cursor.end() {
            return true;
        }
        let qp = self.region.qp(self.flow.qp);
        tx.nxt_cursor.seek(pos, tx.sq_tail, |index| qp.sq_extent(index))
    }

    /// The cursor from which a send position is reached soonest.
    #[inline]
    fn cursor(&self, pos: u64) -> Cursor {
        let tx = &self.flow.tx;
        if pos >= tx.nxt_cursor.start { tx.nxt_cursor } else { tx.una_cursor }
    }

    /// Headers and payload into the port's own frame. Length of the headers, or
    /// `None` if the port is full.
    #[inline]
    fn copy<const MARKED: bool, P: FrameIo>(
        &mut self,
        port: &mut P,
        template: &Template,
        cut: &Cut,
        pos: u64,
    ) -> Option<usize> {
        let options = if self.flow.has(bits::TIMESTAMPS) { 12 } else { 0 };
        let header_len = template.tcp_offset() + 20 + options;
        let len = cut.len as usize;
        let slot = port.slot(header_len + len)?;
        let (header, payload) = slot.split_at_mut(header_len);
        if MARKED && let Some(marks) = &mut self.marks {
            marks.copying();
        }
        let sum = self.copy_payload(pos, &mut payload[..len]);
        if MARKED && let Some(marks) = &mut self.marks {
            marks.copied();
        }
        let meta = self.write_header(template, cut, sum, header);
        if MARKED && let Some(marks) = &mut self.marks {
            marks.built();
        }
        port.commit(header_len + len, meta);
        Some(header_len)
    }

    /// Copies payload into the frame; its sum, unless the port fills it in or there is to be none.
    #[inline]
    fn copy_payload(&self, pos: u64, frame: &mut [u8]) -> Option<u32> {
        let with_sum = self.is_summed();
        let mut cursor = self.cursor(pos);
        let at = pos.wrapping_sub(cursor.start);
        if at + frame.len() as u64 <= u64::from(cursor.extent.len()) {
            let piece = cursor.extent.part(at as u32, frame.len() as u32);
            if with_sum {
                return Some(self.region.copy_out_sum(piece, frame));
            }
            self.region.copy_out(piece, frame);
            return None;
        }
        let qp = self.region.qp(self.flow.qp);
        let (mut done, mut total) = (0, 0);
        while done < frame.len() {
            let at = pos + done as u64;
            if !cursor.seek(at, self.flow.tx.sq_tail, |index| qp.sq_extent(index)) {
                // The consumer has just taken it back: only its own stream suffers, and no
                // other frame's bytes go out.
                frame[done..].fill(0);
                break;
            }
            let piece = cursor.extent.part((at - cursor.start) as u32, (frame.len() - done) as u32);
            let to = &mut frame[done..done + piece.len() as usize];
            if with_sum {
                total = checksum::combine(total, done, self.region.copy_out_sum(piece, to));
            } else {
                self.region.copy_out(piece, to);
            }
            done += piece.len() as usize;
        }
        with_sum.then_some(total)
    }

    /// References to the payload, for a port that copies it itself.
    fn gather<P: FrameIo>(&mut self, port: &mut P, template: &Template, cut: &Cut, pos: u64) -> Option<usize> {
        let mut parts = [PayloadPart { ptr: std::ptr::null(), len: 0 }; MAX_PARTS];
        let (mut count, mut done) = (0, 0);
        let qp = self.region.qp(self.flow.qp);
        let mut cursor = self.cursor(pos);
        while done < cut.len {
            let at = pos + u64::from(done);
            if count == MAX_PARTS || !cursor.seek(at, self.flow.tx.sq_tail, |index| qp.sq_extent(index)) {
                // It was taken back, or has more pieces than a frame may have.
                self.counters.hostile_consumer += 1;
                return Some(0);
            }
            let piece = cursor.extent.part((at - cursor.start) as u32, cut.len - done);
            parts[count] = self.region.part(piece);
            count += 1;
            done += piece.len();
        }
        let mut header = [0; MAX_HEADERS];
        let sum = self.is_summed().then(|| self.sum_parts(pos, cut.len));
        let meta = self.write_header(template, cut, sum, &mut header);
        let header_len = usize::from(meta.header_len);
        if let Some(marks) = &mut self.marks {
            marks.built();
        }
        port.gather(&header[..header_len], &parts[..count], meta).then_some(header_len)
    }

    /// The payload's sum where it lies, for a port that gathers but does not sum.
    fn sum_parts(&self, pos: u64, len: u32) -> u32 {
        let qp = self.region.qp(self.flow.qp);
        let mut cursor = self.cursor(pos);
        let (mut done, mut total) = (0, 0);
        while done < len {
            let at = pos + u64::from(done);
            if !cursor.seek(at, self.flow.tx.sq_tail, |index| qp.sq_extent(index)) {
                break;
            }
            let piece = cursor.extent.part((at - cursor.start) as u32, len - done);
            total = checksum::combine(total, done as usize, self.region.sum(piece));
            done += piece.len();
        }
        total
    }

    #[inline]
    fn write_header(&mut self, template: &Template, cut: &Cut, sum: Option<u32>, header: &mut [u8]) -> TxMeta {
        *self.ip_id = self.ip_id.wrapping_add(1);
        let len = template.emit(header, &self.emit(cut, sum, *self.ip_id));
        TxMeta {
            checksum_start: if sum.is_none() && !template.is_unsummed() { template.tcp_offset() as u16 } else { 0 },
            gso_size: if cut.len > u32::from(self.flow.tx.mss) { self.flow.tx.mss } else { 0 },
            header_len: len as u16,
            ipv6: template.is_v6(),
            follows: cut.seq != self.flow.tx.snd_una,
        }
    }

    #[inline]
    fn emit(&self, cut: &Cut, payload_sum: Option<u32>, ip_id: u16) -> Emit<'static> {
        Emit {
            seq: cut.seq,
            ack: self.flow.rx.rcv_nxt,
            flags: cut.flags,
            window: self.flow.window_field(),
            urgent: 0,
            ts: self.flow.timestamps(self.now),
            sack: &SackBlocks::EMPTY,
            payload_len: cut.len,
            payload_sum,
            ip_id,
            ecn: cut.ecn,
        }
    }
}

/// An ACK without data; its length, or `None` if the port is full.
#[expect(clippy::too_many_arguments, reason = "disjoint parts of the Streamer, borrowed one by one")]
#[inline]
pub(super) fn send_ack<P: FrameIo>(
    now: Instant,
    port: &mut P,
    flow: &Flow,
    template: &Template,
    capabilities: &Capabilities,
    ip_id: &mut u16,
    ack: Seq,
    sack: &SackBlocks,
) -> Option<usize> {
    let options = if flow.has(bits::TIMESTAMPS) { 12 } else { 0 };
    let sack_len = if sack.is_empty() { 0 } else { 4 + 8 * sack.len() };
    let room = template.tcp_offset() + 20 + (options + sack_len).min(40);
    let slot = port.slot(room)?;
    *ip_id = ip_id.wrapping_add(1);
    let left_to_port = capabilities.tx_checksum;
    let len = template.emit(
        slot,
        &Emit {
            seq: flow.tx.snd_nxt,
            ack,
            flags: Flags::ACK | if flow.has(bits::ECE) { Flags::ECE } else { Flags::NONE },
            window: flow.window_field_at(ack),
            urgent: 0,
            ts: flow.timestamps(now),
            sack,
            payload_len: 0,
            payload_sum: (!left_to_port && !template.is_unsummed()).then_some(0),
            ip_id: *ip_id,
            ecn: 0,
        },
    );
    let checksum_start = if left_to_port { template.tcp_offset() as u16 } else { 0 };
    let ipv6 = template.is_v6();
    port.commit(len, TxMeta { checksum_start, header_len: len as u16, ipv6, ..TxMeta::default() });
    Some(len)
}
