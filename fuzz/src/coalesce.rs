//! A target for the coalescer: a script makes rules and frames, right and wrong, and
//! the slow coalescer of the crate's tests has to say the same of them.

use baton_coalesce::{
    Cause, Checksums, Coalescer, Frame, Limits, Link, Output, Part, Parts, Profile, Reason, Run, Tags, Verdict, Window,
    write_headers,
};
use build::{Ip, Packet};
use script::Script;
use slow::{Out, Rules, Slow};
use std::num::{NonZeroU32, NonZeroU64};

#[path = "../../crates/coalesce/tests/traffic/build.rs"]
mod build;
#[path = "script.rs"]
pub mod script;
#[path = "../../crates/coalesce/tests/slow/mod.rs"]
mod slow;

/// A target's name, which is its corpus directory's too, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this module.
pub const TARGETS: &[Target] = &[("coalesce_traffic", traffic)];

/// Most frames of a script.
const MOST_FRAMES: usize = 200;

/// Rules, then frames: four senders' next segments with changes, or any bytes.
pub fn traffic(data: &[u8]) {
    let mut script = Script(data);
    let rules = rules(&mut script);
    let mut senders = [0, 1, 2, 3].map(|n: u8| Packet {
        ip: if n < 2 { Packet::default().ip } else { Ip::V6 { src: [n; 16], dst: [9; 16] } },
        src_port: u16::from(n),
        seq: u32::MAX - 3000,
        ts: (n & 1 == 0).then_some((u32::MAX - 1, 5)),
        ..Packet::default()
    });
    let mut frames = Vec::new();
    let mut time_ns = 0;
    while !script.0.is_empty() && frames.len() < MOST_FRAMES {
        let op = script.byte();
        time_ns += u64::from(op >> 6) * 1000;
        let (bytes, link_type) = match op & 7 {
            7 => {
                let len = usize::from(script.byte());
                let bytes = (0..len).map(|_| script.byte()).collect();
                (bytes, script.pick(&[1, 101, 113]))
            }
            change => {
                let sender = &mut senders[usize::from(op >> 3) % 4];
                let mut packet = sender.clone();
                packet.payload = usize::from(script.byte()) * 8;
                packet.seed = op;
                if change >= 4 {
                    change_header(&mut script, &mut packet);
                }
                sender.follow(&packet);
                let mut bytes = packet.build(1);
                if change == 6 {
                    let at = usize::from(script.byte()) % bytes.len();
                    bytes[at] = script.byte();
                }
                if change == 5 && script.byte() < 128 {
                    bytes.truncate(usize::from(script.byte()));
                }
                (bytes, 1)
            }
        };
        let wire_len = bytes.len() + usize::from(op >> 7);
        frames.push(slow::Frame { bytes, wire_len, time_ns, link_type });
    }
    compare(rules, &frames);
}

fn rules(script: &mut Script<'_>) -> Rules {
    Rules {
        rsc: script.byte() & 1 == 0,
        cache: script.pick(&[4, 1, 2, 3, 64]),
        buffer: script.pick(&[8192, 1, 1000, 65_535, 1 << 20]),
        limit: script.pick(&[None, Some(1), Some(2), Some(20)]),
        window: script.pick(&[
            slow::Window::Frames(20),
            slow::Window::Frames(1),
            slow::Window::Frames(5),
            slow::Window::Nanos(3000),
            slow::Window::End,
        ]),
        verify: script.byte() & 1 == 1,
    }
}

fn change_header(script: &mut Script<'_>, packet: &mut Packet) {
    let (kind, value) = (script.byte() % 16, script.byte());
    match kind {
        0 => packet.seq = packet.seq.wrapping_add(u32::from(value)).wrapping_sub(128),
        1 => packet.ack = packet.ack.wrapping_add(u32::from(value)).wrapping_sub(128),
        2 => packet.ts = packet.ts.map(|(val, ecr)| (val.wrapping_add(u32::from(value)).wrapping_sub(128), ecr)),
        3 => packet.ts = packet.ts.xor(Some((1, u32::from(value)))),
        4 => packet.class = value,
        5 => packet.flags ^= 1 << (value % 12),
        6 | 7 => packet.psh = true,
        8 => packet.options = (0..usize::from(value % 44)).map(|_| script.byte()).take(40).collect(),
        9 => packet.ip_options = usize::from(value % 11) * 4,
        10 => packet.fragment = Some(u16::from(value) << 8 | u16::from(value & 1)),
        11 => packet.protocol = value,
        12 => packet.extensions = (0..value % 11).map(|_| script.pick(&[0, 43, 44, 51, 60, 135])).collect(),
        13 => packet.tags = vec![[0x81, 0, 0, value]; usize::from(value % 6)],
        14 => packet.payload = 64_000 + usize::from(value) * 4,
        _ => (packet.bad_ip_sum, packet.bad_tcp_sum) = (value & 1 == 1, value & 2 == 2),
    }
}

