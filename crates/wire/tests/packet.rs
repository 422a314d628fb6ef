//! The fast parse on hand-made frames: each reason for a refusal, and their order.

use baton_wire::packet::{Checks, Link, Packet, Reject};
use baton_wire::tcp::Timestamps;
use baton_wire::{checksum, ipv4, ipv6};
use std::net::{Ipv4Addr, Ipv6Addr};

const TS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];

/// A TCP header with `options` (whole words) and four bytes of payload.
fn tcp(options: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x1f, 0x90, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0x10, 1, 0, 0, 0, 0, 0];
    segment[12] = ((20 + options.len()) / 4) as u8 * 16;
    segment.extend(options);
    segment.extend(*b"data");
    segment
}

const V4: ipv4::Header = ipv4::Header {
    traffic_class: 0x1f,
    id: 9,
    dont_fragment: true,
    more_fragments: false,
    fragment_offset: 0,
    ttl: 64,
    protocol: 6,
    src: Ipv4Addr::new(10, 0, 0, 1),
    dst: Ipv4Addr::new(10, 0, 0, 2),
};

fn v4(header: ipv4::Header, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 20 + options.len().next_multiple_of(4)];
    header.write(options, payload.len(), &mut packet).unwrap();
    packet.extend(payload);
    packet
}

fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
    let header = ipv6::Header { traffic_class: 0x1f, flow_label: 0, next_header, hop_limit: 64, src, dst };
    let mut packet = vec![0; 40];
    header.write(payload.len(), &mut packet).unwrap();
    packet.extend(payload);
    packet
}

fn ethernet(link: &[u8], packet: &[u8]) -> Vec<u8> {
    [&[2; 12], link, packet].concat()
}

/// A destination options header of eight bytes before `next`.
fn destination(next: u8) -> [u8; 8] {
    [next, 0, 1, 4, 0, 0, 0, 0]
}

fn parse(frame: &[u8]) -> Result<Packet, Reject> {
    Packet::parse(frame, Link::Ip)
}

#[test]
fn a_frame_that_is_not_ip() {
    let good = v4(V4, &[], &tcp(&[]));
    assert_eq!(parse(&[]), Err(Reject::NotIp));
    assert_eq!(parse(&[0x50; 60]), Err(Reject::NotIp));
    for frame in [
        ethernet(&[8, 6], &good),
        ethernet(&[0, 60], &good),
        ethernet(&[0x81, 0, 0, 1, 8, 6], &good),
        ethernet(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 1, 0x81, 0, 0, 1, 8, 0], &good),
        ethernet(&[8], &[]),
        ethernet(&[0x81, 0, 0, 1], &[]),
    ] {
        assert_eq!(Packet::parse(&frame, Link::Ethernet), Err(Reject::NotIp), "{frame:x?}");
    }
}

#[test]
fn one_or_two_tags_are_walked() {
    for (link, vids) in
        [(&[8, 0][..], &[][..]), (&[0x81, 0, 0, 7, 8, 0], &[7]), (&[0x88, 0xa8, 0, 7, 0x81, 0, 0xe0, 8, 8, 0], &[7, 8])]
    {
        let frame = ethernet(link, &v4(V4, &[], &tcp(&TS)));
        let packet = Packet::parse(&frame, Link::Ethernet).unwrap();
        assert_eq!(packet.vlan.as_slice().iter().map(|tag| tag.vid()).collect::<Vec<_>>(), vids);
        assert_eq!(usize::from(packet.ip_offset), 12 + link.len());
        assert_eq!(packet.payload(&frame), b"data");
        assert_eq!((packet.traffic_class, packet.ecn, packet.ttl), (0x1f, 3, 64));
    }
}

