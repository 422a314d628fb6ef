//! Tests steering frame by frame. A TAP device represents the wire, so a test decides about every
//! byte that arrives from it.

use crate::frames::{ELSEWHERE, SEGMENT, TCP, frame, ipv4, ipv6, next, send, steered, tuple};
use baton_kernel::steer::{Counters, Kind, SteeredTuple, Steering};
use baton_testkit::{need_program, need_root};

const UDP: u8 = 17;

/// An ICMP error of this type about `packet`. The steering program ignores checksums.
fn error(kind: u8, packet: &[u8]) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 5, 20], packet].concat()
}

/// A segment of ours as an error quotes it: 8 bytes of TCP, in the direction in which it was sent.
fn quoted(mut packet: Vec<u8>, address: usize) -> Vec<u8> {
    let addresses = packet.len() - SEGMENT.len() - 2 * address;
    packet[addresses..addresses + 2 * address].rotate_left(address);
    let ports = packet.len() - SEGMENT.len();
    packet[ports..ports + 4].rotate_left(2);
    packet.truncate(ports + 8);
    packet
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

fn icmp_cases(us: [u8; 6]) -> Vec<(&'static str, Vec<u8>, Verdict)> {
    const ICMP: u8 = 1;
    const ICMPV6: u8 = 58;
    let v4 = |payload: &[u8]| frame(us, &[], 0x0800, &ipv4(ICMP, 0, 0, payload));
    let v6 = |payload: &[u8]| frame(us, &[], 0x86dd, &ipv6(ICMPV6, payload));
    let ours = quoted(ipv4(TCP, 0x4000, 0, &SEGMENT), 4);
    let ours6 = quoted(ipv6(TCP, &SEGMENT), 16);
    let mut other_port = ours.clone();
    other_port[23] = 81;
    let mut options = ours.clone();
    options[0] = 0x4f;
    options.splice(20..20, [1; 40]);
    let mut short = ours.clone();
    short[0] = 0x44;
    let with = |at: usize, byte: u8, quote: &[u8]| {
        let mut quote = quote.to_vec();
        quote[at] = byte;
        quote
    };
    let fragment = |offset| frame(us, &[], 0x0800, &ipv4(ICMP, offset, 0, &error(3, &ours)));
    vec![
        ("unreachable", v4(&error(3, &ours)), hit),
        ("time exceeded", v4(&error(11, &ours)), hit),
        ("parameter problem", v4(&error(12, &ours)), hit),
        ("more than 8 bytes quoted", v4(&error(3, &[&ours[..], &[0; 500]].concat())), hit),
        ("options quoted", v4(&error(3, &options)), hit),
        ("options, of both", frame(us, &[], 0x0800, &ipv4(ICMP, 0, 40, &error(3, &options))), hit),
        ("in a VLAN", frame(us, &[(0x8100, 5)], 0x0800, &ipv4(ICMP, 0, 0, &error(3, &ours))), hit),
        ("in another VLAN", frame(us, &[(0x8100, 6)], 0x0800, &ipv4(ICMP, 0, 0, &error(3, &ours))), passed),
        ("source quench", v4(&error(4, &ours)), passed),
        ("redirect", v4(&error(5, &ours)), passed),
        ("an echo", v4(&error(8, &ours)), passed),
        ("about another port", v4(&error(3, &other_port)), passed),
        ("about what the peer sent", v4(&error(3, &ipv4(TCP, 0, 0, &SEGMENT))), passed),
        ("about UDP", v4(&error(3, &with(9, UDP, &ours))), passed),
        ("about a later fragment", v4(&error(3, &with(7, 1, &ours))), passed),
        ("about another version", v4(&error(3, &with(0, 0x65, &ours))), passed),
        ("a quoted header that is too short", v4(&error(3, &short)), passed),
        ("a quotation cut off", v4(&error(3, &ours)[..8 + 27]), passed),
        ("quoted options cut off", v4(&error(3, &options)[..8 + 60]), passed),
        ("a quoted header cut off", v4(&error(3, &ours)[..8 + 19]), passed),
        ("an error cut off", v4(&error(3, &[])[..7]), passed),
        ("an error's first fragment", fragment(0x2000), passed),
        ("an error's last fragment", fragment(100), passed),
        ("IPv6, unreachable", v6(&error(1, &ours6)), hit),
        ("IPv6, too big", v6(&error(2, &ours6)), hit),
        ("IPv6, time exceeded", v6(&error(3, &ours6)), hit),
        ("IPv6, parameter problem", v6(&error(4, &ours6)), hit),
        ("IPv6, an echo", v6(&error(128, &ours6)), passed),
        ("IPv6, no type", v6(&error(0, &ours6)), passed),
        ("IPv6, about UDP", v6(&error(2, &with(6, UDP, &ours6))), passed),
        ("IPv6, about another version", v6(&error(2, &with(0, 0x45, &ours6))), passed),
        ("IPv6, a quotation cut off", v6(&error(2, &ours6)[..8 + 47]), passed),
    ]
}

#[test]
fn each_frame_gets_one_verdict_and_a_hit_arrives_as_it_was() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        let (_netns, mut wire, us, mut steering, mut port) = steered(kind);
        for vlans in [[0, 0], [5, 0], [5, 7]] {
            steering.insert(SteeredTuple { tuple: tuple(false), vlans }).unwrap();
        }
        steering.insert(tuple(true)).unwrap();
        let mut expected = Counters::default();
        for (name, frame, verdict) in cases(us).into_iter().chain(icmp_cases(us)) {
            send(&mut wire, &frame);
            verdict(&mut expected);
            assert_eq!(steering.counters().unwrap(), expected, "{kind:?}: {name}");
            if verdict as usize == hit as Verdict as usize {
                assert_eq!(next(&mut port), frame, "{kind:?}: {name}");
            }
        }
        // A VLAN id of 0 means no VLAN, so the connection is the same.
        send(&mut wire, &frame(us, &[(0x8100, 0x6000)], 0x0800, &ipv4(TCP, 0, 0, &SEGMENT)));
        next(&mut port);
        // Only visible because the interface sees other hosts' frames; XDP cannot tell.
        if kind == Kind::Tc {
            let before = steering.counters().unwrap();
            send(&mut wire, &frame(ELSEWHERE, &[], 0x0800, &ipv4(TCP, 0, 0, &SEGMENT)));
            assert_eq!(steering.counters().unwrap(), Counters { passed: before.passed + 1, ..before });
        }
    }
}

