//! Tests what ports know of when frames arrived, frame by frame. A TAP device represents the wire.

use crate::frames::{SEGMENT, TCP, frame, ipv4, ipv6, scene, send, steered, tuple};
use baton_kernel::steer::{Kind, Options, SteeredTuple, Steering};
use baton_port::notes::Notes;
use baton_port::{Arrival, FrameIo, FrameSink, RxFrame, SteeredPort, WaitSet, Waitable};
use baton_testkit::{need_program, need_root};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::Duration;

/// How long frames wait for the port.
const WAIT: Duration = Duration::from_millis(20);

/// The arrivals of the frames that come.
struct Arrivals(Vec<Arrival>);

impl FrameSink for Arrivals {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        self.0.extend(frames.iter().map(|frame| frame.meta.arrived));
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The arrival of the next frame.
#[track_caller]
fn next(port: &mut SteeredPort) -> Arrival {
    let mut arrivals = Arrivals(Vec::new());
    let mut set = WaitSet::new();
    port.poll_fds(&mut set);
    for _ in 0..100 {
        if port.prepare_wait() {
            set.wait(Some(Duration::from_millis(50))).unwrap();
            port.finish_wait();
        }
        if port.receive(1, &mut arrivals).unwrap() == 1 {
            return arrivals.0[0];
        }
    }
    panic!("no frame");
}

/// Has the port read the notes that begin.
fn begin(steering: &mut Steering, number: u32, port: &mut SteeredPort) -> OwnedFd {
    let file = steering.begin_notes(number).unwrap();
    port.read_notes(Some(Notes::open(&file).unwrap()));
    file
}

/// A segment with this sequence number.
fn segment(seq: u32) -> [u8; 20] {
    let mut segment = SEGMENT;
    segment[4..8].copy_from_slice(&seq.to_be_bytes());
    segment
}

/// The frames of a segment over IPv4 and IPv6, with tags, with options.
fn frames(us: [u8; 6], seq: u32) -> Vec<Vec<u8>> {
    let of = |seq| ipv4(TCP, 0, 0, &segment(seq));
    vec![
        frame(us, &[], 0x0800, &of(seq)),
        frame(us, &[], 0x0800, &ipv4(TCP, 0, 40, &segment(seq + 1))),
        frame(us, &[], 0x86dd, &ipv6(TCP, &segment(seq + 2))),
        frame(us, &[(0x8100, 5)], 0x0800, &of(seq + 3)),
        frame(us, &[(0x88a8, 5), (0x8100, 7)], 0x0800, &of(seq + 4)),
    ]
}

#[test]
fn a_port_knows_when_each_frame_arrived_while_that_is_noted() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        let (_netns, mut wire, us, mut steering, mut port) = steered(kind);
        for vlans in [[0, 0], [5, 0], [5, 7]] {
            steering.insert(SteeredTuple { tuple: tuple(false), vlans }).unwrap();
        }
        steering.insert(tuple(true)).unwrap();
        for frame in frames(us, 1000) {
            send(&mut wire, &frame);
            assert_eq!(next(&mut port), Arrival::default(), "{kind:?}: nobody asked");
        }
        for round in 2..4 {
            let file = begin(&mut steering, 0, &mut port);
            for (at, frame) in frames(us, 1000 * round).into_iter().enumerate() {
                let before = now();
                send(&mut wire, &frame);
                let sent = now();
                sleep(WAIT);
                let arrival = next(&mut port);
                let taken = now();
                let waited = arrival.waited(taken).unwrap_or_else(|| panic!("{kind:?}: frame {at} has no note"));
                assert!((taken - sent..=taken - before).contains(&waited), "{kind:?}: frame {at}: {waited} ns");
                // It came again, and has been on its way since it came first.
                send(&mut wire, &frame);
                assert_eq!(next(&mut port), arrival, "{kind:?}: frame {at}");
            }
            // An error that quotes a segment of ours is not a segment.
            let quoted = frame(us, &[], 0x0800, &ipv4(1, 0, 0, &[&[3u8, 3, 0, 0, 0, 0, 0, 0][..], &turned()].concat()));
            send(&mut wire, &quoted);
            assert_eq!(next(&mut port), Arrival::default(), "{kind:?}: an error");
            drop(file);
            steering.end_notes(0).unwrap();
            for frame in frames(us, 1000 * round + 500) {
                send(&mut wire, &frame);
                assert_eq!(next(&mut port), Arrival::default(), "{kind:?}: it is over");
            }
        }
    }
}

/// An IPv4 packet of ours, as an error quotes it.
fn turned() -> Vec<u8> {
    let mut packet = ipv4(TCP, 0, 0, &SEGMENT);
    packet[12..20].rotate_left(4);
    packet[20..24].rotate_left(2);
    packet.truncate(28);
    packet
}

#[test]
fn an_engine_sees_the_notes_of_its_own_frames_only() {
    need_root!();
    need_program!("clang");
    let (netns, mut wire, us) = scene();
    let mut steering = netns.enter(|| Steering::attach("wire", Kind::Tc, Options::default())).unwrap();
    let mut port = netns.enter(|| steering.open_port()).unwrap();
    steering.set_engine(true).unwrap();
    let mut other = netns.enter(|| steering.open_engine(7)).unwrap();
    // That notes begin before an engine is there does not make it one that is there.
    let theirs = begin(&mut steering, 7, &mut other);
    steering.insert_for(tuple(true), 7).unwrap();
    steering.insert(tuple(false)).unwrap();
    let own = frame(us, &[], 0x0800, &ipv4(TCP, 0, 0, &segment(1)));
    let others = |seq| frame(us, &[], 0x86dd, &ipv6(TCP, &segment(seq)));
    let dropped = steering.counters().unwrap().no_engine;
    send(&mut wire, &others(1));
    assert_eq!(steering.counters().unwrap().no_engine, dropped + 1);
    steering.set_engine_up(7, true).unwrap();
    send(&mut wire, &others(2));
    assert!(next(&mut other).waited(now()).is_some());

    // The engine of the interface has notes in another array.
    send(&mut wire, &own);
    assert_eq!(next(&mut port), Arrival::default());
    let ours = begin(&mut steering, 0, &mut port);
    let own = frame(us, &[], 0x0800, &ipv4(TCP, 0, 0, &segment(3)));
    send(&mut wire, &own);
    assert!(next(&mut port).waited(now()).is_some());
    port.read_notes(Some(Notes::open(&theirs).unwrap()));
    let own = frame(us, &[], 0x0800, &ipv4(TCP, 0, 0, &segment(4)));
    send(&mut wire, &own);
    assert_eq!(next(&mut port), Arrival::default());

    // An engine that has gone is not noted any more, and its successor has nothing of its notes.
    steering.close_engine(7).unwrap();
    let mut other = netns.enter(|| steering.open_engine(7)).unwrap();
    steering.set_engine_up(7, true).unwrap();
    other.read_notes(Some(Notes::open(&theirs).unwrap()));
    send(&mut wire, &others(5));
    assert_eq!(next(&mut other), Arrival::default());

    // Another file has no notes.
    drop(ours);
    assert!(Notes::open(File::open("/dev/null").unwrap()).is_err());
}
