//! Runs the crate in the words of the slow coalescer.

// Not every test that includes it uses all of it.
#![allow(dead_code)]

use crate::slow::{Frame, Out, Report, Rules, Window};
use baton_coalesce::{
    Cause, Checksums, Class, Coalescer, Limits, Link, Output, Part, Parts, Profile, Reason, Run, Segment, Tags,
    Verdict, Window as Ours, classify,
};
use std::num::{NonZeroU32, NonZeroU64};

/// The limits for some rules.
pub fn limits(rules: Rules) -> Limits {
    let profile = if rules.rsc { Profile::Rsc } else { Profile::Ra };
    Limits {
        cache: NonZeroU32::new(rules.cache as u32).unwrap(),
        buffer: rules.buffer as u32,
        segments: rules.limit.map(|limit| NonZeroU32::new(limit as u32).unwrap()),
        window: match rules.window {
            Window::Frames(frames) => Ours::Frames(NonZeroU32::new(frames).unwrap()),
            Window::Nanos(ns) => Ours::Time(NonZeroU64::new(ns).unwrap()),
            Window::End => Ours::Input,
        },
        ..Limits::of(profile)
    }
}

/// A frame as the crate takes it.
pub fn frame(frame: &Frame) -> baton_coalesce::Frame<'_> {
    let link = match frame.link_type {
        1 => Link::Ethernet,
        113 => {
            let field = frame.bytes.get(14..16).unwrap_or(&[0, 0]);
            Link::Read { ether_type: u16::from_be_bytes([field[0], field[1]]), offset: 16, tags: Tags::NONE }
        }
        _ => Link::Ip,
    };
    baton_coalesce::Frame { bytes: &frame.bytes, wire_len: frame.wire_len as u32, link, vouched: false }
}

/// A sink that writes the crate's output down.
#[derive(Debug, Default)]
pub struct Pair {
    pub out: Vec<Out>,
    pub runs: Vec<(Run, Vec<Part<usize>>, Cause)>,
}

impl Output<usize> for Pair {
    fn frame(&mut self, frame: usize, reason: Reason) {
        self.out.push(Out::Alone(frame, reason.name()));
    }

    fn run(&mut self, run: &Run, parts: &[Part<usize>], cause: Cause) {
        assert_eq!(run.segments as usize, parts.len());
        assert_eq!(run.payload_len, parts.iter().map(|part| part.len).sum::<u32>());
        self.out.push(Out::Run(parts.iter().map(|part| part.frame).collect()));
        self.runs.push((*run, parts.to_vec(), cause));
    }
}

/// True if a segment's headers are those of the frame before it, but for sequence number and PSH.
fn is_next(last: Class, segment: &Segment) -> bool {
    matches!(last, Class::Data(last) if Segment { seq: last.seq, push: last.push, ..*segment } == last)
}

impl Pair {
    /// A report and what came out, in order.
    pub fn run(rules: Rules, frames: &[Frame]) -> (Report, Vec<Out>) {
        let (coalescer, pair) = Pair::all(rules, frames);
        let counts = coalescer.counts();
        let count = |reason: &Reason| (reason.name(), counts.of(Verdict::Bypass(*reason)));
        let report = Report {
            frames_in: counts.frames_in(),
            frames_out: counts.frames_out(),
            eliminated: counts.eliminated(),
            runs: counts.runs,
            reasons: Reason::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect(),
        };
        (report, pair.out)
    }

    /// The coalescer after all frames and a flush, and what came out.
    pub fn all(rules: Rules, frames: &[Frame]) -> (Coalescer, Pair) {
        let limits = limits(rules);
        let (mut coalescer, mut parts, mut pair) = (Coalescer::new(limits), Parts::new(&limits), Pair::default());
        let checksums = if rules.verify { Checksums::Verify } else { Checksums::Trust };
        let mut last = None;
        for (at, seen) in frames.iter().enumerate() {
            let (class, sink) = (classify(&frame(seen), checksums), &mut parts.to(&mut pair));
            match &class {
                // Both ways do the same wherever there are two.
                Class::Data(segment) if at % 4 > 0 && last.is_some_and(|last| is_next(last, segment)) => {
                    coalescer.handle_next(segment, seen.time_ns, at, sink);
                }
                class => {
                    coalescer.handle(class, seen.time_ns, at, sink);
                }
            }
            last = Some(class);
        }
        coalescer.flush(frames.last().map_or(0, |frame| frame.time_ns), &mut parts.to(&mut pair));
        assert!(coalescer.is_empty());
        (coalescer, pair)
    }
}