#[test]
fn malformed_ipv4_lengths() {
    let good = v4(V4, &[], &tcp(&TS));
    assert!(parse(&good).is_ok());
    // Header length, total length below the header, total length past the frame.
    for (at, value) in [(0, 0x44), (3, 19), (3, good.len() as u8 + 1), (2, 1)] {
        let mut frame = good.clone();
        frame[at] = value;
        assert_eq!(parse(&frame), Err(Reject::Malformed), "byte {at} = {value:#x}");
    }
    let mut ethernet_says_v4 = ethernet(&[8, 0], &v6(6, &tcp(&[])));
    assert_eq!(Packet::parse(&ethernet_says_v4, Link::Ethernet), Err(Reject::Malformed));
    ethernet_says_v4[13] = 0xdd;
    assert_eq!(Packet::parse(&ethernet_says_v4, Link::Ethernet), Err(Reject::NotIp));
}

#[test]
fn malformed_tcp_offsets() {
    for wrap in [|segment: &[u8]| v4(V4, &[], segment), |segment: &[u8]| v6(6, segment)] {
        // 24 bytes of segment: a header of 24 fits, one of 28 passes the end.
        for (offset, expected) in [(4, Err(Reject::Malformed)), (5, Ok(4)), (6, Ok(0)), (7, Err(Reject::Malformed))] {
            let mut segment = tcp(&[]);
            segment[12] = offset << 4;
            let padded = [wrap(&segment), vec![0; 40]].concat();
            assert_eq!(parse(&padded).map(|packet| packet.payload_len), expected, "offset {offset}");
        }
        assert_eq!(parse(&wrap(&tcp(&[])[..19])), Err(Reject::Malformed));
    }
}

#[test]
fn the_ipv4_checksum_counts_unless_vouched_for() {
    for options in [&[][..], &[148, 4, 0, 0]] {
        let mut frame = v4(V4, options, &tcp(&TS));
        let packet = parse(&frame).unwrap();
        assert_eq!(packet.ip_options, !options.is_empty());
        frame[10] ^= 1;
        assert_eq!(parse(&frame), Err(Reject::IpChecksum));
        let vouched = Checks { ip_checksum: false, ..Checks::ALL };
        assert_eq!(Packet::parse_with(&frame, Link::Ip, vouched), Ok(packet));
    }
}

#[test]
fn other_protocols_and_fragments_of_ipv4() {
    let udp = ipv4::Header { protocol: 17, ..V4 };
    let first = ipv4::Header { more_fragments: true, ..V4 };
    let later = ipv4::Header { fragment_offset: 8, ..V4 };
    assert_eq!(parse(&v4(udp, &[], &[])), Err(Reject::NotTcp));
    assert_eq!(parse(&v4(first, &[], &tcp(&TS))), Err(Reject::Fragment));
    assert_eq!(parse(&v4(later, &[], &[0; 8])), Err(Reject::Fragment));
    // Before that: malformed (of a first fragment), other protocol (of any).
    assert_eq!(parse(&v4(first, &[], &[0; 8])), Err(Reject::Malformed));
    assert_eq!(parse(&v4(ipv4::Header { protocol: 17, ..later }, &[], &[0; 8])), Err(Reject::NotTcp));
}