#[test]
fn while_no_connection_is_steered_frames_pass_unexamined() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        let (_netns, mut wire, us, mut steering, mut port) = steered(kind);
        let segment = frame(us, &[], 0x0800, &ipv4(TCP, 0, 0, &SEGMENT));
        let cut_off = frame(us, &[], 0x0800, &ipv4(TCP, 0, 0, &SEGMENT)[..39]);
        let mut expected = Counters::default();
        let mut judge = |steering: &Steering, frame: &[u8], verdict: Verdict| {
            send(&mut wire, frame);
            verdict(&mut expected);
            assert_eq!(steering.counters().unwrap(), expected, "{kind:?}");
        };
        for _ in 0..2 {
            judge(&steering, &cut_off, passed);
            judge(&steering, &segment, passed);
            steering.hold_back(tuple(false)).unwrap();
            judge(&steering, &segment, |c| c.held_back += 1);
            // The entry changes, and there is still one.
            steering.insert(tuple(false)).unwrap();
            judge(&steering, &segment, hit);
            assert_eq!(next(&mut port), segment);
            assert!(steering.remove(tuple(false)).unwrap() && !steering.remove(tuple(false)).unwrap());
        }
        judge(&steering, &cut_off, passed);
        // Another connection than the frame's.
        steering.insert(tuple(true)).unwrap();
        judge(&steering, &cut_off, malformed);
        judge(&steering, &segment, passed);
    }
}

#[test]
fn a_burst_of_a_thousand_connections_waits_for_the_engine() {
    need_root!();
    need_program!("clang");
    let (_netns, mut wire, us, mut steering, mut port) = steered(Kind::Tc);
    steering.insert(tuple(false)).unwrap();
    let frame = frame(us, &[], 0x0800, &ipv4(TCP, 0, 0, &SEGMENT));
    for _ in 0..4000 {
        send(&mut wire, &frame);
    }
    for number in 0..4000 {
        assert_eq!(next(&mut port), frame, "frame {number}");
    }
}
