//! The receiving side: what was received, what may come, what the window says.
//!
//! ```text
//!   last_ack_sent    rcv_nxt             posted            right_edge
//!  --------|------------|===================|- - - - - - - - - |-------
//!   acked    received    room in buffers      promised without room
//! ```
//!
//! `right_edge` is what the peer was promised; it never moves back. Before the
//! consumer posts its first buffer a fixed window is promised; payload that comes
//! into it stays parked, and so does what comes after an idle consumer took its
//! buffers back. From the first posting on the promise follows the room, in steps
//! (silly-window avoidance).

use crate::command::{Command, CommandSink};
use crate::reassembly::{Parked, Reassembly};
use crate::segment::ParkId;
use baton_wire::seq::{Seq, Window, WindowScale};
use baton_wire::tcp::SackBlocks;

/// The place of a segment's payload in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrived {
    /// The next bytes, with nothing missing.
    InOrder,
    /// Beyond a gap.
    OutOfOrder,
    /// It closed a gap, or part of one.
    FilledGap,
    /// All of it was here before.
    Duplicate,
    /// The next bytes, but they wait for room or for the connection to open.
    Held,
    /// Beyond a gap, and they wait for room.
    Ahead,
}

/// Receive state of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub rcv_nxt: Seq,
    right_edge: Seq,
    posted: Seq,
    /// Right edge that the peer has been shown, as far as we know.
    advertised: Seq,
    /// Last.ACK.sent of RFC 7323 §4.3.
    pub last_ack_sent: Seq,
    /// TS.Recent of RFC 7323 §4.3.
    pub ts_recent: u32,
    /// TS.Recent is not known yet: the next acceptable segment sets it.
    pub ts_unknown: bool,
    /// Most room seen: RCV.BUFF of RFC 9293 §3.8.6.2.2.
    rcv_buff: u32,
    fin: Seq,
    fin_known: bool,
    has_posted: bool,
    /// A duplicate ACK waits for the buffer that its SACK block needs.
    pub gap_untold: bool,
    /// Shift of windows that we send.
    pub scale: WindowScale,
    reassembly: Option<Box<Reassembly>>,
}

impl Receiver {
    /// A receiver that expects `rcv_nxt` next. `room` bytes are posted already;
    /// without any, `unposted` bytes are promised.
    pub fn new(rcv_nxt: Seq, room: u32, unposted: u32, scale: WindowScale) -> Receiver {
        let rcv_buff = if room > 0 { room } else { unposted };
        let right_edge = rcv_nxt + rcv_buff;
        Receiver {
            rcv_nxt,
            right_edge,
            posted: rcv_nxt + room,
            advertised: right_edge,
            last_ack_sent: rcv_nxt,
            ts_recent: 0,
            ts_unknown: false,
            rcv_buff,
            fin: rcv_nxt,
            fin_known: false,
            has_posted: room > 0,
            gap_untold: false,
            scale,
            reassembly: None,
        }
    }

    /// A receiver with a past: see `adopt.rs`. Nothing is posted; before anything
    /// is, the buffer counts as large as the window, or as `unposted` bytes.
    pub fn restored(
        rcv_nxt: Seq,
        right_edge: Seq,
        last_ack_sent: Seq,
        ts_recent: Option<u32>,
        unposted: u32,
        scale: WindowScale,
    ) -> Receiver {
        let window = right_edge.since(rcv_nxt).max(0) as u32;
        Receiver {
            right_edge,
            advertised: right_edge,
            last_ack_sent,
            ts_recent: ts_recent.unwrap_or(0),
            ts_unknown: ts_recent.is_none(),
            rcv_buff: window.max(unposted),
            ..Receiver::new(rcv_nxt, 0, unposted, scale)
        }
    }

    /// Bytes that the peer may send beyond `rcv_nxt`.
    pub fn rcv_wnd(&self) -> u32 {
        self.right_edge.since(self.rcv_nxt).max(0) as u32
    }

    pub fn right_edge(&self) -> Seq {
        self.right_edge
    }

    /// Room posted ahead of `rcv_nxt`.
    pub fn room(&self) -> u32 {
        self.posted.since(self.rcv_nxt).max(0) as u32
    }

    /// The window field of a segment that we send now.
    pub fn window_field(&self) -> u16 {
        self.scale.field(Window(self.rcv_wnd()))
    }

