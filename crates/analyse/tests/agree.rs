//! The library against a second, slow implementation of reader and coalescer, which shares no
//! code with it: on captures, and on random traffic in the form of captures.

mod make;
#[path = "../../coalesce/tests/slow/mod.rs"]
mod slow;
mod slow_read;
#[path = "../../coalesce/tests/traffic/mod.rs"]
mod traffic;

use baton_analyse::Analysis;
use baton_analyse::coalesce::{Checksums, Limits, Profile, Window};
use baton_analyse::gain::Gain;
use baton_analyse::grid::Grid;
use baton_analyse::read::Input;
use baton_analyse::study::{self, Progress};
use baton_analyse::sweep::{Axis, Sweep};
use baton_analyse::tally::Tally;
use slow::{Frame, Rules, Slow};
use std::io::Cursor;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

fn limits(rules: Rules) -> Limits {
    let base = Limits::of(if rules.rsc { Profile::Rsc } else { Profile::Ra });
    Limits {
        cache: NonZeroU32::new(rules.cache as u32).unwrap(),
        buffer: rules.buffer as u32,
        segments: rules.limit.map(|limit| NonZeroU32::new(limit as u32).unwrap()),
        window: match rules.window {
            slow::Window::Frames(frames) => Window::Frames(NonZeroU32::new(frames).unwrap()),
            slow::Window::Nanos(ns) => Window::Time(NonZeroU64::new(ns).unwrap()),
            slow::Window::End => Window::Input,
        },
        ..base
    }
}

fn checksums(rules: Rules) -> Checksums {
    if rules.verify { Checksums::Verify } else { Checksums::Trust }
}

fn analyse(input: Input, rules: Rules) -> Tally {
    let mut analysis = Analysis::new(limits(rules), checksums(rules));
    study::read(input, &mut analysis, &Progress::default()).unwrap();
    analysis.tally().clone()
}

fn slowly(frames: &[Frame], rules: Rules) -> slow::Report {
    let mut slow = Slow::new(rules);
    frames.iter().for_each(|frame| slow.frame(frame));
    slow.finish().0
}

fn assert_same(tally: &Tally, report: &slow::Report, what: &str) {
    let ours = (tally.frames_in, tally.frames_out, tally.eliminated, tally.runs);
    assert_eq!(ours, (report.frames_in, report.frames_out, report.eliminated, report.runs), "{what}");
    assert_eq!(tally.reasons, report.reasons, "{what}");
    // The other counts agree with these.
    let lengths: Vec<_> = tally.lengths.iter().collect();
    let runs: u64 = lengths.iter().map(|(_, _, runs)| runs).sum();
    let long: u64 = lengths.iter().filter(|(from, _, _)| *from > 1).map(|(_, _, runs)| runs).sum();
    assert_eq!((runs, long), (tally.causes.values().sum(), tally.runs), "{what}");
    assert_eq!(runs + tally.eliminated, tally.segments, "{what}");
    assert_eq!(tally.segments + tally.reasons.values().sum::<u64>(), tally.frames_in, "{what}");
}

/// Every rule moved from its default, together and apart.
fn all_rules() -> Vec<Rules> {
    let mut all = Vec::new();
    for rsc in [true, false] {
        let base = Rules {
            rsc,
            cache: 4,
            buffer: 8192,
            limit: (!rsc).then_some(20),
            window: slow::Window::Frames(20),
            verify: false,
        };
        all.extend([base, Rules { verify: true, ..base }]);
        all.extend([1, 2, 3, 16, 1000].map(|cache| Rules { cache, ..base }));
        all.extend([100, 1448, 4096, 65_536].map(|buffer| Rules { buffer, ..base }));
        all.extend([Some(1), Some(2), Some(5), Some(44), None].map(|limit| Rules { limit, ..base }));
        all.extend([1, 7, 64, 1000].map(|n| Rules { window: slow::Window::Frames(n), ..base }));
        all.extend([1000, 250_000, 10_000_000].map(|ns| Rules { window: slow::Window::Nanos(ns), ..base }));
        let wide = Rules { cache: 64, buffer: 65_536, limit: None, window: slow::Window::End, ..base };
        all.extend([wide, Rules { verify: true, ..wide }, Rules { cache: 2, ..wide }]);
        all.push(Rules { cache: 1, buffer: 2000, limit: Some(3), window: slow::Window::Nanos(70_000), ..base });
    }
    all
}

fn open(path: &Path) -> Input {
    Input::open(path, &Arc::new(AtomicU64::new(0))).unwrap()
}

#[test]
fn captures_give_what_the_rules_give() {
    let mut joined = 0;
    for path in slow_read::captures() {
        let frames = slow_read::frames(&path);
        for rules in all_rules() {
            let report = slowly(&frames, rules);
            assert_same(&analyse(open(&path), rules), &report, &format!("{}, {rules:?}", path.display()));
            joined += report.eliminated;
        }
    }
    assert!(joined > 1000, "the captures give nothing to join: {joined}");
}

fn gain(tally: &Tally) -> Gain {
    let Tally { frames_in, frames_out, eliminated, runs, .. } = *tally;
    Gain { frames_in, frames_out, eliminated, runs }
}

