//! Each link type, with what it may carry, gives the same verdicts.

mod make;

use baton_analyse::Analysis;
use baton_analyse::classifier::Classifier;
use baton_analyse::coalesce::{Checksums, Limits, Profile};
use baton_analyse::flows::Sort;
use baton_analyse::link_type;
use baton_analyse::read::Input;
use baton_analyse::study::{self, Progress};
use baton_analyse::tally::Tally;
use make::{ethernet, segment, segment_v6};
use std::io::Cursor;

fn analyse(capture: Vec<u8>) -> Tally {
    let mut analysis = Analysis::new(Limits::of(Profile::Rsc), Checksums::Trust);
    study::read(Input::read(Cursor::new(capture)).unwrap(), &mut analysis, &Progress::default()).unwrap();
    analysis.tally().clone()
}

/// Three segments of a connection behind a link header, and a fourth cut within it.
fn joins(link: u16, header: &[u8], segment: fn(u16, u32, usize) -> Vec<u8>) {
    let mut frames: Vec<Vec<u8>> =
        [1, 101, 201].map(|seq| [header, &segment(5000, seq, 100)].concat()).into_iter().collect();
    if !header.is_empty() {
        frames.push(header[..header.len() - 1].to_vec());
    }
    let tally = analyse(make::pcap(link.into(), &frames));
    assert_eq!((tally.frames_in, tally.eliminated, tally.runs), (frames.len() as u64, 2, 1), "link type {link}");
    let not_ip = frames.len() as u64 - 3;
    assert_eq!(tally.reasons.get("not_ip").copied().unwrap_or(0), not_ip, "link type {link}");
    assert!(tally.unknown_links.iter().next().is_none());
}

#[test]
fn ethernet_with_and_without_tags() {
    let header = |tags: &[[u8; 4]], ether_type| ethernet(tags, ether_type, &[]);
    for tags in [
        &[][..],
        &[[0x81, 0, 0, 7]],
        &[[0x88, 0xa8, 0, 9], [0x81, 0, 0x20, 7]],
        &[[0x88, 0xa8, 0, 9], [0x81, 0, 0, 7], [0x81, 0, 0, 8]],
    ] {
        joins(link_type::ETHERNET, &header(tags, 0x0800), segment);
        joins(link_type::ETHERNET, &header(tags, 0x86dd), segment_v6);
    }
}

#[test]
fn tags_of_before_the_standard_are_no_tags() {
    // The types of 802.1Q and 802.1ad are read. A frame with another type is of another protocol, as for Linux.
    for outer in [[0x91, 0, 0, 9], [0x92, 0, 0, 9], [0x98, 0, 0, 9]] {
        for tags in [&[outer][..], &[outer, [0x81, 0, 0, 7]], &[[0x81, 0, 0, 7], outer]] {
            let tally = analyse(make::pcap(1, &[ethernet(tags, 0x0800, &segment(1, 1, 100))]));
            assert_eq!(tally.reasons.into_iter().collect::<Vec<_>>(), [("not_ip", 1)], "{tags:x?}");
        }
    }
    let tally = analyse(make::pcap(1, &[ethernet(&[[0x88, 0xa8, 0, 9]], 0x0800, &segment(1, 1, 100))]));
    assert_eq!(tally.segments, 1);
}

#[test]
fn each_reserved_bit_of_tcp_is_a_flag_that_bypasses() {
    for bit in [0x08, 0x04, 0x02, 0x01] {
        let mut packet = segment(1, 1, 100);
        packet[20 + 12] |= bit;
        let tally = analyse(make::pcap(1, &[ethernet(&[], 0x0800, &packet)]));
        assert_eq!(tally.reasons.into_iter().collect::<Vec<_>>(), [("flags", 1)], "{bit:x}");
    }
}

