//! The cost of a merged segment beyond a plain parse of its headers.
//!
//! `cargo bench -p baton-coalesce --bench coalesce`. The frames are headers of
//! 1448-byte segments with timestamps, cache-hot, four in a burst of a connection.

use baton_coalesce::{
    Cause, Checksums, Coalescer, Frame, Limits, Link, Output, Part, Parts, Profile, Reason, Run, Window, classify,
};
use baton_testkit::rounds::{Effort, Rounds};
use baton_wire::addr::Addr;
use baton_wire::packet::{Checks, Packet};
use baton_wire::seq::Seq;
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};
use baton_wire::template::{Emit, MAX_HEADERS, Route, Template};
use std::hint::black_box;
use std::num::NonZeroU32;

/// Segments of each connection.
const SEGMENTS: usize = 40;
const BURST: usize = 4;

fn main() {
    let effort = Effort::asked();
    for (name, v6) in [("IPv4", false), ("IPv6", true)] {
        for flows in [1, 4, 64] {
            let frames = frames(flows, v6);
            let times = effort.pick(4000 / frames.len().min(4000), 1).max(1);
            let mut set = Rounds::new(&format!("a segment, {name}, {flows} connections"), times * frames.len());
            measure(&mut set, &frames, flows as u32, times);
            set.run(effort.rounds(201));
            set.report();
        }
    }
}

fn measure<'a>(set: &mut Rounds<'a>, frames: &'a [Vec<u8>], flows: u32, times: usize) {
    set.add("plain parse", move || {
        for frame in (0..times).flat_map(|_| frames) {
            let checks = Checks { ip_checksum: false, whole: false };
            black_box(&Packet::parse_with(black_box(frame), baton_wire::packet::Link::Ethernet, checks));
        }
    });
    set.add("classified", move || {
        for frame in (0..times).flat_map(|_| frames) {
            black_box(&classify(&black_box(seen(frame)), Checksums::Trust));
        }
    });
    for profile in [Profile::Ra, Profile::Rsc] {
        let limits = Limits {
            cache: NonZeroU32::new(flows.max(4)).expect("not 0"),
            buffer: 64 * 1024,
            window: Window::Input,
            ..Limits::of(profile)
        };
        let mut coalescer = Coalescer::new(limits);
        set.add(format!("coalesced, {}", profile.name()), move || {
            for _ in 0..times {
                for frame in frames {
                    black_box(coalescer.handle_frame(&black_box(seen(frame)), Checksums::Trust, 0, (), &mut ()));
                }
                coalescer.flush::<(), ()>(0, &mut ());
            }
        });
        let (mut coalescer, mut parts, mut out) = (Coalescer::new(limits), Parts::new(&limits), Out(0));
        set.add(format!("coalesced, {}, parts kept", profile.name()), move || {
            for _ in 0..times {
                for (at, frame) in frames.iter().enumerate() {
                    let sink = &mut parts.to(&mut out);
                    black_box(coalescer.handle_frame(&black_box(seen(frame)), Checksums::Trust, 0, at as u32, sink));
                }
                coalescer.flush(0, &mut parts.to(&mut out));
            }
            black_box(out.0);
        });
    }
}

/// Headers as a capture keeps them, of a frame of 1514 bytes.
fn seen(frame: &[u8]) -> Frame<'_> {
    Frame { wire_len: 1514, ..Frame::whole(frame, Link::Ethernet) }
}

/// Adds up what it is given.
struct Out(usize);

impl Output<u32> for Out {
    fn frame(&mut self, frame: u32, _: Reason) {
        self.0 += frame as usize;
    }
    fn run(&mut self, _: &Run, parts: &[Part<u32>], _: Cause) {
        self.0 += parts.len();
    }
}

/// Bursts of each connection in turn.
fn frames(flows: usize, v6: bool) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for burst in 0..SEGMENTS / BURST {
        for flow in 0..flows {
            all.extend((0..BURST).map(|n| frame(flow as u16, (burst * BURST + n) as u32, v6)));
        }
    }
    all
}

fn frame(flow: u16, n: u32, v6: bool) -> Vec<u8> {
    let [src, dst] = if v6 {
        [Addr::v6([0xfd; 16]), Addr::v6([0xfe; 16])]
    } else {
        [Addr::v4([10, 77, 0, 1]), Addr::v4([10, 77, 0, 2])]
    };
    let route = Route {
        link: &[2; 14],
        src,
        dst,
        src_port: 4000 + flow,
        dst_port: 80,
        ttl: 64,
        traffic_class: 0,
        flow_label: 7,
    };
    let emit = Emit {
        seq: Seq(n.wrapping_mul(1448)),
        ack: Seq(1),
        flags: Flags::ACK,
        window: 1000,
        urgent: 0,
        ts: Some(Timestamps { val: n / 8, ecr: 1 }),
        sack: &SackBlocks::new(),
        payload_len: 1448,
        payload_sum: Some(0x1234),
        ip_id: n as u16,
        ecn: 0,
    };
    let mut frame = vec![0; MAX_HEADERS];
    let len = Template::new(&route).expect("the link header has 14 bytes").emit(&mut frame, &emit);
    frame.truncate(len);
    frame
}