/// The crate's output, in the words of the slow one; headers are written to
/// see that they can be.
struct Seen<'a> {
    frames: &'a [slow::Frame],
    out: Vec<Out>,
}

impl Output<usize> for Seen<'_> {
    fn frame(&mut self, frame: usize, reason: Reason) {
        self.out.push(Out::Alone(frame, reason.name()));
    }

    fn run(&mut self, run: &Run, parts: &[Part<usize>], _: Cause) {
        self.out.push(Out::Run(parts.iter().map(|part| part.frame).collect()));
        let mut first = self.frames[parts[0].frame].bytes.clone();
        let written = write_headers(run, &mut first);
        assert_eq!(written.is_err(), run.payload_len + run.first.headers_len() > longest(run));
        // Over another frame there is an error or nonsense, but no panic.
        let mut other = first[..first.len() / 2].to_vec();
        let _ = write_headers(run, &mut other);
    }
}

fn longest(run: &Run) -> u32 {
    if run.flow().is_v6() { 65_535 + 40 } else { 65_535 }
}

fn compare(rules: Rules, frames: &[slow::Frame]) {
    let limits = Limits {
        cache: NonZeroU32::new(rules.cache as u32).expect("not 0"),
        buffer: rules.buffer as u32,
        segments: rules.limit.and_then(|limit| NonZeroU32::new(limit as u32)),
        window: match rules.window {
            slow::Window::Frames(frames) => Window::Frames(NonZeroU32::new(frames).expect("not 0")),
            slow::Window::Nanos(ns) => Window::Time(NonZeroU64::new(ns).expect("not 0")),
            slow::Window::End => Window::Input,
        },
        ..Limits::of(if rules.rsc { Profile::Rsc } else { Profile::Ra })
    };
    let checksums = if rules.verify { Checksums::Verify } else { Checksums::Trust };
    let (mut coalescer, mut parts) = (Coalescer::new(limits), Parts::new(&limits));
    let mut seen = Seen { frames, out: Vec::new() };
    let mut slow = Slow::new(rules);
    for (at, frame) in frames.iter().enumerate() {
        let link = match (frame.link_type, frame.bytes.get(14..16)) {
            (1, _) => Link::Ethernet,
            (113, Some(kind)) => {
                Link::Read { ether_type: u16::from_be_bytes([kind[0], kind[1]]), offset: 16, tags: Tags::NONE }
            }
            (113, None) => Link::Read { ether_type: 0, offset: 16, tags: Tags::NONE },
            _ => Link::Ip,
        };
        let ours = Frame { bytes: &frame.bytes, wire_len: frame.wire_len as u32, link, vouched: false };
        coalescer.handle_frame(&ours, checksums, frame.time_ns, at, &mut parts.to(&mut seen));
        slow.frame(frame);
    }
    coalescer.flush(u64::MAX, &mut parts.to(&mut seen));
    let (report, slow_out) = slow.finish();
    assert_eq!(sorted(seen.out), sorted(slow_out));
    let counts = coalescer.counts();
    assert_eq!(
        (counts.frames_in(), counts.frames_out(), counts.eliminated(), counts.runs),
        (report.frames_in, report.frames_out, report.eliminated, report.runs)
    );
    for reason in Reason::ALL {
        let slow = report.reasons.get(reason.name()).copied().unwrap_or(0);
        assert_eq!(counts.of(Verdict::Bypass(reason)), slow, "{reason:?}");
    }
}

/// Without the order among connections, which is free.
fn sorted(mut out: Vec<Out>) -> Vec<Out> {
    out.sort_by_key(|out| match out {
        Out::Alone(at, _) => *at,
        Out::Run(frames) => frames[0],
    });
    out
}