#[test]
fn raw_ip() {
    for link in [link_type::RAW, link_type::RAW_BSD, link_type::RAW_OPENBSD] {
        joins(link, &[], segment);
        joins(link, &[], segment_v6);
    }
    joins(link_type::IPV4, &[], segment);
    joins(link_type::IPV6, &[], segment_v6);
}

#[test]
fn one_version_means_that_version() {
    let tally = analyse(make::pcap(link_type::IPV6.into(), &[segment(1, 1, 100)]));
    assert_eq!(tally.reasons.get("malformed"), Some(&1));
}

#[test]
fn null_in_either_byte_order_and_loop() {
    for family in [[2, 0, 0, 0], [0, 0, 0, 2]] {
        joins(link_type::NULL, &family, segment);
    }
    for family in [10, 24, 28, 30] {
        joins(link_type::NULL, &[family, 0, 0, 0], segment_v6);
        joins(link_type::NULL, &[0, 0, 0, family], segment_v6);
        joins(link_type::LOOP, &[0, 0, 0, family], segment_v6);
    }
    joins(link_type::LOOP, &[0, 0, 0, 2], segment);
    let tally = analyse(make::pcap(link_type::LOOP.into(), &[[&[2, 0, 0, 0][..], &segment(1, 1, 9)].concat()]));
    assert_eq!(tally.reasons.get("not_ip"), Some(&1));
}

