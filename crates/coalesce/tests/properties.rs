//! Properties that hold for any input: every segment comes back out of a run, connections keep
//! their order, nothing waits for company without need.

mod pair;
mod slow;
mod traffic;

use baton_coalesce::{Cause, Coalescer, HeadersError, Part, Run, Segment, Sink, write_headers};
use pair::Pair;
use slow::bytes::{Key, look};
use slow::{Frame, Out, Rules, Window};
use std::collections::HashMap;
use traffic::Traffic;

/// Some frames and rules.
fn world(seed: u64, frames: usize) -> (Rules, Vec<Frame>) {
    let mut traffic = Traffic::new(seed);
    let rules = traffic::rules(&mut traffic.dice);
    let mut out = Vec::new();
    while out.len() < frames {
        traffic.burst(&mut out);
    }
    (rules, out)
}

/// A run as one frame: its headers and all payload.
fn super_frame(run: &Run, parts: &[Part<usize>], frames: &[Frame]) -> Result<Vec<u8>, HeadersError> {
    let mut out = frames[parts[0].frame].bytes[..run.first.payload_offset()].to_vec();
    let headers = write_headers(run, &mut out)?;
    assert_eq!(headers, out.len());
    for part in parts {
        let at = part.payload_offset as usize;
        out.extend(&frames[part.frame].bytes[at..at + part.len as usize]);
    }
    Ok(out)
}

/// The segments that a super-frame was made of, cut out of it again.
fn resegment(run: &Run, parts: &[Part<usize>], whole: &[u8]) -> Vec<Vec<u8>> {
    let (tcp, payload) = (run.first.tcp_offset(), run.first.payload_offset());
    let mut offset = 0;
    let cut = |part: &Part<usize>| {
        let bytes = &whole[payload + offset..payload + offset + part.len as usize];
        let mut frame = [&whole[..payload], bytes].concat();
        frame[tcp + 4..tcp + 8].copy_from_slice(&(run.first.seq.0.wrapping_add(offset as u32)).to_be_bytes());
        frame[tcp + 8..tcp + 12].copy_from_slice(&part.ack.0.to_be_bytes());
        frame[tcp + 13] = frame[tcp + 13] & !8 | if part.push { 8 } else { 0 };
        let ip = run.first.ip_offset as usize;
        let (field, len) = if run.flow().is_v6() { (4, frame.len() - tcp) } else { (2, frame.len() - ip) };
        frame[ip + field..ip + field + 2].copy_from_slice(&(len as u16).to_be_bytes());
        offset += part.len as usize;
        frame
    };
    parts.iter().map(cut).collect()
}

/// Sets to 0 what a run gives up of its segments (the table of `headers.rs`), and the
/// checksums, which follow from the rest.
fn without_what_is_given_up(mut frame: Vec<u8>, segment: &Segment) -> Vec<u8> {
    let (ip, tcp) = (segment.ip_offset as usize, segment.tcp_offset());
    let zero: &[_] = match segment.flow.is_v6() {
        false => &[ip + 4..ip + 7, ip + 8..ip + 9, ip + 10..ip + 12],
        true => &[ip + 2..ip + 4, ip + 7..ip + 8],
    };
    zero.iter().for_each(|range| frame[range.clone()].fill(0));
    if segment.flow.is_v6() {
        frame[ip + 1] &= 0xf0;
    }
    frame[tcp + 14..tcp + 20].fill(0);
    // Timestamps, or padding.
    frame.drain(tcp + 20..segment.payload_offset());
    frame[tcp + 12] &= 0x0f;
    let field = if segment.flow.is_v6() { ip + 4 } else { ip + 2 };
    frame[field..field + 2].fill(0);
    frame.split_off(ip)
}