#[test]
fn extension_headers_of_ipv6() {
    let segment = tcp(&TS);
    let with = |next: u8, headers: &[u8]| parse(&v6(next, &[headers, &segment].concat()));
    let plain = with(6, &[]).unwrap();
    assert!(!plain.ip_options && plain.is_v6());
    let one = with(60, &destination(6)).unwrap();
    assert!(one.ip_options);
    assert_eq!(one.tcp_offset, plain.tcp_offset + 8);
    assert_eq!((one.payload_len, one.timestamps), (plain.payload_len, plain.timestamps));
    let chain = |count: usize| [destination(60).repeat(count - 1), destination(6).to_vec()].concat();
    assert!(with(60, &chain(8)).is_ok());
    assert_eq!(with(60, &chain(9)), Err(Reject::Malformed));
    // A header that claims 2048 bytes.
    assert_eq!(with(60, &[6, 255, 1, 4, 0, 0, 0, 0]), Err(Reject::Malformed));
    assert_eq!(with(60, &destination(17)), Err(Reject::NotTcp));
    assert_eq!(with(59, &[]), Err(Reject::NotTcp));
    // Fragment headers: the only one, first, later of TCP, later of something else.
    assert_eq!(with(44, &[6, 0, 0, 0, 0, 0, 0, 1]), Err(Reject::Fragment));
    assert_eq!(with(44, &[6, 0, 0, 1, 0, 0, 0, 1]), Err(Reject::Fragment));
    assert_eq!(with(44, &[6, 0, 0, 9, 0, 0, 0, 1]), Err(Reject::Fragment));
    assert_eq!(with(44, &[60, 0, 0, 9, 0, 0, 0, 1]), Err(Reject::Fragment));
    assert_eq!(with(44, &[17, 0, 0, 9, 0, 0, 0, 1]), Err(Reject::NotTcp));
    assert_eq!(with(44, &[60, 0, 0, 1, 0, 0, 0, 1, 17, 0, 1, 4, 0, 0, 0, 0]), Err(Reject::NotTcp));
}

#[test]
fn an_ipv4_mapped_address_in_an_ipv6_header_is_refused() {
    let good = v6(6, &tcp(&[]));
    for at in [8, 24] {
        let mut frame = good.clone();
        frame[at..at + 16].copy_from_slice(&Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets());
        assert_eq!(parse(&frame), Err(Reject::Malformed));
    }
}

#[test]
fn which_options_are_plain() {
    let ts = Some(Timestamps { val: 7, ecr: 9 });
    let other_order = [8, 10, 0, 0, 0, 7, 0, 0, 0, 9, 1, 1];
    let ended = [8, 10, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0];
    let with_sack = [&TS[..], &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]].concat();
    let broken = [&TS[..], &[5, 0, 0, 0]].concat();
    for (options, timestamps, plain) in [
        (&[][..], None, true),
        (&TS, ts, true),
        (&other_order, ts, true),
        (&ended, ts, true),
        (&[1, 1, 1, 1], None, true),
        (&[0, 0, 0, 0], None, true),
        (&[2, 4, 5, 0xb4], None, false),
        (&with_sack, ts, false),
        (&broken, ts, false),
        (&[8, 0, 0, 0], None, false),
    ] {
        let packet = parse(&v4(V4, &[], &tcp(options))).unwrap();
        assert_eq!((packet.timestamps, packet.plain_options), (timestamps, plain), "{options:?}");
    }
}

#[test]
fn padding_of_the_frame_is_left_out() {
    let mut frame = ethernet(&[8, 0], &v4(V4, &[], &tcp(&[])));
    frame.extend([0xee; 10]);
    let packet = Packet::parse(&frame, Link::Ethernet).unwrap();
    assert_eq!(packet.payload(&frame), b"data");
    let sum = packet.header_sum(&frame) + checksum::sum(b"data");
    let segment = tcp(&[]);
    let whole = checksum::pseudo(packet.src, packet.dst, 6, segment.len() as u32) + checksum::sum(&segment);
    assert_eq!(checksum::fold(sum), checksum::fold(whole));
}

#[test]
fn a_packet_without_a_length_is_refused() {
    // BIG TCP, and captures made above a segmenting NIC.
    let mut frame = v4(V4, &[], &tcp(&[]));
    frame[2..4].fill(0);
    assert_eq!(parse(&frame), Err(Reject::Malformed));
    let mut frame = v6(6, &tcp(&[]));
    frame[4..6].fill(0);
    assert_eq!(parse(&frame), Err(Reject::Malformed));
}

#[test]
fn the_longest_packet_there_is() {
    let payload = vec![7; 65_535 - 40];
    let mut segment = tcp(&[]);
    segment.truncate(20);
    segment.extend(&payload);
    let frame = v4(V4, &[], &segment);
    let packet = parse(&frame).unwrap();
    assert_eq!(packet.payload(&frame), &payload[..]);
}