#[test]
fn linux_cooked() {
    let start = [0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
    joins(link_type::LINUX_SLL, &[&start[..], &[8, 0]].concat(), segment);
    joins(link_type::LINUX_SLL, &[&start[..], &[0x86, 0xdd]].concat(), segment_v6);
    joins(link_type::LINUX_SLL, &[&start[..], &[0x81, 0, 0, 5, 8, 0]].concat(), segment);
    let rest = [0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
    joins(link_type::LINUX_SLL2, &[&[8, 0], &rest[..]].concat(), segment);
    joins(link_type::LINUX_SLL2, &[&[0x86, 0xdd], &rest[..]].concat(), segment_v6);
    joins(link_type::LINUX_SLL2, &[&[0x81, 0], &rest[..], &[0, 5, 8, 0]].concat(), segment);
}

#[test]
fn a_link_type_that_is_not_known_is_counted() {
    let tally = analyse(make::pcap(147, &[segment(1, 1, 9), segment(1, 10, 9)]));
    assert_eq!(tally.reasons.get("not_ip"), Some(&2));
    assert_eq!(tally.unknown_links.iter().collect::<Vec<_>>(), [(147, 2)]);
}

#[test]
fn lengths_come_from_the_ip_header_and_of_0_from_the_wire() {
    // Snapped behind the TCP header; what follows is on the wire only.
    let whole: Vec<Vec<u8>> = [1, 101, 201].map(|seq| ethernet(&[], 0x0800, &segment(7, seq, 100))).into();
    let order = make::Order { big: false };
    let mut snapped = make::pcap_header(order, make::MICROS, 1);
    let mut zero = snapped.clone();
    for frame in &whole {
        snapped.extend(make::pcap_record(order, 0, 0, frame.len() as u32, &frame[..54]));
        let mut without = frame[..54].to_vec();
        without[16..18].copy_from_slice(&[0, 0]);
        zero.extend(make::pcap_record(order, 0, 0, frame.len() as u32, &without));
    }
    for capture in [snapped, zero] {
        let tally = analyse(capture);
        assert_eq!((tally.frames_in, tally.eliminated), (3, 2));
        assert_eq!(tally.flows.top(1, Sort::Frames)[0].1.payload_bytes, 300);
    }
}

#[test]
fn a_frame_check_sequence_is_no_payload() {
    let order = make::Order { big: false };
    let mut capture = make::pcap_header(order, make::MICROS, 0x2400_0001);
    for seq in [1, 101, 201] {
        let mut frame = ethernet(&[], 0x0800, &segment(7, seq, 100));
        // Captured above segmentation offload: the length is that of the frame.
        frame[16..18].copy_from_slice(&[0, 0]);
        frame.extend([0xfc; 4]);
        capture.extend(make::pcap_record(order, 0, 0, frame.len() as u32, &frame));
    }
    let tally = analyse(capture);
    assert_eq!((tally.eliminated, tally.flows.top(1, Sort::Frames)[0].1.payload_bytes), (2, 300));
    assert_eq!((tally.wire_bytes, tally.reserved_bits.headers), (3 * 154, 0));
}

#[test]
fn reserved_bits_above_the_link_type_are_told_and_not_read() {
    let frame = ethernet(&[], 0x0800, &segment(7, 1, 100));
    let order = make::Order { big: true };
    let mut interface = make::interface(order, 1, 0, &[]);
    interface[10..12].copy_from_slice(&[0x12, 0x34]);
    let packet = make::enhanced(order, 0, 1, 154, &frame);
    let pcapng = [make::section(order), interface.clone(), packet, interface].concat();
    for (capture, headers, bits) in [
        (make::pcap(0xf3ff_0001, std::slice::from_ref(&frame)), 1, 0x03ff_0000),
        (make::pcap(0x0800_0001, std::slice::from_ref(&frame)), 1, 0x0800_0000),
        (make::pcap(0xf000_0001, std::slice::from_ref(&frame)), 0, 0),
        (pcapng, 2, 0x1234_0000),
    ] {
        let tally = analyse(capture);
        let found = tally.reserved_bits;
        assert_eq!((found.headers, found.bits, tally.segments), (headers, bits, 1), "{bits:x}");
        assert_eq!(found.caution().is_some(), headers > 0);
    }
}

/// An IPv4 packet of this protocol.
fn of_protocol(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = ((20 + payload.len()) as u16).to_be_bytes();
    let header = [0x45, 0, len[0], len[1], 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    [&header[..], payload].concat()
}

/// An Ethernet frame with a packet in it, in each kind of tunnel.
fn tunnels(packet: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let bridged = ethernet(&[], 0x0800, packet);
    let udp = |port: u16, rest: &[&[u8]]| {
        let header = [&[0x30, 0x39][..], &port.to_be_bytes(), &[0; 4]].concat();
        of_protocol(17, &[header, rest.concat()].concat())
    };
    // Linux adds an option to tunnels over IPv6: the limit of encapsulation (RFC 2473 §4.1.1).
    let mut over_v6 = segment_v6(9, 1, 0)[..40].to_vec();
    over_v6[4..6].copy_from_slice(&(8 + packet.len() as u16).to_be_bytes());
    over_v6[6] = 60;
    let over_v6 = [&over_v6[..], &[4, 0, 4, 1, 4, 1, 1, 0], packet].concat();
    let all = [
        ("mpls", 0x8847, [&[0, 1, 0x40, 64, 0, 2, 0x41, 64][..], packet].concat()),
        ("pppoe", 0x8864, [&[0x11, 0, 0, 7, 0, 142, 0, 0x21][..], packet].concat()),
        ("ipip", 0x0800, of_protocol(4, packet)),
        ("ipip", 0x86dd, over_v6),
        ("gre", 0x0800, of_protocol(47, &[&[0x20, 0, 0x08, 0, 0, 0, 0, 9][..], packet].concat())),
        ("gre", 0x0800, of_protocol(47, &[&[0, 0, 0x65, 0x58][..], &bridged].concat())),
        ("vxlan", 0x0800, udp(4789, &[&[8, 0, 0, 0, 0, 0, 9, 0], &bridged])),
        ("geneve", 0x0800, udp(6081, &[&[1, 0, 0x65, 0x58, 0, 0, 9, 0, 1, 2, 3, 4], &bridged])),
        ("", 0x0800, udp(53, &[packet])),
    ];
    all.into_iter().map(|(name, kind, packet)| (name, ethernet(&[], kind, &packet))).collect()
}

#[test]
fn segments_in_tunnels_are_counted_by_kind() {
    let mut frames = tunnels(&segment(9, 1, 100));
    // No TCP, but the outermost tunnel's name where it is nested.
    frames.extend(tunnels(&of_protocol(1, &[0; 60])).into_iter().map(|(_, frame)| ("", frame)));
    let (_, vxlan) = tunnels(&segment(9, 1, 100)).swap_remove(6);
    frames.push(("gre", tunnels(&vxlan[14..]).swap_remove(4).1));
    for (name, frame) in &frames {
        let found = analyse(make::pcap(1, std::slice::from_ref(frame))).tunnelled.tunnels;
        let expected: Vec<_> = (!name.is_empty()).then_some((*name, 1)).into_iter().collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected, "{name}");
        // Cut anywhere, it is no tunnel or the same one.
        for len in 0..frame.len() {
            let found = analyse(make::pcap(1, &[frame[..len].to_vec()])).tunnelled.tunnels;
            assert!(found.keys().all(|kind| kind == name), "{name} {len}");
        }
    }
}

fn inside(frames: &[Vec<u8>]) -> Tally {
    let classifier = Classifier::new(Checksums::Trust, true);
    let mut analysis = Analysis::new(Limits::of(Profile::Rsc), classifier);
    let input = Input::read(Cursor::new(make::pcap(1, frames))).unwrap();
    study::read(input, &mut analysis, &Progress::default()).unwrap();
    analysis.tally().clone()
}

#[test]
fn segments_inside_tunnels_join_as_behind_their_end() {
    let mut kinds = Vec::new();
    for kind in 0..8 {
        let frames: Vec<_> = (0..20).map(|n| tunnels(&segment(9, 1 + n * 100, 100)).swap_remove(kind)).collect();
        let (name, frames): (Vec<_>, Vec<_>) = frames.into_iter().unzip();
        let tally = inside(&frames);
        assert_eq!((tally.frames_in, tally.eliminated, tally.runs), (20, 19, 1), "{}", name[0]);
        assert_eq!(tally.tunnelled.inner.into_iter().collect::<Vec<_>>(), [(name[0], 20)]);
        assert!(tally.tunnelled.tunnels.is_empty());
        // The flow is the inner one, and so is its payload.
        let (flow, counts) = tally.flows.top(1, Sort::Frames)[0];
        assert_eq!((flow.src_port(), counts.payload_bytes), (9, 2000), "{}", name[0]);
        // Without a look inside, nothing joins.
        assert_eq!(analyse(make::pcap(1, &frames)).eliminated, 0);
        kinds.push(name[0]);
    }
    assert_eq!(kinds, ["mpls", "pppoe", "ipip", "ipip", "gre", "gre", "vxlan", "geneve"]);
}

#[test]
fn tunnels_within_tunnels_are_entered_up_to_four_deep() {
    // The frames that carry these packets, in as many tunnels, of IPv6 and with a tag at the bottom.
    let nested = |depth: usize| -> Vec<Vec<u8>> {
        let frame = |n: u32| {
            let bottom = ethernet(&[[0x81, 0, 0, 7]], 0x86dd, &segment_v6(9, 1 + n * 100, 100));
            let mut packet = of_protocol(47, &[&[0, 0, 0x65, 0x58][..], &bottom].concat());
            for _ in 1..depth {
                packet = of_protocol(4, &packet);
            }
            ethernet(&[[0x81, 0, 0, 5]], 0x0800, &packet)
        };
        (0..3).map(frame).collect()
    };
    for depth in 1..=4 {
        let tally = inside(&nested(depth));
        assert_eq!((tally.eliminated, tally.tunnelled.inner.values().sum::<u64>()), (2, 3), "{depth}");
        assert!(tally.flows.top(1, Sort::Frames)[0].0.is_v6());
    }
    let tally = inside(&nested(5));
    assert_eq!((tally.eliminated, tally.reasons.get("not_tcp")), (0, Some(&3)));
}
