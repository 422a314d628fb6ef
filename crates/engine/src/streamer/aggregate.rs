//! Receive aggregation (RA §3): joins the frames of a burst into runs before connections are
//! looked up.
//!
//! ```text
//!   burst   | a | b | a | ARP | a | b | c |
//!             parse, coalesce: headers only, payload stays where it is
//!   units   a -> a   b   ARP   a   b   c
//! ```
//!
//! Each Streamer has an aggregator of its own, and a burst begins and ends with it: no run
//! waits for the next one, and nothing is shared or locked. A frame's handle is its place
//! in the burst; a run is a chain of them.
//!
//! Header prediction (LA §3.2) saves the parse where it can: a frame whose headers equal those
//! of the segment before it, except for the sequence number, needs no parse. The coalescer
//! still decides which run it belongs to.
//!
//! Traffic that does not coalesce, such as many connections that take turns, is spared the
//! search: after [`VAIN`] bursts in a row without two segments to join, only one burst in
//! [`SPARED`] + 1 is searched, until one has a run.

use crate::frame_io::{BURST, RxFrame};
use baton_coalesce::{self as coalesce, Cause, Class, Coalescer, Limits, Profile, Reason, Run, Sink, Verdict, Window};
use baton_wire::packet::{Link, Packet, Reject};
use baton_wire::predict::{HeaderPrediction, Predicted};
use baton_wire::tcp::Flags;
use core::num::NonZeroU32;

/// Behind the last piece of a run.
const END: u16 = u16::MAX;

/// After this many bursts in a row without a run of two, the search is skipped.
const VAIN: u32 = 8;
/// How many bursts skip the search before the next one tries again.
const SPARED: u32 = 15;

/// A frame of the burst.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Where its headers are, or why it is no TCP segment.
    headers: Result<u16, Reject>,
    /// The fields that differ from those headers, if they are those of a frame before it.
    predicted: Option<Predicted>,
    next: u16,
}

/// A run, or a frame alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    /// Place in the burst of its first frame.
    pub first: u16,
    /// Hash of the connection's addresses and ports, once it was computed.
    pub hash: u64,
}

/// The burst at hand.
#[derive(Debug, Default)]
pub(super) struct Burst {
    packets: Vec<Packet>,
    pieces: Vec<Piece>,
    pub units: Vec<Unit>,
    /// First and last piece of the run in each slot of the coalescer.
    ends: Vec<(u16, u16)>,
}

impl Burst {
    /// A frame's headers, or why it is no TCP segment. A predicted frame's headers are built in
    /// `room` from those before it.
    #[inline]
    pub fn headers<'a>(&'a self, at: u16, room: &'a mut Option<Packet>) -> Result<&'a Packet, Reject> {
        let piece = &self.pieces[usize::from(at)];
        let packet = &self.packets[usize::from(piece.headers?)];
        let Some(hit) = piece.predicted else { return Ok(packet) };
        let flags = packet.flags.without(Flags::PSH) | if hit.push { Flags::PSH } else { Flags::NONE };
        Ok(room.insert(Packet { seq: hit.seq, flags, ..*packet }))
    }

    /// Headers that hold for a frame of a run, and what differs from them, if anything.
    #[inline]
    pub fn follower(&self, at: u16) -> Option<(&Packet, Option<Predicted>)> {
        let piece = &self.pieces[usize::from(at)];
        Some((&self.packets[usize::from(piece.headers.ok()?)], piece.predicted))
    }

    /// The frame behind this one in its run.
    #[inline]
    pub fn next(&self, at: u16) -> Option<u16> {
        Some(self.pieces[usize::from(at)].next).filter(|next| *next != END)
    }

    fn push(&mut self, headers: Result<u16, Reject>, predicted: Option<Predicted>) {
        self.pieces.push(Piece { headers, predicted, next: END });
    }

    /// A frame that goes on alone, in its turn.
    fn alone(&mut self, at: u16) {
        self.units.push(Unit { first: at, hash: 0 });
    }

    fn clear(&mut self) {
        self.packets.clear();
        self.pieces.clear();
        self.units.clear();
    }
}

impl Sink<u16> for Burst {
    #[inline]
    fn pass(&mut self, at: u16, _: Reason) {
        self.alone(at);
    }

    #[inline]
    fn start(&mut self, slot: u32, _: &coalesce::Segment, at: u16) {
        self.ends[slot as usize] = (at, at);
    }