#[test]
fn resegmenting_gives_every_segment_back() {
    let (mut cut, mut too_long) = (0, 0);
    for seed in 0..1500 {
        let (rules, frames) = world(seed, 120);
        // Each segment as the sink saw it, by frame.
        let mut seen = Seen::default();
        let mut coalescer = Coalescer::new(pair::limits(rules));
        for (at, frame) in frames.iter().enumerate() {
            coalescer.handle_frame(&pair::frame(frame), baton_coalesce::Checksums::Trust, frame.time_ns, at, &mut seen);
        }
        let (_, out) = Pair::all(Rules { verify: false, ..rules }, &frames);
        for (run, parts, _) in &out.runs {
            let is_whole =
                |part: &Part<usize>| frames[part.frame].bytes.len() >= (part.payload_offset + part.len) as usize;
            if !parts.iter().all(is_whole) {
                continue;
            }
            let whole = match super_frame(run, parts, &frames) {
                Ok(whole) => whole,
                Err(error) => {
                    assert_eq!(error, HeadersError::TooLong);
                    assert!(run.payload_len + run.first.headers_len() > 65_535);
                    too_long += 1;
                    continue;
                }
            };
            check_headers(run, parts, &whole, &frames);
            for (part, again) in parts.iter().zip(resegment(run, parts, &whole)) {
                let segment = &seen.segments[&part.frame];
                let mut original = frames[part.frame].bytes.clone();
                original.truncate(segment.payload_offset() + part.len as usize);
                let again_segment = Segment { tcp_header_len: run.first.tcp_header_len, ..*segment };
                let again = without_what_is_given_up(again, &again_segment);
                let original = without_what_is_given_up(original, segment);
                let differs = again.iter().zip(&original).position(|(a, b)| a != b);
                assert_eq!((differs, again.len()), (None, original.len()), "seed {seed}, {part:?} of {run:?}");
                cut += 1;
            }
        }
    }
    assert!(cut > 50_000 && too_long > 0, "{cut} {too_long}");
}

