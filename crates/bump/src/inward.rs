//! From the wire to the host.
//!
//! A run is a chain of frames of the burst:
//!
//! ```text
//!   burst    | 0 | 1 | 2 | 3 | 4 | 5 |
//!   next       3   2   -   5       -        chains 0 3 5 and 1 2; 4 does not coalesce
//!   slot -> first frame, last frame
//! ```

use crate::counters::Counters;
use crate::senders::Senders;
use arrayvec::ArrayVec;
use baton_coalesce::{
    Cause, Checksums, Class, Coalescer, Counts, Flow, Frame, Limits, Link, Reason, Run, Segment, Sink, classify,
    write_headers,
};
use baton_port::vnet::{GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, Vnet, VnetFrame, VnetIo, VnetSink};
use baton_port::vnet_tap::PIECES;
use baton_wire::packet::{Checks, Packet};
use baton_wire::tcp::{Acks, Flags};
use std::io::IoSlice;

const NONE: u32 = u32::MAX;
/// Link header with four VLAN tags, IP header, TCP header with options, in bytes.
const HEADERS: usize = 14 + 16 + 40 + 60;
/// Offset of the checksum in the TCP header, in bytes.
const TCP_CHECKSUM: u16 = 16;

/// Place of a run's frame in the burst: its payload, and the frame after it.
#[derive(Clone, Copy)]
struct Place {
    next: u32,
    payload_at: u32,
    payload_len: u32,
}

/// The way from the wire to the host.
pub struct Inward {
    coalescer: Coalescer,
    links: Vec<Place>,
    /// First and last frame of the run in each slot.
    chains: Box<[(u32, u32)]>,
    acks: Acks,
    bare: bool,
}

impl Inward {
    pub fn new(limits: Limits, acks: Acks, bare: bool) -> Inward {
        Inward {
            coalescer: Coalescer::new(limits),
            links: Vec::new(),
            chains: vec![(NONE, NONE); limits.cache.get() as usize].into_boxed_slice(),
            acks,
            bare,
        }
    }

    pub fn counts(&self) -> &Counts {
        self.coalescer.counts()
    }

    /// The sink that a burst from the wire goes into.
    pub fn to<'a, H: VnetIo>(
        &'a mut self,
        host: &'a mut H,
        senders: &'a mut Senders,
        counters: &'a mut Counters,
        now_ns: u64,
    ) -> ToHost<'a, H> {
        ToHost { inward: self, host, senders, counters, now_ns }
    }
}

pub struct ToHost<'a, H> {
    inward: &'a mut Inward,
    host: &'a mut H,
    senders: &'a mut Senders,
    counters: &'a mut Counters,
    now_ns: u64,
}

impl<H: VnetIo> VnetSink for ToHost<'_, H> {
    fn burst(&mut self, frames: &[VnetFrame<'_>]) {
        let ToHost { inward, host, senders, counters, now_ns } = self;
        let Inward { coalescer, links, chains, acks, bare } = &mut **inward;
        links.resize(links.len().max(frames.len()), Place { next: NONE, payload_at: 0, payload_len: 0 });
        let mut runs = Runs { frames, links, chains, out: HostOut { host: &mut **host, counters } };
        for (at, frame) in (0..).zip(frames) {
            runs.out.counters.wire_in += 1;
            runs.out.counters.wire_in_bytes += frame.data.len() as u64;
            if *bare {
                runs.out.pass(frame);
                continue;
            }
            let remember = *acks == Acks::EverySecond;
            if frame.vnet.is_super() {
                // A run already; only its virtio header describes its segments.
                coalescer.flush(*now_ns, &mut runs);
                runs.out.counters.wire_in_super += 1;
                if remember {
                    remember_super(frame, senders);
                }
                runs.out.pass(frame);
                continue;
            }
            let vouched = frame.vnet.is_vouched();
            let seen = Frame { vouched, ..Frame::whole(frame.data, Link::Ethernet) };
            let class = classify(&seen, Checksums::Verify);
            if remember {
                match &class {
                    Class::Data(segment) => senders.on_segment(&segment.flow, segment.end()),
                    Class::Bypass { flow: Some(flow), .. } => remember_other(frame, flow, senders),
                    Class::Bypass { flow: None, .. } => {}
                }
            }
            coalescer.handle(&class, *now_ns, at, &mut runs);
        }
        coalescer.flush(*now_ns, &mut runs);
    }
}

/// Notes what a segment that does not coalesce says about its connection.
#[cold]
fn remember_other(frame: &VnetFrame<'_>, flow: &Flow, senders: &mut Senders) {
    let checks = Checks { ip_checksum: false, whole: true };
    let Ok(packet) = Packet::parse_with(frame.data, baton_wire::packet::Link::Ethernet, checks) else { return };
    if packet.flags.intersects(Flags::SYN | Flags::RST) {
        senders.forget(flow);
    } else if packet.payload_len > 0 {
        senders.on_segment(flow, packet.seq + packet.payload_len);
    }
}

