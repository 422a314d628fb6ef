//! Steering frame by frame: a TAP device stands for the wire, so that a test decides about
//! every byte that comes from it and sees every byte that leaves.

mod common;

use std::time::Duration;

use baton_host::steer::{Counters, Kind, Options, SteeredTuple, Steering};
use baton_port::{FrameIo, FrameSink, RxFrame, Tap, TapOptions, TxMeta, WaitSet, Waitable, link};
use baton_testkit::{Netns, need_program, need_root};
use baton_wire::addr::Tuple;

const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const ELSEWHERE: [u8; 6] = [2, 0, 0, 0, 0, 8];
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Twenty bytes of TCP: from the peer's port 80 to ours, 1000.
const SEGMENT: [u8; 20] = [0, 80, 3, 232, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0];

/// An Ethernet frame from the peer with `tags` (type and id).
fn frame(to: [u8; 6], tags: &[(u16, u16)], ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = [to, PEER].concat();
    for (kind, id) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(id.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame
}

fn ipv4(protocol: u8, fragment: u16, options: usize, payload: &[u8]) -> Vec<u8> {
    let header = 20 + options;
    let mut packet = vec![0x40 | (header / 4) as u8, 0];
    packet.extend(((header + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend([10, 66, 0, 2, 10, 66, 0, 1]);
    packet.extend(vec![1; options]);
    packet.extend(payload);
    packet
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    for last in [2, 1] {
        packet.extend([0xfd, 0x66, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    packet.extend(payload);
    packet
}

/// What arrives.
#[derive(Default)]
struct Frames(Vec<Vec<u8>>);

impl FrameSink for Frames {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        self.0.extend(frames.iter().map(|f| f.data.to_vec()));
    }
}

/// The next frame.
fn next<P: FrameIo + Waitable>(port: &mut P) -> Vec<u8> {
    let mut frames = Frames::default();
    let mut set = WaitSet::new();
    port.poll_fds(&mut set);
    for _ in 0..100 {
        if port.prepare_wait() {
            set.wait(Some(Duration::from_millis(50))).unwrap();
            port.finish_wait();
        }
        if port.receive(1, &mut frames).unwrap() == 1 {
            return frames.0.remove(0);
        }
    }
    panic!("no frame");
}

fn send<P: FrameIo>(port: &mut P, frame: &[u8]) {
    port.slot(frame.len()).expect("room").copy_from_slice(frame);
    port.commit(frame.len(), TxMeta::default());
    port.flush().unwrap();
}

/// A namespace with an interface `wire`, of which we are the other end.
fn scene() -> (Netns, Tap, [u8; 6]) {
    let netns = Netns::new("steer");
    let (tap, address) = netns.enter(|| {
        let tap = Tap::open("wire", TapOptions { vnet_hdr: false, merge: false }).unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/wire/disable_ipv6", "1").unwrap();
        link::set_up("wire").unwrap();
        (tap, link::address("wire").unwrap())
    });
    (netns, tap, address)
}

fn tuple(ipv6: bool) -> Tuple {
    let ends = if ipv6 { ["[fd66::1]:1000", "[fd66::2]:80"] } else { ["10.66.0.1:1000", "10.66.0.2:80"] };
    let [local, remote] = ends.map(|end| end.parse().unwrap());
    Tuple::new(local, remote)
}

type Verdict = fn(&mut Counters);

fn hit(c: &mut Counters) {
    c.hit += 1;
}

fn passed(c: &mut Counters) {
    c.passed += 1;
}

fn fragment(c: &mut Counters) {
    c.fragment += 1;
}

fn malformed(c: &mut Counters) {
    c.malformed += 1;
}

fn cases(us: [u8; 6]) -> Vec<(&'static str, Vec<u8>, Verdict)> {
    let v4 = |packet: &[u8]| frame(us, &[], 0x0800, packet);
    let v6 = |packet: &[u8]| frame(us, &[], 0x86dd, packet);
    let plain = ipv4(TCP, 0, 0, &SEGMENT);
    let tagged = |tags: &[(u16, u16)]| frame(us, tags, 0x0800, &plain);
    let mut other_port = SEGMENT;
    other_port[1] = 81;
    let mut short_header = plain.clone();
    short_header[0] = 0x44;
    let mut version = plain.clone();
    version[0] = 0x55;
    vec![
        ("IPv4", v4(&plain), hit),
        ("IPv4, may not be fragmented", v4(&ipv4(TCP, 0x4000, 0, &SEGMENT)), hit),
        ("IPv4 with options", v4(&ipv4(TCP, 0, 12, &SEGMENT)), hit),
        ("IPv4 with all options", v4(&ipv4(TCP, 0, 40, &SEGMENT)), hit),
        ("IPv6", v6(&ipv6(TCP, &SEGMENT)), hit),
        ("a tag", tagged(&[(0x8100, 5)]), hit),
        ("a tag with a priority", tagged(&[(0x8100, 0x6005)]), hit),
        ("two tags", tagged(&[(0x88a8, 5), (0x8100, 7)]), hit),
        ("another tag", tagged(&[(0x8100, 6)]), passed),
        ("tags the other way round", tagged(&[(0x8100, 7), (0x8100, 5)]), passed),
        ("three tags", tagged(&[(0x88a8, 5), (0x8100, 7), (0x8100, 9)]), passed),
        ("UDP", v4(&ipv4(UDP, 0, 0, &SEGMENT)), passed),
        ("another port", v4(&ipv4(TCP, 0, 0, &other_port)), passed),
        ("ARP", frame(us, &[], 0x0806, &[0; 28]), passed),
        ("IPv6 with a hop-by-hop header", v6(&ipv6(0, &[&[TCP, 0, 1, 4, 0, 0, 0, 0], &SEGMENT[..]].concat())), passed),
        ("UDP over IPv6", v6(&ipv6(UDP, &SEGMENT)), passed),
        ("first fragment", v4(&ipv4(TCP, 0x2000, 0, &SEGMENT)), fragment),
        ("last fragment", v4(&ipv4(TCP, 100, 0, &SEGMENT)), fragment),
        ("IPv6 fragment", v6(&ipv6(44, &[&[TCP, 0, 0, 1, 0, 0, 0, 0], &SEGMENT[..]].concat())), fragment),
        ("IPv4 header cut off", v4(&plain[..19]), malformed),
        ("IPv4 header too short", v4(&short_header), malformed),
        ("IPv4 of another version", v4(&version), malformed),
        ("TCP header cut off", v4(&plain[..39]), malformed),
        ("IPv4 options cut off", v4(&ipv4(TCP, 0, 40, &SEGMENT)[..70]), malformed),
        ("IPv6 header cut off", v6(&ipv6(TCP, &SEGMENT)[..39]), malformed),
        ("TCP header cut off, IPv6", v6(&ipv6(TCP, &SEGMENT)[..59]), malformed),
        ("IPv6 of another version", v6(&plain), malformed),
    ]
}

#[test]
fn each_frame_gets_one_verdict_and_a_hit_arrives_as_it_was() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        let (netns, mut wire, us) = scene();
        let mut steering = netns.enter(|| Steering::attach("wire", kind, Options::default())).unwrap();
        let mut port = netns.enter(|| steering.open_port()).unwrap();
        steering.set_engine(true).unwrap();
        for vlans in [[0, 0], [5, 0], [5, 7]] {
            steering.insert(SteeredTuple { tuple: tuple(false), vlans }).unwrap();
        }
        steering.insert(tuple(true)).unwrap();
        let mut expected = Counters::default();
        for (name, frame, verdict) in cases(us) {
            send(&mut wire, &frame);
            verdict(&mut expected);
            assert_eq!(steering.counters().unwrap(), expected, "{kind:?}: {name}");
            if verdict as usize == hit as Verdict as usize {
                assert_eq!(next(&mut port), frame, "{kind:?}: {name}");
            }
        }
        // A tag of a VLAN that is none leaves the connection what it is.
        send(&mut wire, &frame(us, &[(0x8100, 0x6000)], 0x0800, &ipv4(TCP, 0, 0, &SEGMENT)));
        next(&mut port);
        // Seen only because of what else is on the wire; XDP cannot tell.
        if kind == Kind::Tc {
            let before = steering.counters().unwrap();
            send(&mut wire, &frame(ELSEWHERE, &[], 0x0800, &ipv4(TCP, 0, 0, &SEGMENT)));
            assert_eq!(steering.counters().unwrap(), Counters { passed: before.passed + 1, ..before });
        }
    }
}

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
    // Neither what cannot be matched nor what is in another VLAN.
    let fragment = ipv4(TCP, 0x2000, 0, &SEGMENT);
    for (tags, packet) in [(&[][..], &fragment), (&[(0x8100, 6)], &packet), (&[(0x8100, 5), (0x8100, 6)], &packet)] {
        send(&mut port, &frame(ELSEWHERE, tags, 0x0800, packet));
    }
    let sent = steering.counters().unwrap();
    assert_eq!((sent.sent, sent.foreign), (3, 3));
    let mut frames = Frames::default();
    wire.receive(10, &mut frames).unwrap();
    assert_eq!(frames.0, Vec::<Vec<u8>>::new());
}