    #[inline]
    fn append(&mut self, slot: u32, _: &coalesce::Segment, at: u16) {
        let last = &mut self.ends[slot as usize].1;
        self.pieces[usize::from(*last)].next = at;
        *last = at;
    }

    #[inline]
    fn flush(&mut self, slot: u32, _: &Run, _: Cause, _: u64) {
        let (first, _) = self.ends[slot as usize];
        self.alone(first);
    }
}

/// The frame expected next.
struct Expected {
    header: HeaderPrediction,
    /// The segment of the last such frame.
    segment: coalesce::Segment,
    /// Where the headers are that it was made of.
    headers: u16,
    /// True if that was the frame before this one.
    follows: bool,
}

/// Joins the segments of a burst into runs.
pub(super) struct Aggregator {
    /// `None` if runs are limited to one segment.
    coalescer: Option<Coalescer>,
    /// Bursts searched in vain since the last run of two, up to [`VAIN`].
    vain: u32,
    /// How many of the next bursts skip the search.
    spared: u32,
    predicts: bool,
    link: Link,
    /// The memory of bursts, while none is at hand: a burst moves as a pointer.
    burst: Option<Box<Burst>>,
}

impl Aggregator {
    /// An aggregator for runs of up to `limit` segments; with a limit below two it makes none.
    pub fn new(limit: u16, predicts: bool, link: Link) -> Aggregator {
        // Space for as many runs as a burst can have, so that no run evicts another.
        let slots = BURST as u32;
        let limits = Limits {
            segments: NonZeroU32::new(limit.into()),
            cache: NonZeroU32::new(slots).unwrap_or(NonZeroU32::MIN),
            window: Window::Input,
            ..Limits::of(Profile::Ra)
        };
        Aggregator {
            coalescer: (limit > 1).then(|| Coalescer::new(limits)),
            vain: 0,
            spared: 0,
            // The prediction is made for Ethernet.
            predicts: predicts && link == Link::Ethernet,
            link,
            burst: Some(Box::new(Burst { ends: vec![(END, END); slots as usize], ..Burst::default() })),
        }
    }

