//! What an engine writes, frame by frame: a TAP device stands for the wire, so that a test sees
//! every byte that leaves.

#[path = "common/frames.rs"]
mod frames;

use baton_host::steer::{Kind, Options, SteeredTuple, Steering};
use baton_port::FrameIo;
use baton_testkit::{need_program, need_root};
use baton_wire::addr::Tuple;
use frames::{ELSEWHERE, Frames, SEGMENT, TCP, frame, ipv4, next, scene, send, tuple};

#[test]
fn what_the_engine_sends_leaves_as_it_was() {
    need_root!();
    need_program!("clang");
    let (netns, mut wire, _) = scene();
    let mut steering = netns.enter(|| Steering::attach("wire", Kind::Tc, Options::default())).unwrap();
    let mut port = netns.enter(|| steering.open_port()).unwrap();
    steering.set_engine(true).unwrap();
    for vlans in [[0, 0], [5, 0], [5, 7]] {
        // Seen from the other side, so that the same frames serve.
        let Tuple { local, remote, local_port, remote_port } = tuple(false);
        let tuple = Tuple { local: remote, remote: local, local_port: remote_port, remote_port: local_port };
        steering.insert(SteeredTuple { tuple, vlans }).unwrap();
    }
    let packet = ipv4(TCP, 0, 0, &SEGMENT);
    for tags in [&[][..], &[(0x8100, 5)], &[(0x88a8, 5), (0x8100, 7)]] {
        let frame = frame(ELSEWHERE, tags, 0x0800, &packet);
        send(&mut port, &frame);
        assert_eq!(next(&mut wire), frame, "{tags:?}");
    }
    let sent = steering.counters().unwrap();
    assert_eq!((sent.sent, sent.foreign), (3, 0));
    // Neither what cannot be matched nor what is in another VLAN, nor errors.
    let fragment = ipv4(TCP, 0x2000, 0, &SEGMENT);
    // ICMP: unreachable.
    let error = ipv4(1, 0, 0, &[&[3, 0, 0, 0, 0, 0, 5, 20], &packet[..]].concat());
    let foreign =
        [(&[][..], &fragment), (&[(0x8100, 6)], &packet), (&[(0x8100, 5), (0x8100, 6)], &packet), (&[], &error)];
    for (tags, packet) in foreign {
        send(&mut port, &frame(ELSEWHERE, tags, 0x0800, packet));
    }
    let sent = steering.counters().unwrap();
    assert_eq!((sent.sent, sent.foreign), (3, 4));
    let mut frames = Frames::default();
    wire.receive(10, &mut frames).unwrap();
    assert_eq!(frames.0, Vec::<Vec<u8>>::new());
}