    /// The window field of a SYN, which is never scaled (RFC 7323 §2.2).
    pub fn syn_window_field(&self) -> u16 {
        self.rcv_wnd().min(0xffff) as u16
    }

    /// RFC 9293 §3.10.7.4 first step (table 6), with the tolerance of its
    /// appendix A.2: a segment without length may also stand at the right edge,
    /// where a peer that filled the window stands, or between the last
    /// acknowledgment and `rcv_nxt`, where an overtaken ACK stands.
    pub fn is_acceptable(&self, seq: Seq, len: u32) -> bool {
        if seq.after(self.right_edge) {
            return false;
        }
        if len == 0 {
            return seq.after_eq(self.last_ack_sent);
        }
        // MUST-66 (RFC 9293 §3.4): into a closed window a segment at `rcv_nxt` passes,
        // for its ACK, URG and RST.
        let window_closed = self.right_edge == self.rcv_nxt;
        (window_closed && seq == self.rcv_nxt) || (seq.before(self.right_edge) && (seq + len).after(self.rcv_nxt))
    }

    /// True while a gap waits to be filled.
    #[inline]
    pub fn has_gap(&self) -> bool {
        self.reassembly.as_ref().is_some_and(|r| r.has_ranges())
    }

    /// True if nothing but the next bytes is known of.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.reassembly.is_none() && !self.fin_known
    }

    /// The Streamer placed `[seq, end)`, of which `new_bytes` were new, and reports that
    /// everything before `rcv_nxt` has arrived. Either side may know more than the other for a
    /// while.
    #[inline]
    pub fn on_placed(&mut self, seq: Seq, end: Seq, rcv_nxt: Seq, new_bytes: u32) -> Arrived {
        let had_gap = self.has_gap();
        self.rcv_nxt = self.rcv_nxt.latest(rcv_nxt);
        if new_bytes == 0 {
            if end.after(self.rcv_nxt) {
                // Its range becomes the most recent one (RFC 2883 §4).
                self.note(seq, end);
            }
            return Arrived::Duplicate;
        }
        if end.after(self.rcv_nxt) {
            self.note(seq, end);
            return Arrived::OutOfOrder;
        }
        if had_gap {
            self.pass_ranges();
            return Arrived::FilledGap;
        }
        Arrived::InOrder
    }

    fn note(&mut self, seq: Seq, end: Seq) {
        let start = seq.latest(self.rcv_nxt);
        self.reassembly.get_or_insert_default().add_range(start, end);
        self.pass_ranges();
    }

    fn pass_ranges(&mut self) {
        if let Some(reassembly) = &mut self.reassembly {
            self.rcv_nxt = reassembly.advance(self.rcv_nxt);
            if reassembly.is_empty() {
                self.reassembly = None;
            }
        }
    }

    /// Takes `len` parked bytes at `seq`, placing or dropping what can be, if
    /// `open` (before the connection is synchronised all is held).
    pub fn on_parked(&mut self, id: ParkId, seq: Seq, len: u32, open: bool, out: &mut impl CommandSink) -> Arrived {
        let mut end = (seq + len).earliest(self.right_edge);
        if self.fin_known {
            end = end.earliest(self.fin);
        }
        let start = seq.latest(self.rcv_nxt);
        if !start.before(end) {
            out.command(Command::Drop { park: id });
            return Arrived::Duplicate;
        }
        let had_gap = self.has_gap();
        let rcv_nxt = self.rcv_nxt;
        let reassembly = self.reassembly.get_or_insert_default();
        if reassembly.holds(start, end) {
            out.command(Command::Drop { park: id });
            return Arrived::Duplicate;
        }
        let next = start.before_eq(reassembly.held_from(rcv_nxt));
        if let Some(evicted) = reassembly.park(Parked { id, seq, start, end }) {
            out.command(Command::Drop { park: evicted });
        }
        if !open || !self.settle(out) {
            return match next {
                true => Arrived::Held,
                false if start.after_eq(self.posted) => Arrived::Ahead,
                false => Arrived::OutOfOrder,
            };
        }
        match (self.rcv_nxt != rcv_nxt, had_gap) {
            (true, false) => Arrived::InOrder,
            (true, true) => Arrived::FilledGap,
            (false, _) => Arrived::OutOfOrder,
        }
    }

    /// Places parked payload whose turn it is and for which there is room; true if any
    /// was placed.
    pub fn settle(&mut self, out: &mut impl CommandSink) -> bool {
        let mut placed = false;
        while let Some(parked) = self.reassembly.as_mut().and_then(|r| r.take_before(self.posted, self.rcv_nxt)) {
            let start = parked.start.latest(self.rcv_nxt);
            let end = parked.end.earliest(self.posted);
            if !start.before(end) {
                out.command(Command::Drop { park: parked.id });
                self.pass_ranges();
                continue;
            }
            let skip = start.since(parked.seq) as u32;
            // It lies in the promised window: the part without posted buffers goes on waiting.
            let rest = parked.end.after(end);
            if rest {
                self.reassembly.get_or_insert_default().put_back(Parked { start: end, ..parked });
            }
            out.command(Command::Place { park: parked.id, seq: start, skip, len: end.since(start) as u32, rest });
            self.note(start, end);
            placed = true;
        }
        placed
    }

    /// Drops everything that is parked.
    pub fn drop_parked(&mut self, out: &mut impl CommandSink) {
        while let Some(park) = self.reassembly.as_mut().and_then(|r| r.take_any()) {
            out.command(Command::Drop { park });
        }
        self.pass_ranges();
    }

    /// The lowest part of `[seq, end)` that was placed ahead of its turn before.
    pub fn placed_before(&self, seq: Seq, end: Seq) -> Option<(Seq, Seq)> {
        self.reassembly.as_ref().and_then(|r| r.overlap(seq, end))
    }

    /// Just past what arrived without a gap: behind `rcv_nxt` while some of it waits for room.
    pub fn received(&self) -> Seq {
        self.reassembly.as_ref().map_or(self.rcv_nxt, |r| r.held_from(self.rcv_nxt))
    }

    /// Payloads parked.
    pub fn parked(&self) -> usize {
        self.reassembly.as_ref().map_or(0, |r| r.parked())
    }

    /// The peer's FIN stands at `seq`. The first report of it counts.
    pub fn on_fin(&mut self, seq: Seq) {
        if !self.fin_known && seq.after_eq(self.rcv_nxt) {
            self.fin_known = true;
            self.fin = seq;
        }
    }

    /// Steps over the peer's FIN if everything before it is here; its place.
    pub fn take_fin(&mut self) -> Option<Seq> {
        // A peer that sends beyond its own FIN may have moved `rcv_nxt` past it.
        if !self.fin_known || self.rcv_nxt.before(self.fin) {
            return None;
        }
        self.fin_known = false;
        self.fin = self.rcv_nxt;
        self.rcv_nxt = self.fin + 1;
        // The FIN takes a sequence number, not room.
        self.right_edge = self.right_edge.latest(self.rcv_nxt);
        Some(self.fin)
    }

    /// The consumer's room now reaches `edge`. True if the promise moved.
    pub fn on_posted(&mut self, edge: Seq, eff_snd_mss: u16) -> bool {
        if !self.has_posted {
            // Until now the buffer's size was a guess.
            self.has_posted = true;
            self.posted = edge.latest(self.rcv_nxt);
            self.rcv_buff = self.room();
        }
        self.posted = self.posted.latest(edge);
        let room = self.room();
        self.rcv_buff = self.rcv_buff.max(room);
        // MUST-39 (RFC 9293 §3.8.6.2.2): the right edge moves by at least a
        // segment, or half of the buffer if that is less.
        let step = (self.rcv_buff / 2).min(u32::from(eff_snd_mss)).max(1);
        if self.posted.since(self.right_edge) < step as i32 {
            return false;
        }
        // SHLD-14 (RFC 9293 §3.8.6): only ever forward.
        self.right_edge = self.posted;
        true
    }

    /// The consumer took back its posted buffers. The promise stays.
    pub fn on_unposted(&mut self) {
        self.posted = self.rcv_nxt;
    }

    /// The peer asked whether the window is still closed. Then all that is posted is offered,
    /// and taken for the buffer's size: otherwise a consumer that posts less at once than
    /// before would wait for ever. A window that the scaled field cannot express is rounded up;
    /// the surplus is parked. True if the promise moved.
    pub fn on_probe(&mut self) -> bool {
        let room = self.room();
        // A window that the scaled field cannot express counts as closed.
        if self.window_field() > 0 || room == 0 {
            return false;
        }
        self.rcv_buff = room;
        self.right_edge = self.posted.latest(self.rcv_nxt + (1 << self.scale.shift()));
        true
    }

    /// True if the peer should hear of a wider window without waiting for data:
    /// the window that it knows has shrunk to less than half of what it could
    /// be (as Linux's `__tcp_cleanup_rbuf`), so it may soon have to stop.
    pub fn wants_window_update(&self) -> bool {
        let known = self.advertised.since(self.rcv_nxt).max(0) as u32;
        let now = self.rcv_wnd();
        now > known && known < self.rcv_buff / 2 && now / 2 >= known
    }

    /// A segment with this acknowledgment number, and the present window, left.
    #[inline]
    pub fn on_ack_sent(&mut self, ack: Seq) {
        self.last_ack_sent = self.last_ack_sent.latest(ack);
        self.advertised = self.right_edge;
    }

    /// SACK blocks for an ACK now, `dsack` first, at most `most`.
    #[inline]
    pub fn sack_blocks(&self, dsack: Option<(Seq, Seq)>, most: usize) -> SackBlocks {
        let mut blocks = SackBlocks::new();
        if let Some((start, end)) = dsack {
            blocks.push(start, end);
        }
        if let Some(reassembly) = &self.reassembly {
            reassembly.sack_blocks(&mut blocks, most);
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(room: u32, shift: u8) -> Receiver {
        Receiver::new(Seq(1000), room, 65_536, WindowScale::new(shift))
    }

    /// Takes `len` bytes in order.
    fn take(r: &mut Receiver, len: u32) {
        r.rcv_nxt += len;
    }

    #[test]
    fn a_buffer_below_half_of_a_segment_opens_again() {
        // The size is what was posted, before the handshake or after it, not what
        // was promised until then.
        let mut before = receiver(600, 0);
        let mut after = receiver(0, 0);
        assert!(!after.on_posted(Seq(1600), 1460), "more was promised already");
        for r in [&mut before, &mut after] {
            take(r, 600);
            r.right_edge = r.rcv_nxt;
            let edge = r.rcv_nxt + 600;
            assert!(r.on_posted(edge, 1460));
            assert_eq!(r.rcv_wnd(), 600);
        }
    }

    #[test]
    fn a_probe_opens_what_posting_less_than_before_left_closed() {
        for shift in [0, 7] {
            let mut r = receiver(100_000, shift);
            take(&mut r, 100_000);
            let edge = r.rcv_nxt + 700;
            assert!(!r.on_posted(edge, 1460), "silly windows are avoided");
            assert_eq!(r.window_field(), 0);
            assert!(r.on_probe() && r.window_field() > 0);
            assert!(!r.on_probe());
            // The size was learned: the next 700 need no probe.
            take(&mut r, 700);
            let edge = r.rcv_nxt + 700;
            assert!(r.on_posted(edge, 1460));
        }
    }

    #[test]
    fn room_taken_back_leaves_the_promise_and_new_room_moves_it() {
        let mut r = receiver(0, 0);
        assert!(r.on_posted(Seq(1000 + 100_000), 1460));
        take(&mut r, 40_000);
        r.on_unposted();
        assert_eq!((r.room(), r.rcv_wnd()), (0, 60_000));
        let edge = r.rcv_nxt + 100_000;
        assert!(r.on_posted(edge, 1460));
        assert_eq!((r.room(), r.rcv_wnd()), (100_000, 100_000));
    }

    #[test]
    fn a_probe_opens_less_than_the_scaled_field_can_tell() {
        let mut r = receiver(1000, 7);
        take(&mut r, 1000);
        let edge = r.rcv_nxt + 44;
        assert!(!r.on_posted(edge, 1460));
        assert!(r.on_probe());
        assert_eq!((r.rcv_wnd(), r.window_field()), (128, 1));
    }

    #[test]
    fn a_remainder_that_the_scaled_field_cannot_tell_is_no_window() {
        let mut r = receiver(1000, 7);
        take(&mut r, 896);
        r.rcv_buff = 65_536;
        let edge = r.rcv_nxt + 604;
        assert!(!r.on_posted(edge, 1460));
        assert_eq!((r.rcv_wnd(), r.window_field()), (104, 0));
        assert!(r.on_probe());
        assert_eq!(r.rcv_wnd(), 604);
    }
}