    /// The runs of these frames. The caller gives them [back](Aggregator::done) when it is done.
    pub fn take(&mut self, frames: &[RxFrame<'_>]) -> Box<Burst> {
        let mut burst = self.burst.take().unwrap_or_default();
        // A single frame has no run to join, so it skips the search.
        if frames.len() > 1
            && self.is_worth_a_search()
            && let Some(mut coalescer) = self.coalescer.take()
        {
            self.coalesce(&mut coalescer, frames, &mut burst);
            self.coalescer = Some(coalescer);
            self.note_search(burst.units.len() < frames.len());
            return burst;
        }
        for (at, frame) in (0..).zip(frames) {
            let headers = parse(frame, self.link, &mut burst).map(|(headers, _)| headers);
            burst.push(headers, None);
            burst.alone(at);
        }
        burst
    }

    fn is_worth_a_search(&mut self) -> bool {
        let spared = self.spared > 0;
        self.spared -= u32::from(spared);
        !spared
    }

    fn note_search(&mut self, found: bool) {
        self.vain = if found { 0 } else { (self.vain + 1).min(VAIN) };
        if self.vain == VAIN {
            self.spared = SPARED;
        }
    }

    /// Forgets a burst.
    pub fn done(&mut self, mut burst: Box<Burst>) {
        burst.clear();
        self.burst = Some(burst);
    }

    #[inline]
    fn coalesce(&self, coalescer: &mut Coalescer, frames: &[RxFrame<'_>], burst: &mut Burst) {
        let mut expected: Option<Expected> = None;
        for (at, frame) in (0..).zip(frames) {
            if let Some(expected) = &mut expected
                && let Some(hit) = expected.header.matches(frame.data)
                && frame.meta.gso_size == 0
            {
                burst.push(Ok(expected.headers), Some(hit));
                (expected.segment.seq, expected.segment.push) = (hit.seq, hit.push);
                if core::mem::replace(&mut expected.follows, true) {
                    coalescer.handle_next(&expected.segment, 0, at, burst);
                } else {
                    coalescer.handle(&Class::Data(expected.segment), 0, at, burst);
                }
                continue;
            }
            if let Some(expected) = &mut expected {
                expected.follows = false;
            }
            let (headers, class) = match parse(frame, self.link, burst) {
                Ok((headers, packet)) => (headers, class_of(&packet, frame)),
                Err(reject) => {
                    burst.push(Err(reject), None);
                    // An ICMP error is about a connection, and its ports are not in the header.
                    coalescer.flush(0, burst);
                    burst.alone(at);
                    continue;
                }
            };
            burst.push(Ok(headers), None);
            let verdict = coalescer.handle(&class, 0, at, burst);
            // A run of two suggests that more follow; making a prediction costs half a parse.
            if verdict == Verdict::Merge
                && self.predicts
                && let Class::Data(segment) = class
                && let Some(header) = HeaderPrediction::new(frame.data, &burst.packets[usize::from(headers)])
            {
                expected = Some(Expected { header, segment, headers, follows: true });
            }
        }
        coalescer.flush(0, burst);
    }
}

/// A frame's headers, and where they are kept.
#[inline]
fn parse(frame: &RxFrame<'_>, link: Link, burst: &mut Burst) -> Result<(u16, Packet), Reject> {
    let packet = Packet::parse(frame.data, link)?;
    burst.packets.push(packet);
    Ok((burst.packets.len() as u16 - 1, packet))
}

/// The frame's class for the coalescer. A super-frame is already a run, made by the port.
#[inline]
fn class_of(packet: &Packet, frame: &RxFrame<'_>) -> Class {
    match Class::of_packet(packet, frame.data) {
        Class::Data(segment) if frame.meta.gso_size != 0 => {
            Class::Bypass { reason: Reason::TooBig, flow: Some(segment.flow) }
        }
        class => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame_io::RxMeta;
    use baton_wire::addr::Addr;
    use baton_wire::checksum;
    use baton_wire::seq::Seq;
    use baton_wire::tcp::SackBlocks;
    use baton_wire::template::{Emit, Route, Template};

    fn frame(src_port: u16, seq: u32) -> Vec<u8> {
        let (src, dst) = (Addr::v4([10, 0, 0, 1]), Addr::v4([10, 0, 0, 2]));
        let link = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0, 0];
        let route = Route { link: &link, src, dst, src_port, dst_port: 2, ttl: 64, traffic_class: 0, flow_label: 0 };
        let payload = [7; 100];
        let emit = Emit {
            seq: Seq(seq),
            ack: Seq(77),
            flags: Flags::ACK,
            window: 500,
            urgent: 0,
            ts: None,
            sack: &SackBlocks::EMPTY,
            payload_len: payload.len() as u32,
            payload_sum: Some(checksum::sum(&payload)),
            ip_id: 0,
            ecn: 0,
        };
        let mut out = vec![0; 54 + payload.len()];
        let headers = Template::new(&route).unwrap().emit(&mut out, &emit);
        out[headers..].copy_from_slice(&payload);
        out
    }

    /// Units that a burst of two segments is made into.
    fn units(aggregator: &mut Aggregator, second: &[u8]) -> usize {
        let first = frame(1, 1000);
        let frames = [&first[..], second].map(|data| RxFrame { data, meta: RxMeta::default() });
        let burst = aggregator.take(&frames);
        let units = burst.units.len();
        aggregator.done(burst);
        units
    }

    #[test]
    fn what_does_not_coalesce_is_spared_the_search_until_it_does() {
        let mut aggregator = Aggregator::new(20, true, Link::Ethernet);
        let (stranger, next) = (frame(2, 1100), frame(1, 1100));
        // A few bursts without runs do not stop the search yet.
        for _ in 0..2 * VAIN {
            assert_eq!(units(&mut aggregator, &next), 1);
            assert_eq!(units(&mut aggregator, &stranger), 2);
        }
        for _ in 1..VAIN {
            assert_eq!(units(&mut aggregator, &stranger), 2);
        }
        for _ in 0..3 {
            for _ in 0..SPARED {
                assert_eq!(units(&mut aggregator, &next), 2, "spared");
            }
            assert_eq!(units(&mut aggregator, &stranger), 2, "tried, in vain");
        }
        for _ in 0..SPARED {
            assert_eq!(units(&mut aggregator, &next), 2, "spared");
        }
        for _ in 0..2 * SPARED {
            assert_eq!(units(&mut aggregator, &next), 1, "tried, and found");
        }
    }
}
