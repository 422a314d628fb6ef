//! Linux's generic receive offload, as a model (GRO, `net/core/gro.c`, Linux 6.18).
//!
//! GRO is stricter than either paper: a segment joins the packet held for its connection only if acknowledgment,
//! window, flags and options are the same to the bit, the IP identification goes on by one or stays, and it is no
//! longer than the first ([`Flush`]). A shorter one, PSH or FIN joins, and ends the packet.
//!
//! ```text
//!   frame --Class, Packet--> one of 8 lists by receive hash --> held (8 a list) --> append | flush, hold | pass
//!   64 frames, the weight of a NAPI poll, or `gro_flush_timeout` --> flush all
//! ```
//!
//! A device that gives no receive hash (veth, TAP) has all its packets in one list ([`Lists`]).
//!
//! Known differences, all outside of bulk TCP: IPv6 extension headers are not joined here; the hash that chooses the
//! list is not the device's; VLAN tags count as taken off by the device.

mod held;
mod packet;

pub use held::Flush;
use held::Held;
use packet::Packet;

use baton_coalesce::{Class, Flow, Frame, Reason, Window};
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;
use std::num::NonZeroU32;

/// Lists of held packets (`GRO_HASH_BUCKETS`).
const BUCKETS: usize = 8;
/// Packets held in one of them (`MAX_GRO_SKBS`).
const BUCKET: usize = 8;

/// How many lists a device's packets are spread over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lists {
    /// All eight, by the receive hash that devices with several queues give.
    #[default]
    Hashed,
    /// One: the device gives no hash (`skb_get_hash_raw` is 0), as veth and TAP.
    One,
}

impl Lists {
    /// Packets held at a time.
    pub const fn held(self) -> u32 {
        match self {
            Lists::Hashed => (BUCKETS * BUCKET) as u32,
            Lists::One => BUCKET as u32,
        }
    }
}

/// The rules of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Ends a poll: after so many frames ([`WEIGHT`]), or so long after its first one, which stands for
    /// `gro_flush_timeout`.
    pub window: Window,
    /// Where packets are held.
    pub lists: Lists,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { window: Window::Frames(WEIGHT), lists: Lists::Hashed }
    }
}

/// Bytes of an IP packet that segments become, at most.
pub const BYTES: u32 = held::MAX_SIZE - 1;

/// Frames that one poll takes (`NAPI_POLL_WEIGHT`).
pub const WEIGHT: NonZeroU32 = NonZeroU32::new(64).expect("not 0");

/// Segments that became one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Addresses, ports and tags.
    pub flow: Flow,
    /// Sequence number of the first byte.
    pub first: Seq,
    /// Number of segments, 1 or more.
    pub segments: u32,
    /// Bytes of payload.
    pub payload_len: u32,
}

/// Receives what becomes of held packets. A slot is a number below 64.
pub trait Sink {
    /// A packet is held, as the first of a run.
    fn start(&mut self, slot: u32, time_ns: u64);

    /// A segment joins it.
    fn append(&mut self, slot: u32, time_ns: u64);

    /// The run goes on, at `at_ns`.
    fn flush(&mut self, slot: u32, run: &Run, at_ns: u64);
}

/// For callers that need only the counts.
impl Sink for () {
    fn start(&mut self, _: u32, _: u64) {}
    fn append(&mut self, _: u32, _: u64) {}
    fn flush(&mut self, _: u32, _: &Run, _: u64) {}
}

/// The fate of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It joined the packet held for its connection.
    Joined,
    /// It is held; the packet held before of its connection went on for this cause.
    Held(Option<Flush>),
    /// It went on alone.
    Alone(Alone),
}

/// Why a frame goes on alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alone {
    /// For a reason that other rules have, too.
    As(Reason),
    /// The frame is longer than its IP packet (`inet_gro_receive`).
    Padded,
}

impl Alone {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Alone::As(reason) => reason.name(),
            Alone::Padded => "padded",
        }
    }
}

/// How often each was the case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Frames that joined another.
    pub joined: u64,
    /// Packets of two segments or more.
    pub runs: u64,
    alone: [u64; Reason::ALL.len()],
    padded: u64,
    flushed: [u64; Flush::ALL.len()],
}

impl Counts {
    /// Frames that went on alone, by the name of the reason.
    pub fn alone(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let padded = (Alone::Padded.name(), self.padded);
        Reason::ALL.into_iter().map(|reason| (reason.name(), self.alone[reason as usize])).chain([padded])
    }

    /// Packets of any length that ended for a cause.
    pub fn flushed(&self, cause: Flush) -> u64 {
        self.flushed[cause as usize]
    }

    /// Packets of any length that ended.
    pub fn packets(&self) -> u64 {
        self.flushed.iter().sum()
    }

    /// Frames and packets that came out, without those still held.
    pub fn frames_out(&self) -> u64 {
        self.packets() + self.alone().map(|(_, frames)| frames).sum::<u64>()
    }
}

/// The packets held, and the counts.
#[derive(Clone, Debug)]
pub struct Gro {
    rules: Rules,
    buckets: [Vec<Held>; BUCKETS],
    counts: Counts,
    window_frames: u32,
    window_start_ns: Option<u64>,
    /// List and place of the packet that the last frame joined or became, as long as it is held.
    last: Option<(usize, usize)>,
}