/// Notes the segments of a super-frame.
#[cold]
fn remember_super(frame: &VnetFrame<'_>, senders: &mut Senders) {
    let seen = Frame { vouched: true, ..Frame::whole(frame.data, Link::Ethernet) };
    let Class::Data(segment) = classify(&seen, Checksums::Trust) else { return };
    let step = u32::from(frame.vnet.gso_size).max(1);
    let mut end = 0;
    while end < segment.payload_len {
        end = (end + step).min(segment.payload_len);
        senders.on_segment(&segment.flow, segment.seq + end);
    }
}

/// The host's port, counted.
struct HostOut<'a, H> {
    host: &'a mut H,
    counters: &'a mut Counters,
}

impl<H: VnetIo> HostOut<'_, H> {
    fn send(&mut self, vnet: Vnet, pieces: &[IoSlice<'_>]) {
        match self.host.send(vnet, pieces) {
            true => self.counters.host_in += 1,
            false => self.counters.host_full += 1,
        }
    }

    /// Passes a frame on as it is.
    fn pass(&mut self, frame: &VnetFrame<'_>) {
        self.send(frame.vnet, &[IoSlice::new(frame.data)]);
    }
}

/// Where the coalescer says what becomes of frames.
struct Runs<'a, 'f, H> {
    frames: &'a [VnetFrame<'f>],
    links: &'a mut [Place],
    chains: &'a mut [(u32, u32)],
    out: HostOut<'a, H>,
}

impl<H: VnetIo> Runs<'_, '_, H> {
    #[inline]
    fn keep(&mut self, segment: &Segment, frame: u32) {
        self.links[frame as usize] =
            Place { next: NONE, payload_at: segment.payload_offset() as u32, payload_len: segment.payload_len };
    }

    /// Sends the run that begins with a frame; false if its headers cannot be written.
    fn send_run(&mut self, run: &Run, first: u32) -> bool {
        let first_frame = &self.frames[first as usize];
        let headers_len = run.first.payload_offset();
        let mut headers = [0; HEADERS];
        let Some(room) = headers.get_mut(..headers_len) else { return false };
        room.copy_from_slice(&first_frame.data[..headers_len]);
        if write_headers(run, room).is_err() {
            return false;
        }
        let mut pieces = ArrayVec::<IoSlice<'_>, PIECES>::new();
        pieces.push(IoSlice::new(&headers[..headers_len]));
        let (mut at, mut longest) = (first, 0);
        while let Some(link) = self.links.get(at as usize) {
            let payload = &self.frames[at as usize].data[link.payload_at as usize..][..link.payload_len as usize];
            if pieces.try_push(IoSlice::new(payload)).is_err() {
                return false;
            }
            longest = longest.max(link.payload_len);
            at = link.next;
        }
        let mut vnet = Vnet {
            flags: NEEDS_CSUM,
            checksum_start: run.first.tcp_offset() as u16,
            checksum_offset: TCP_CHECKSUM,
            ..Vnet::default()
        };
        if run.segments > 1 {
            vnet.gso_type = if run.flow().is_v6() { GSO_TCPV6 } else { GSO_TCPV4 };
            vnet.gso_size = longest as u16;
            vnet.header_len = headers_len as u16;
            self.out.counters.runs += 1;
        }
        self.out.send(vnet, &pieces);
        true
    }
}

impl<H: VnetIo> Sink<u32> for Runs<'_, '_, H> {
    #[inline]
    fn pass(&mut self, frame: u32, _: Reason) {
        self.out.pass(&self.frames[frame as usize]);
    }

    #[inline]
    fn start(&mut self, slot: u32, segment: &Segment, frame: u32) {
        self.keep(segment, frame);
        self.chains[slot as usize] = (frame, frame);
    }

    #[inline]
    fn append(&mut self, slot: u32, segment: &Segment, frame: u32) {
        self.keep(segment, frame);
        let (_, last) = &mut self.chains[slot as usize];
        self.links[*last as usize].next = frame;
        *last = frame;
    }

    #[inline]
    fn flush(&mut self, slot: u32, run: &Run, _: Cause, _: u64) {
        let (first, _) = self.chains[slot as usize];
        if !self.send_run(run, first) {
            // Longer than an IP header can say, or than a writev can take: sent one by one.
            let mut at = first;
            while let Some(link) = self.links.get(at as usize) {
                self.out.pass(&self.frames[at as usize]);
                at = link.next;
            }
        }
    }
}
