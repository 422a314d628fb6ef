//! A second coalescer, slow and obvious: written from the rules, with a reading of
//! bytes of its own, and sharing no code with the crate. Tests compare the two,
//! here on random traffic, and the capture analyser's on captures (they include
//! this file by its path).
//!
//! A frame is looked at rule by rule; runs stand in a list, the one least recently
//! appended to first.

// Not every test that includes it uses all of it.
#![allow(dead_code)]

pub mod bytes;

use bytes::{Key, Segment, look};
use std::collections::BTreeMap;

/// A frame as a capture has it.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The bytes that were captured.
    pub bytes: Vec<u8>,
    /// Its length on the wire.
    pub wire_len: usize,
    /// When, in nanoseconds.
    pub time_ns: u64,
    /// Its link type, by the numbers of pcap files: 0 null, 1 Ethernet, 101 raw IP,
    /// 108 loop, 113 Linux cooked, 276 Linux cooked v2, 228 and 229 IPv4 and IPv6.
    pub link_type: u32,
}

/// When runs are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// After so many frames.
    Frames(u32),
    /// After so many nanoseconds.
    Nanos(u64),
    /// At the end only.
    End,
}

/// Profile and limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// True for `rsc`, false for `ra`.
    pub rsc: bool,
    pub cache: usize,
    pub buffer: usize,
    pub limit: Option<usize>,
    pub window: Window,
    pub verify: bool,
}

/// An item of the output, in order: frames by their place in the input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Out {
    Alone(usize, &'static str),
    Run(Vec<usize>),
}

/// The numbers of a report.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Report {
    pub frames_in: u64,
    pub frames_out: u64,
    pub eliminated: u64,
    pub runs: u64,
    pub reasons: BTreeMap<&'static str, u64>,
}

struct Run {
    key: Key,
    frames: Vec<usize>,
    /// IP and TCP header of the first.
    headers: usize,
    payload: usize,
    next_seq: u32,
    ack: u32,
    ts: Option<u32>,
    class: u8,
}

/// Goes through a capture, frame by frame.
pub struct Slow {
    rules: Rules,
    runs: Vec<Run>,
    at: usize,
    window_frames: u32,
    window_start: Option<u64>,
    /// All that came out, if it is wanted.
    pub out: Vec<Out>,
    report: Report,
}

impl Slow {
    pub fn new(rules: Rules) -> Slow {
        let (out, report) = (Vec::new(), Report::default());
        Slow { rules, runs: Vec::new(), at: 0, window_frames: 0, window_start: None, out, report }
    }

    pub fn frame(&mut self, frame: &Frame) {
        if let Window::Nanos(length) = self.rules.window {
            let start = *self.window_start.get_or_insert(frame.time_ns);
            if frame.time_ns < start || frame.time_ns - start >= length {
                self.flush_all();
                self.window_start = Some(frame.time_ns);
            }
        }
        match look(frame, self.rules.verify) {
            Err((reason, key)) => {
                if let Some(key) = key {
                    self.flush_flow(&key);
                }
                self.alone(reason);
            }
            Ok(segment) => self.segment(segment),
        }
        self.at += 1;
        self.window_frames += 1;
        if let Window::Frames(frames) = self.rules.window
            && self.window_frames == frames
        {
            self.flush_all();
            self.window_frames = 0;
        }
    }

    /// The end of the input.
    pub fn finish(mut self) -> (Report, Vec<Out>) {
        self.flush_all();
        self.report.frames_in = self.at as u64;
        self.report.eliminated = self.report.frames_in - self.report.frames_out;
        (self.report, self.out)
    }

    fn segment(&mut self, segment: Segment) {
        let place = self.runs.iter().position(|run| run.key == segment.key);
        if let Some(place) = place
            && self.joins(&self.runs[place], &segment)
        {
            let mut run = self.runs.remove(place);
            run.frames.push(self.at);
            run.payload += segment.payload;
            run.next_seq = segment.seq.wrapping_add(segment.payload as u32);
            run.ack = segment.ack;
            run.ts = segment.ts;
            self.runs.push(run);
            if (self.rules.rsc && segment.psh) || self.is_full(self.runs.last().unwrap()) {
                self.flush(self.runs.len() - 1);
            }
            return;
        }
        self.flush_flow(&segment.key);
        if self.rules.rsc && segment.psh {
            return self.alone("psh_alone");
        }
        if self.is_too_big(segment.headers, segment.payload) {
            return self.alone("too_big");
        }
        if self.runs.len() == self.rules.cache {
            self.flush(0);
        }
        self.runs.push(Run {
            key: segment.key,
            frames: vec![self.at],
            headers: segment.headers,
            payload: segment.payload,
            next_seq: segment.seq.wrapping_add(segment.payload as u32),
            ack: segment.ack,
            ts: segment.ts,
            class: segment.class,
        });
        if self.is_full(self.runs.last().unwrap()) {
            self.flush(self.runs.len() - 1);
        }
    }

    fn joins(&self, run: &Run, segment: &Segment) -> bool {
        let not_before = |a: u32, b: u32| a.wrapping_sub(b) < 0x8000_0000;
        segment.seq == run.next_seq
            && not_before(segment.ack, run.ack)
            && segment.ts.is_some() == run.ts.is_some()
            && (segment.ts.is_none() || not_before(segment.ts.unwrap(), run.ts.unwrap()))
            && segment.class == run.class
            && !self.is_too_big(run.headers, run.payload + segment.payload)
    }

    fn is_too_big(&self, headers: usize, payload: usize) -> bool {
        if self.rules.rsc { payload > self.rules.buffer } else { headers + payload > 65_535 }
    }

    fn is_full(&self, run: &Run) -> bool {
        self.rules.limit.is_some_and(|limit| run.frames.len() >= limit)
    }

    fn alone(&mut self, reason: &'static str) {
        *self.report.reasons.entry(reason).or_default() += 1;
        self.report.frames_out += 1;
        self.out.push(Out::Alone(self.at, reason));
    }

    fn flush_flow(&mut self, key: &Key) {
        if let Some(place) = self.runs.iter().position(|run| run.key == *key) {
            self.flush(place);
        }
    }

    fn flush_all(&mut self) {
        while !self.runs.is_empty() {
            self.flush(0);
        }
    }

    fn flush(&mut self, place: usize) {
        let run = self.runs.remove(place);
        self.report.frames_out += 1;
        self.report.runs += u64::from(run.frames.len() >= 2);
        self.out.push(Out::Run(run.frames));
    }
}