#[test]
fn a_sweep_gives_at_each_point_what_one_analysis_gives() {
    for path in slow_read::captures().iter().step_by(5) {
        for rsc in [true, false] {
            let rules = Rules { rsc, verify: false, ..all_rules()[if rsc { 0 } else { all_rules().len() / 2 }] };
            let mut sweep = Sweep::new(limits(rules), checksums(rules));
            study::read(open(path), &mut sweep, &Progress::default()).unwrap();
            for point in sweep.points().filter(|point| point.axis != Axis::Connections) {
                let value = point.value as usize;
                let rules = match point.axis {
                    Axis::Cache => Rules { cache: value, ..rules },
                    Axis::Buffer => Rules { buffer: value, ..rules },
                    Axis::Window => Rules { window: slow::Window::Frames(point.value), ..rules },
                    _ => Rules { limit: Some(value), ..rules },
                };
                let tally = analyse(open(path), rules);
                assert_eq!(point.gain, gain(&tally), "{}, {point:?}", path.display());
            }
        }
    }
}

#[test]
fn a_grid_gives_at_each_point_what_one_analysis_gives() {
    let mut joined = 0;
    for path in slow_read::captures().iter().step_by(3) {
        for rsc in [true, false] {
            let rules = all_rules()[if rsc { 0 } else { all_rules().len() / 2 }];
            let rules = Rules { window: slow::Window::Frames(64), ..rules };
            let mut grid = Grid::new(limits(rules), checksums(rules));
            study::read(open(path), &mut grid, &Progress::default()).unwrap();
            for cell in grid.cells() {
                let (cache, size) = (cell.entries as usize, cell.size as usize);
                let rules = match rsc {
                    true => Rules { cache, buffer: size, ..rules },
                    false => Rules { cache, limit: Some(size), ..rules },
                };
                let tally = analyse(open(path), rules);
                assert_eq!(cell.gain, gain(&tally), "{}, {cell:?}", path.display());
                joined += cell.gain.eliminated;
            }
        }
    }
    assert!(joined > 1000, "the captures give nothing to join: {joined}");
}

#[test]
fn a_sweep_of_connections_looks_at_the_first_ones_alone() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/pcaps/ipv6-four-http-streams.pcap");
    let frames = slow_read::frames(&path);
    let rules = all_rules()[0];
    let mut sweep = Sweep::new(limits(rules), Checksums::Trust);
    study::read(open(&path), &mut sweep, &Progress::default()).unwrap();
    // The ports of a connection, in either direction, by order of appearance.
    let ports = |frame: &Frame| {
        let mut ports = [frame.bytes[40..42].to_vec(), frame.bytes[42..44].to_vec()];
        ports.sort();
        ports
    };
    let mut known = Vec::new();
    for frame in &frames {
        if !known.contains(&ports(frame)) {
            known.push(ports(frame));
        }
    }
    assert_eq!(known.len(), 4);
    for point in sweep.points().filter(|point| point.axis == Axis::Connections) {
        let first = &known[..known.len().min(point.value as usize)];
        let some: Vec<Frame> = frames.iter().filter(|frame| first.contains(&ports(frame))).cloned().collect();
        let report = slowly(&some, rules);
        assert_eq!((point.gain.frames_in, point.gain.eliminated), (report.frames_in, report.eliminated), "{point:?}");
    }
}

#[test]
fn random_traffic_in_captures_gives_what_the_rules_give() {
    for seed in 0..300 {
        let mut traffic = traffic::Traffic::new(seed);
        let rules = traffic::rules(&mut traffic.dice);
        let mut frames = Vec::new();
        while frames.len() < 300 {
            traffic.burst(&mut frames);
        }
        let order = make::Order { big: seed % 2 == 0 };
        let mut pcap = make::pcap_header(order, make::NANOS, frames[0].link_type);
        let link = frames[0].link_type as u16;
        let mut pcapng = [make::section(order), make::interface(order, link, 0, &[(9, &[9])])].concat();
        for frame in &frames {
            assert_eq!(frame.link_type, frames[0].link_type);
            let (seconds, ns) = (frame.time_ns / 1_000_000_000, frame.time_ns % 1_000_000_000);
            let wire_len = frame.wire_len as u32;
            pcap.extend(make::pcap_record(order, seconds as u32, ns as u32, wire_len, &frame.bytes));
            pcapng.extend(make::enhanced(order, 0, frame.time_ns, wire_len, &frame.bytes));
        }
        let report = slowly(&frames, rules);
        for capture in [pcap, pcapng] {
            let tally = analyse(Input::read(Cursor::new(capture)).unwrap(), rules);
            assert_same(&tally, &report, &format!("seed {seed}, {rules:?}"));
        }
    }
}

#[test]
fn a_sweep_of_all_connections_looks_at_the_whole_capture() {
    let mut of_none = 0;
    let rules = all_rules()[0];
    for path in slow_read::captures() {
        let points = [(Axis::Connections, u32::MAX), (Axis::Connections, u32::MAX - 1)];
        let mut sweep = Sweep::of(limits(rules), Checksums::Trust, points);
        study::read(open(&path), &mut sweep, &Progress::default()).unwrap();
        let report = slowly(&slow_read::frames(&path), rules);
        let points: Vec<_> = sweep.points().collect();
        let (all, connections) = (points[0], points[1]);
        assert_eq!(
            (all.gain.frames_in, all.gain.eliminated),
            (report.frames_in, report.eliminated),
            "{}",
            path.display()
        );
        of_none += all.gain.frames_in - connections.gain.frames_in;
    }
    assert_ne!(of_none, 0, "no capture has a frame that belongs to no connection");
}