/// The run's own headers say what RA §3.2 says that they say.
fn check_headers(run: &Run, parts: &[Part<usize>], whole: &[u8], frames: &[Frame]) {
    let link_type = frames[parts[0].frame].link_type;
    let mut filled = whole.to_vec();
    // The checksum field holds the pseudo header's sum: going on from it, over header
    // and payload, completes the checksum, as a port would.
    let tcp = run.first.tcp_offset();
    let sum = !baton_wire::checksum::rfc1071(&filled[tcp..]);
    filled[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
    let frame = Frame { wire_len: filled.len(), bytes: filled, time_ns: 0, link_type };
    let segment = look(&frame, true).expect("a run is an eligible segment, its checksums right");
    let last = look(&frames[parts[parts.len() - 1].frame], false).unwrap();
    let first = look(&frames[parts[0].frame], false).unwrap();
    assert_eq!((segment.seq, segment.headers), (first.seq, first.headers));
    assert_eq!((segment.ack, segment.ts), (last.ack, last.ts));
    assert_eq!(segment.payload, parts.iter().map(|part| part.len as usize).sum::<usize>());
    assert_eq!(segment.psh, parts.iter().any(|part| part.push));
    let field = |frame: &[u8], run_at: usize| [frame[run_at], frame[run_at + 1]];
    let last_frame = &frames[parts[parts.len() - 1].frame].bytes;
    let last_tcp = last.ip_at + if last.key.src.len() == 4 { 20 } else { 40 };
    assert_eq!(field(whole, tcp + 14), field(last_frame, last_tcp + 14), "window");
    let ttl = |frame: &[u8], ip: usize| frame[ip + if run.flow().is_v6() { 7 } else { 8 }];
    let smallest = parts.iter().map(|part| {
        let bytes = &frames[part.frame].bytes;
        ttl(bytes, look(&frames[part.frame], false).unwrap().ip_at)
    });
    assert_eq!(ttl(whole, run.first.ip_offset as usize), smallest.min().unwrap());
}

/// A sink that writes down segments, and how long each was held.
#[derive(Default)]
struct Seen {
    segments: HashMap<usize, Segment>,
    held: HashMap<u32, (usize, u64)>,
    longest_ns: u64,
    ended: Vec<(usize, Cause)>,
}

impl Sink<usize> for Seen {
    fn pass(&mut self, _: usize, _: baton_coalesce::Reason) {}
    fn start(&mut self, slot: u32, segment: &Segment, frame: usize) {
        self.segments.insert(frame, *segment);
        assert!(self.held.insert(slot, (frame, 0)).is_none(), "the slot was free");
    }
    fn append(&mut self, slot: u32, segment: &Segment, frame: usize) {
        self.segments.insert(frame, *segment);
        assert!(self.held.contains_key(&slot));
    }
    fn flush(&mut self, slot: u32, run: &Run, cause: Cause, at_ns: u64) {
        let (first, _) = self.held.remove(&slot).expect("the slot was in use");
        self.longest_ns = self.longest_ns.max(at_ns.saturating_sub(run.started_ns));
        self.ended.push((first, cause));
    }
}

#[test]
fn a_connection_keeps_its_order_and_every_frame_comes_out_once() {
    for seed in 0..2000 {
        let (rules, frames) = world(10_000 + seed, 150);
        let (_, out) = Pair::all(rules, &frames);
        let order: Vec<usize> = out
            .out
            .iter()
            .flat_map(|out| match out {
                Out::Alone(at, _) => vec![*at],
                Out::Run(frames) => frames.clone(),
            })
            .collect();
        let mut all = order.clone();
        all.sort_unstable();
        assert_eq!(all, (0..frames.len()).collect::<Vec<_>>(), "seed {seed}");
        let mut last: HashMap<Key, usize> = HashMap::new();
        for at in order {
            let key = match look(&frames[at], rules.verify) {
                Ok(segment) => segment.key,
                Err((_, Some(key))) => key,
                Err((_, None)) => continue,
            };
            if let Some(before) = last.insert(key, at) {
                assert!(before < at, "seed {seed}: frame {at} after {before}, {rules:?}");
            }
        }
    }
}

#[test]
fn nothing_waits_past_its_window_or_an_empty_input() {
    for seed in 0..1000 {
        let (rules, mut frames) = world(20_000 + seed, 150);
        // This is about a clock that goes forward.
        frames.sort_by_key(|frame| frame.time_ns);
        let mut seen = Seen::default();
        let mut coalescer = Coalescer::new(pair::limits(rules));
        for (at, frame) in frames.iter().enumerate() {
            coalescer.handle_frame(&pair::frame(frame), baton_coalesce::Checksums::Trust, frame.time_ns, at, &mut seen);
            assert!(seen.held.len() <= rules.cache);
            if let Window::Frames(length) = rules.window {
                assert_eq!(coalescer.is_empty(), seen.held.is_empty());
                assert!((at + 1) % length as usize != 0 || seen.held.is_empty(), "the window is over");
                assert!(seen.held.values().all(|(first, _)| at - first < length as usize));
            }
        }
        if let Window::Nanos(length) = rules.window {
            assert!(seen.longest_ns <= length, "{} of {length}", seen.longest_ns);
            // No frame has to come for the window to end.
            coalescer.expire(frames[frames.len() - 1].time_ns + length, &mut seen);
            assert!(seen.held.is_empty());
        }
        let before = seen.ended.len();
        let held = seen.held.len();
        coalescer.flush(u64::MAX, &mut seen);
        assert!(seen.held.is_empty() && coalescer.is_empty());
        assert!(seen.ended[before..].iter().all(|(_, cause)| *cause == Cause::Input));
        assert_eq!(seen.ended.len(), before + held);
        assert_eq!(coalescer.counts().frames_in(), frames.len() as u64);
        assert_eq!(coalescer.counts().frames_out() + coalescer.counts().eliminated(), frames.len() as u64);
    }
}