impl Gro {
    /// Nothing held.
    pub fn new(rules: Rules) -> Gro {
        let buckets = std::array::from_fn(|_| Vec::with_capacity(BUCKET));
        Gro { rules, buckets, counts: Counts::default(), window_frames: 0, window_start_ns: None, last: None }
    }

    /// The rules that it was made with.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Counts so far.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Takes in a frame that arrived at `now_ns` and has been classified as `class`.
    pub fn handle(&mut self, frame: &Frame<'_>, class: &Class, now_ns: u64, sink: &mut impl Sink) -> Fate {
        if let Window::Time(length) = self.rules.window {
            let start = *self.window_start_ns.get_or_insert(now_ns);
            if now_ns < start || now_ns - start >= length.get() {
                self.end_poll(start.saturating_add(length.get()).min(now_ns.max(start)), Flush::Poll, sink);
                self.window_start_ns = Some(now_ns);
            }
        }
        let fate = match packet::of(frame, class) {
            Ok(packet) => self.receive(&packet, now_ns, sink),
            Err(reason) => Fate::Alone(Alone::As(reason)),
        };
        match fate {
            Fate::Joined => self.counts.joined += 1,
            Fate::Alone(Alone::As(reason)) => self.counts.alone[reason as usize] += 1,
            Fate::Alone(Alone::Padded) => self.counts.padded += 1,
            Fate::Held(_) => {}
        }
        if let Window::Frames(frames) = self.rules.window {
            self.window_frames += 1;
            if self.window_frames >= frames.get() {
                self.end_poll(now_ns, Flush::Poll, sink);
            }
        }
        fate
    }

    /// Flushes all: the input is at its end.
    pub fn flush(&mut self, now_ns: u64, sink: &mut impl Sink) {
        self.end_poll(now_ns, Flush::Input, sink);
    }

    /// `tcp_gro_receive` and what follows it in `dev_gro_receive`.
    #[inline]
    fn receive(&mut self, packet: &Packet<'_>, now_ns: u64, sink: &mut impl Sink) -> Fate {
        let (at, place) = self.find(packet);
        let mut refused = None;
        if let Some(place) = place {
            match self.buckets[at][place].refusal(packet) {
                None => {
                    let held = &mut self.buckets[at][place];
                    held.append(packet);
                    sink.append(held.slot, now_ns);
                    self.last = Some((at, place));
                    if let Some(cause) = held.is_last(packet) {
                        self.end(at, place, cause, now_ns, sink);
                    }
                    return Fate::Joined;
                }
                Some(cause) => {
                    refused = Some(cause);
                    self.end(at, place, cause, now_ns, sink);
                }
            }
        }
        if let Some(alone) = alone(packet) {
            return Fate::Alone(alone);
        }
        if self.buckets[at].len() == BUCKET {
            self.end(at, 0, Flush::Evicted, now_ns, sink);
        }
        let taken = |slot: &u32| self.buckets[at].iter().any(|held| held.slot == *slot);
        let first = (at * BUCKET) as u32;
        let slot = (first..first + BUCKET as u32).find(|slot| !taken(slot)).expect("one of eight was just given up");
        self.buckets[at].push(Held::new(slot, packet));
        self.last = Some((at, self.buckets[at].len() - 1));
        sink.start(slot, now_ns);
        Fate::Held(refused)
    }

    /// The list of a packet's connection, and the place in it of the one that is held.
    #[inline]
    fn find(&self, packet: &Packet<'_>) -> (usize, Option<usize>) {
        if let Some((at, place)) = self.last
            && self.buckets[at][place].is_of(packet)
        {
            return (at, Some(place));
        }
        let at = match self.rules.lists {
            Lists::Hashed => crate::flows::hash(packet.flow) as usize % BUCKETS,
            Lists::One => 0,
        };
        (at, self.buckets[at].iter().position(|held| held.is_of(packet)))
    }

    fn end(&mut self, bucket: usize, place: usize, cause: Flush, at_ns: u64, sink: &mut impl Sink) {
        self.last = None;
        let held = self.buckets[bucket].remove(place);
        self.note(&held, cause, at_ns, sink);
    }

    fn end_poll(&mut self, at_ns: u64, cause: Flush, sink: &mut impl Sink) {
        (self.window_frames, self.window_start_ns, self.last) = (0, None, None);
        for bucket in 0..BUCKETS {
            let mut packets = std::mem::take(&mut self.buckets[bucket]);
            packets.drain(..).for_each(|held| self.note(&held, cause, at_ns, sink));
            self.buckets[bucket] = packets;
        }
    }

    fn note(&mut self, held: &Held, cause: Flush, at_ns: u64, sink: &mut impl Sink) {
        self.counts.flushed[cause as usize] += 1;
        self.counts.runs += u64::from(held.segments > 1);
        sink.flush(held.slot, &held.run(), at_ns);
    }
}

/// Why a packet that joined none is not held either.
fn alone(packet: &Packet<'_>) -> Option<Alone> {
    const ENDING: Flags = Flags(Flags::URG.0 | Flags::RST.0 | Flags::SYN.0 | Flags::FIN.0);
    if packet.payload_len == 0 {
        return Some(Alone::As(Reason::NoPayload));
    }
    if packet.padded {
        return Some(Alone::Padded);
    }
    if packet.flags() & ENDING.0 != 0 {
        return Some(Alone::As(Reason::Flags));
    }
    (packet.flags() & Flags::PSH.0 != 0).then_some(Alone::As(Reason::PshAlone))
}
