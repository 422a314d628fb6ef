//! An endpoint seen from the wire: frames in, frames out.

use super::*;
use baton_tcp::icmp::IcmpKind;
use baton_wire::arp;
use baton_wire::icmpv4::{self, Message as V4};
use baton_wire::icmpv6::{self, Message as V6};
use baton_wire::seq::Seq;
use baton_wire::{ipv4, ipv6};
use core::net::{Ipv4Addr, Ipv6Addr};

mod pair;

const US: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEM: [u8; 6] = [2, 0, 0, 0, 0, 9];
const BROADCAST: [u8; 6] = [0xff; 6];
const OUR_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const THEIR_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
const OUR_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const THEIR_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
const T0: Instant = Instant(1_000_000_000);

fn endpoint_with(mac: [u8; 6], addresses: [&str; 2], ethernet: bool, vlan: Option<u16>) -> Endpoint {
    let addresses = addresses.map(|cidr| cidr.parse().expect(cidr)).to_vec();
    Endpoint::new(InterfaceConfig { ethernet, vlan, ..InterfaceConfig::ethernet(mac, addresses) })
}

/// An endpoint that has made its announcements.
fn endpoint() -> Endpoint {
    let mut endpoint = endpoint_with(US, ["10.77.0.2/24", "fd00::2/64"], true, None);
    endpoint.poll(T0);
    while endpoint.pop_outbox().is_some() {}
    endpoint
}

/// One that shares the interface with another stack.
fn guest() -> Endpoint {
    Endpoint::new(InterfaceConfig::guest(US, 1500))
}

fn take(endpoint: &mut Endpoint, frame: &[u8]) -> (Verdict, Vec<IcmpForTcp>) {
    let mut told = Vec::new();
    let verdict = endpoint.handle_frame(T0, frame, &mut |icmp| told.push(icmp));
    (verdict, told)
}

fn ethernet(dst: [u8; 6], src: [u8; 6], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&dst[..], &src, &ether_type.to_be_bytes(), payload].concat()
}

fn arp_frame(dst: [u8; 6], packet: arp::Packet) -> Vec<u8> {
    let mut bytes = [0; arp::LEN];
    packet.write(&mut bytes).expect("room");
    ethernet(dst, packet.sender_mac.0, ether_type::ARP, &bytes)
}

fn request(sender: Ipv4Addr, target: Ipv4Addr) -> arp::Packet {
    arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: MacAddr(THEM),
        sender_ip: sender,
        target_mac: MacAddr::default(),
        target_ip: target,
    }
}

fn v4_packet(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, fragment_offset: u16, payload: &[u8]) -> Vec<u8> {
    let header = ipv4::Header {
        traffic_class: 0,
        id: 0,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset,
        ttl: 64,
        protocol,
        src,
        dst,
    };
    let mut bytes = vec![0; 20 + payload.len()];
    header.write(&[], payload.len(), &mut bytes).expect("room");
    bytes[20..].copy_from_slice(payload);
    bytes
}

fn v6_packet(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv6::Header { traffic_class: 0, flow_label: 0, next_header, hop_limit, src, dst };
    let mut bytes = vec![0; 40 + payload.len()];
    header.write(payload.len(), &mut bytes).expect("room");
    bytes[40..].copy_from_slice(payload);
    bytes
}

fn icmp_v4(src: Ipv4Addr, dst: Ipv4Addr, message: &V4<'_>) -> Vec<u8> {
    let mut body = vec![0; 2000];
    let len = message.write(&mut body).expect("room");
    ethernet(US, THEM, ether_type::IPV4, &v4_packet(src, dst, icmpv4::PROTOCOL, 0, &body[..len]))
}

fn icmp_v6(src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8, message: &V6<'_>) -> Vec<u8> {
    let mut body = vec![0; 2000];
    let len = message.write(src, dst, &mut body).expect("room");
    ethernet(US, THEM, ether_type::IPV6, &v6_packet(src, dst, icmpv6::PROTOCOL, hop_limit, &body[..len]))
}

/// The one frame in the outbox: link destination, and the IPv4 packet in it.
fn only_v4(endpoint: &mut Endpoint) -> ([u8; 6], Vec<u8>) {
    let frame = endpoint.pop_outbox().expect("a frame").to_vec();
    assert_eq!(endpoint.pop_outbox(), None);
    (frame[..6].try_into().expect("six"), frame[14..].to_vec())
}

#[test]
fn addresses_are_announced_once() {
    let mut endpoint = endpoint_with(US, ["10.77.0.2/24", "fd00::2/64"], true, None);
    assert_eq!(endpoint.next_deadline(), Some(Instant(0)));
    endpoint.poll(T0);
    let announced =
        arp_frame(BROADCAST, arp::Packet { sender_mac: MacAddr(US), target_ip: OUR_V4, ..request(OUR_V4, OUR_V4) });
    assert_eq!(endpoint.pop_outbox(), Some(&announced[..]));
    // Two unsolicited advertisements to all nodes: fd00::2 and the link-local one.
    for target in [OUR_V6, "fe80::ff:fe00:1".parse().expect("an address")] {
        let frame = endpoint.pop_outbox().expect("an advertisement");
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
        let packet = ipv6::Datagram::parse(&frame[14..]).expect("a packet");
        let (src, dst) = (packet.header.src, packet.header.dst);
        let message = V6::parse(packet.payload, src, dst).expect("a message");
        assert_eq!((src, packet.header.hop_limit), (target, 255));
        let expected = V6::NeighbourAdvertisement {
            target,
            router: false,
            solicited: false,
            overriding: true,
            target_link: Some(MacAddr(US)),
        };
        assert_eq!(message, expected);
    }
    assert_eq!(endpoint.pop_outbox(), None);
    assert_eq!(endpoint.next_deadline(), None);
    endpoint.poll(T0);
    assert_eq!(endpoint.pop_outbox(), None);
}

#[test]
fn arp_packets_and_what_becomes_of_them() {
    let reply = |packet: arp::Packet| arp::Packet { operation: arp::Operation::Reply, ..packet };
    let from = |mac, packet: arp::Packet| arp::Packet { sender_mac: MacAddr(mac), ..packet };
    let zero = Ipv4Addr::UNSPECIFIED;
    let elsewhere = Ipv4Addr::new(10, 77, 0, 77);
    // (what came, to whom, verdict, an answer, entries afterwards)
    let table = [
        ("asks for us", request(THEIR_V4, OUR_V4), BROADCAST, Verdict::NeighbourReply, true, 1),
        ("asks us alone", request(THEIR_V4, OUR_V4), US, Verdict::NeighbourReply, true, 1),
        ("probes our address", request(zero, OUR_V4), BROADCAST, Verdict::NeighbourReply, true, 0),
        ("asks for another", request(THEIR_V4, elsewhere), BROADCAST, Verdict::NotOurs, false, 0),
        ("announces itself", request(THEIR_V4, THEIR_V4), BROADCAST, Verdict::NotOurs, false, 0),
        ("unasked reply", reply(request(THEIR_V4, OUR_V4)), US, Verdict::NotOurs, false, 0),
        ("has our address", request(OUR_V4, OUR_V4), BROADCAST, Verdict::AddressConflict, false, 0),
        ("our own, come back", from(US, request(OUR_V4, OUR_V4)), BROADCAST, Verdict::Ignored, false, 0),
        ("from a group", from(BROADCAST, request(THEIR_V4, OUR_V4)), BROADCAST, Verdict::Malformed, false, 0),
        ("from broadcast", request(Ipv4Addr::BROADCAST, OUR_V4), BROADCAST, Verdict::Malformed, false, 0),
        ("not of this link", request(Ipv4Addr::new(8, 8, 8, 8), OUR_V4), BROADCAST, Verdict::NeighbourReply, true, 0),
        ("to another host", request(THEIR_V4, OUR_V4), [2, 0, 0, 0, 0, 5], Verdict::NotOurs, false, 0),
    ];
    for (what, packet, to, verdict, answered, entries) in table {
        let mut endpoint = endpoint();
        let mut frame = arp_frame(to, packet);
        if packet.sender_mac.is_multicast() {
            frame[6..12].copy_from_slice(&THEM);
        }
        assert_eq!(take(&mut endpoint, &frame).0, verdict, "{what}");
        assert_eq!(endpoint.counters().of(verdict), 1, "{what}");
        assert_eq!(endpoint.neighbours(), entries, "{what}");
        let answer = endpoint.pop_outbox().map(<[u8]>::to_vec);
        let expected = arp_frame(
            packet.sender_mac.0,
            arp::Packet {
                operation: arp::Operation::Reply,
                sender_mac: MacAddr(US),
                sender_ip: OUR_V4,
                target_mac: packet.sender_mac,
                target_ip: packet.sender_ip,
            },
        );
        assert_eq!(answer, answered.then_some(expected), "{what}");
    }
}

#[test]
fn neighbour_discovery_messages_and_what_becomes_of_them() {
    let ask = |target, source_link| V6::NeighbourSolicitation { target, source_link };
    let tell = |target, solicited, target_link| V6::NeighbourAdvertisement {
        target,
        router: false,
        solicited,
        overriding: true,
        target_link,
    };
    let them = Some(MacAddr(THEM));
    let (group, all) = (ipv6::solicited_node(OUR_V6), "ff02::1".parse().expect("an address"));
    let any = Ipv6Addr::UNSPECIFIED;
    // (what came, source, destination, hop limit, message, verdict, answer goes to, entries)
    let table = [
        ("asks", THEIR_V6, group, 255, ask(OUR_V6, them), Verdict::NeighbourReply, Some(THEIR_V6), 1),
        ("asks us alone", THEIR_V6, OUR_V6, 255, ask(OUR_V6, them), Verdict::NeighbourReply, Some(THEIR_V6), 1),
        ("keeps its link", THEIR_V6, OUR_V6, 255, ask(OUR_V6, None), Verdict::NeighbourReply, Some(THEIR_V6), 0),
        ("probes", any, group, 255, ask(OUR_V6, None), Verdict::NeighbourReply, Some(all), 0),
        ("probes with a link", any, group, 255, ask(OUR_V6, them), Verdict::Malformed, None, 0),
        ("probes us alone", any, OUR_V6, 255, ask(OUR_V6, None), Verdict::Malformed, None, 0),
        ("was forwarded", THEIR_V6, group, 254, ask(OUR_V6, them), Verdict::Malformed, None, 0),
        ("asks for another", THEIR_V6, group, 255, ask(THEIR_V6, them), Verdict::NotOurs, None, 0),
        ("group as link", THEIR_V6, group, 255, ask(OUR_V6, Some(MacAddr(BROADCAST))), Verdict::Malformed, None, 0),
        ("tells, unasked", THEIR_V6, all, 255, tell(THEIR_V6, false, them), Verdict::Ignored, None, 0),
        ("tells all, solicited", THEIR_V6, all, 255, tell(THEIR_V6, true, them), Verdict::Malformed, None, 0),
        ("tells, forwarded", THEIR_V6, OUR_V6, 64, tell(THEIR_V6, true, them), Verdict::Malformed, None, 0),
        ("has our address", THEIR_V6, all, 255, tell(OUR_V6, false, them), Verdict::AddressConflict, None, 0),
        ("our own", THEIR_V6, all, 255, tell(OUR_V6, false, Some(MacAddr(US))), Verdict::Ignored, None, 0),
    ];
    for (what, src, dst, hop_limit, message, verdict, answer, entries) in table {
        let mut endpoint = endpoint();
        let frame = icmp_v6(src, dst, hop_limit, &message);
        assert_eq!(take(&mut endpoint, &frame).0, verdict, "{what}");
        assert_eq!(endpoint.neighbours(), entries, "{what}");
        let sent = endpoint.pop_outbox().map(|frame| {
            let packet = ipv6::Datagram::parse(&frame[14..]).expect("a packet");
            let (us, them) = (packet.header.src, packet.header.dst);
            let V6::NeighbourAdvertisement { solicited, .. } = V6::parse(packet.payload, us, them).expect("right")
            else {
                panic!("{what}: not an advertisement")
            };
            assert_eq!((us, solicited, packet.header.hop_limit), (OUR_V6, !src.is_unspecified(), 255), "{what}");
            them
        });
        assert_eq!(sent, answer, "{what}");
    }
}

#[test]
fn echoes_copy_the_data_and_go_back_where_they_came_from() {
    for len in [0, 1, 56, 1472] {
        let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut endpoint = endpoint();
        let ping = icmp_v4(THEIR_V4, OUR_V4, &V4::EchoRequest { id: 7, seq: 8, data: &data });
        assert_eq!(take(&mut endpoint, &ping).0, Verdict::EchoReply);
        let (to, packet) = only_v4(&mut endpoint);
        let packet = ipv4::Datagram::parse(&packet).expect("right");
        assert_eq!((to, packet.header.src, packet.header.dst), (THEM, OUR_V4, THEIR_V4));
        assert_eq!(V4::parse(packet.payload), Ok(V4::EchoReply { id: 7, seq: 8, data: &data }));
    }
    let mut endpoint = endpoint();
    let ping = icmp_v6(THEIR_V6, OUR_V6, 64, &V6::EchoRequest { id: 7, seq: 8, data: b"ping" });
    assert_eq!(take(&mut endpoint, &ping).0, Verdict::EchoReply);
    let frame = endpoint.pop_outbox().expect("a reply");
    let packet = ipv6::Datagram::parse(&frame[14..]).expect("right");
    assert_eq!(V6::parse(packet.payload, OUR_V6, THEIR_V6), Ok(V6::EchoReply { id: 7, seq: 8, data: b"ping" }));
}

#[test]
fn what_is_refused_and_what_is_passed_over() {
    let udp = [0x12, 0x34, 0, 53, 0, 8, 0, 0];
    let ip = |src, dst, protocol, offset| v4_packet(src, dst, protocol, offset, &udp);
    let broadcast = Ipv4Addr::new(10, 77, 0, 255);
    // (what, link destination, packet, verdict, type and code of the answer)
    let table = [
        ("UDP", US, ip(THEIR_V4, OUR_V4, 17, 0), Verdict::Refused, Some([3, 3])),
        ("SCTP", US, ip(THEIR_V4, OUR_V4, 132, 0), Verdict::Refused, Some([3, 2])),
        ("TCP that the parser refused", US, ip(THEIR_V4, OUR_V4, 6, 0), Verdict::Ignored, None),
        ("a later fragment", US, ip(THEIR_V4, OUR_V4, 17, 8), Verdict::Ignored, None),
        ("to all on the link", BROADCAST, ip(THEIR_V4, OUR_V4, 17, 0), Verdict::Ignored, None),
        ("to the network", BROADCAST, ip(THEIR_V4, broadcast, 17, 0), Verdict::NotOurs, None),
        ("from the network", US, ip(broadcast, OUR_V4, 17, 0), Verdict::Malformed, None),
        ("from a group", US, ip(Ipv4Addr::new(224, 0, 0, 1), OUR_V4, 17, 0), Verdict::Malformed, None),
        ("from ourselves", US, ip(OUR_V4, OUR_V4, 17, 0), Verdict::Malformed, None),
        ("to another", US, ip(THEIR_V4, Ipv4Addr::new(10, 77, 0, 3), 17, 0), Verdict::NotOurs, None),
    ];
    for (what, to, packet, verdict, answer) in table {
        let mut endpoint = endpoint();
        assert_eq!(take(&mut endpoint, &ethernet(to, THEM, ether_type::IPV4, &packet)).0, verdict, "{what}");
        let sent = endpoint.pop_outbox().map(|frame| {
            assert_eq!(frame[42..], packet[..], "{what}: the packet is quoted");
            [frame[34], frame[35]]
        });
        assert_eq!(sent, answer, "{what}");
    }
}

#[test]
fn refusals_in_ipv6_quote_as_much_as_fits() {
    let big = vec![0x5a; 1400];
    for (next_header, kind, code, pointer) in [(17, 1, 4, 0u32), (132, 4, 1, 6)] {
        let mut endpoint = endpoint();
        let packet = v6_packet(THEIR_V6, OUR_V6, next_header, 64, &big);
        assert_eq!(take(&mut endpoint, &ethernet(US, THEM, ether_type::IPV6, &packet)).0, Verdict::Refused);
        let frame = endpoint.pop_outbox().expect("an error");
        assert_eq!(frame.len(), 14 + 1280);
        assert_eq!(frame[54..56], [kind, code]);
        assert_eq!(frame[58..62], pointer.to_be_bytes());
        assert_eq!(frame[62..], packet[..1280 - 48]);
    }
    // An unknown protocol behind an extension header: the pointer says where.
    let mut endpoint = endpoint();
    let packet = v6_packet(THEIR_V6, OUR_V6, 60, 64, &[132, 0, 1, 4, 0, 0, 0, 0, 1, 2, 3, 4]);
    assert_eq!(take(&mut endpoint, &ethernet(US, THEM, ether_type::IPV6, &packet)).0, Verdict::Refused);
    assert_eq!(endpoint.pop_outbox().expect("an error")[58..62], 40u32.to_be_bytes());
}

#[test]
fn errors_about_tcp_reach_the_connection_that_they_name() {
    let segment = [0x30, 0x39, 0, 80, 0, 0, 4, 210];
    let quote = |src, dst, protocol| v4_packet(src, dst, protocol, 0, &segment);
    let ours = quote(OUR_V4, THEIR_V4, 6);
    let table = [
        (V4::Unreachable { code: 0, quote: &ours }, Some(IcmpKind::NetworkUnreachable)),
        (V4::Unreachable { code: 1, quote: &ours }, Some(IcmpKind::HostUnreachable)),
        (V4::Unreachable { code: 2, quote: &ours }, Some(IcmpKind::PortUnreachable)),
        (V4::Unreachable { code: 3, quote: &ours }, Some(IcmpKind::PortUnreachable)),
        (V4::Unreachable { code: 13, quote: &ours }, Some(IcmpKind::HostUnreachable)),
        (V4::FragmentationNeeded { mtu: 1400, quote: &ours }, Some(IcmpKind::TooBig { mtu: 1400 })),
        (V4::TimeExceeded { code: 0, quote: &ours }, Some(IcmpKind::TimeExceeded)),
        (V4::ParameterProblem { code: 0, pointer: 1, quote: &ours }, Some(IcmpKind::ParameterProblem)),
        // tests: MUST-55
        (V4::Unknown { kind: 4, code: 0, rest: [0; 4], data: &ours }, None),
        // tests: MUST-54
        (V4::Unreachable { code: 1, quote: &quote(THEIR_V4, OUR_V4, 6) }, None),
        (V4::Unreachable { code: 1, quote: &quote(OUR_V4, THEIR_V4, 17) }, None),
        (V4::Unreachable { code: 1, quote: &ours[..24] }, None),
    ];
    for (message, kind, mut endpoint) in table.iter().flat_map(|&(m, k)| [(m, k, endpoint()), (m, k, guest())]) {
        let (verdict, told) = take(&mut endpoint, &icmp_v4(Ipv4Addr::new(192, 0, 2, 1), OUR_V4, &message));
        let tuple = Tuple { local: OUR_V4.into(), remote: THEIR_V4.into(), local_port: 0x3039, remote_port: 80 };
        let expected = kind.map(|kind| IcmpForTcp { tuple, error: IcmpError { seq: Seq(1234), kind } });
        assert_eq!(told, Vec::from_iter(expected), "{message:?}");
        assert_eq!(verdict == Verdict::IcmpError, kind.is_some(), "{message:?}");
        assert_eq!(endpoint.pop_outbox(), None, "an error is never answered");
    }
}

#[test]
fn errors_in_ipv6_reach_the_connection_too() {
    let ours = v6_packet(OUR_V6, THEIR_V6, 6, 64, &[0x30, 0x39, 0, 80, 0, 0, 4, 210]);
    let table = [
        (V6::Unreachable { code: 0, quote: &ours }, IcmpKind::NetworkUnreachable),
        (V6::Unreachable { code: 1, quote: &ours }, IcmpKind::HostUnreachable),
        (V6::Unreachable { code: 4, quote: &ours }, IcmpKind::PortUnreachable),
        (V6::PacketTooBig { mtu: 1400, quote: &ours }, IcmpKind::TooBig { mtu: 1400 }),
        (V6::PacketTooBig { mtu: 1 << 20, quote: &ours }, IcmpKind::TooBig { mtu: u16::MAX }),
        (V6::TimeExceeded { code: 0, quote: &ours }, IcmpKind::TimeExceeded),
        (V6::ParameterProblem { code: 1, pointer: 6, quote: &ours }, IcmpKind::ParameterProblem),
    ];
    for (message, kind, mut endpoint) in table.iter().flat_map(|&(m, k)| [(m, k, endpoint()), (m, k, guest())]) {
        let frame = icmp_v6("2001:db8::1".parse().expect("an address"), OUR_V6, 60, &message);
        let (verdict, told) = take(&mut endpoint, &frame);
        assert_eq!((verdict, told.len()), (Verdict::IcmpError, 1), "{message:?}");
        assert_eq!((told[0].error.kind, told[0].error.seq, told[0].tuple.remote), (kind, Seq(1234), THEIR_V6.into()));
    }
}

#[test]
fn a_guest_answers_nothing() {
    let mut guest = guest();
    let solicitation = V6::NeighbourSolicitation { target: OUR_V6, source_link: Some(MacAddr(THEM)) };
    for frame in [
        arp_frame(BROADCAST, request(THEIR_V4, OUR_V4)),
        icmp_v4(THEIR_V4, OUR_V4, &V4::EchoRequest { id: 7, seq: 8, data: b"ping" }),
        icmp_v6(THEIR_V6, OUR_V6, 64, &V6::EchoRequest { id: 7, seq: 8, data: b"ping" }),
        icmp_v6(THEIR_V6, OUR_V6, 255, &solicitation),
        ethernet(US, THEM, ether_type::IPV4, &v4_packet(THEIR_V4, OUR_V4, 17, 0, &[0; 8])),
        ethernet(US, THEM, ether_type::IPV6, &v6_packet(THEIR_V6, OUR_V6, 132, 64, &[0; 8])),
    ] {
        let (verdict, told) = take(&mut guest, &frame);
        assert_eq!((verdict, told, guest.pop_outbox()), (Verdict::Ignored, vec![], None), "{frame:?}");
    }
    let cut = &icmp_v4(THEIR_V4, OUR_V4, &V4::EchoRequest { id: 7, seq: 8, data: b"ping" })[..40];
    assert_eq!(take(&mut guest, cut).0, Verdict::Malformed);
}

#[test]
fn a_mapped_address_on_the_wire_is_refused() {
    let mapped = "::ffff:10.77.0.9".parse().expect("an address");
    let frame = icmp_v6(mapped, OUR_V6, 64, &V6::EchoRequest { id: 1, seq: 1, data: b"" });
    assert_eq!(take(&mut endpoint(), &frame).0, Verdict::Malformed);
}

#[test]
fn replies_and_refusals_are_limited() {
    let mut endpoint = endpoint();
    let ping = icmp_v4(THEIR_V4, OUR_V4, &V4::EchoRequest { id: 7, seq: 8, data: &[] });
    let udp = ethernet(US, THEM, ether_type::IPV4, &v4_packet(THEIR_V4, OUR_V4, 17, 0, &[0; 8]));
    for _ in 0..1000 {
        take(&mut endpoint, &ping);
        take(&mut endpoint, &udp);
        while endpoint.pop_outbox().is_some() {}
    }
    let counters = endpoint.counters();
    assert_eq!(counters.of(Verdict::EchoReply), icmp::ECHO_LIMIT.1);
    assert_eq!(counters.of(Verdict::Refused), icmp::ERROR_LIMIT.1);
    assert_eq!(counters.of(Verdict::RateLimited), 2000 - icmp::ECHO_LIMIT.1 - icmp::ERROR_LIMIT.1);
}

#[test]
fn vlan_tags_are_minded() {
    let ping = icmp_v4(THEIR_V4, OUR_V4, &V4::EchoRequest { id: 7, seq: 8, data: &[] });
    let tagged = |vid: u8| [&ping[..12], &[0x81, 0, 0, vid], &ping[12..]].concat();
    // (our VLAN, the frame, answered)
    let table = [
        (None, ping.clone(), true),
        (None, tagged(0), true),
        (None, tagged(7), false),
        (Some(7), tagged(7), true),
        (Some(7), ping.clone(), false),
        (Some(7), tagged(8), false),
    ];
    for (vlan, frame, answered) in table {
        let mut endpoint = endpoint_with(US, ["10.77.0.2/24", "fd00::2/64"], true, vlan);
        let verdict = take(&mut endpoint, &frame).0;
        assert_eq!(verdict, if answered { Verdict::EchoReply } else { Verdict::NotOurs }, "{vlan:?}");
        let tag = endpoint.pop_outbox().map(|frame| frame[12..14] == [0x81, 0]);
        assert_eq!(tag, answered.then_some(vlan.is_some()));
    }
}

#[test]
fn a_bare_ip_port_has_no_neighbours_and_no_headers() {
    let mut endpoint = endpoint_with(US, ["10.77.0.2/24", "fd00::2/64"], false, None);
    assert_eq!(endpoint.addresses().len(), 2, "no link-local address is made up");
    let hop = endpoint.hop_for(T0, Ipv4Addr::new(8, 8, 8, 8).into());
    assert_eq!(hop.and_then(|hop| endpoint.link_header(hop)), Some(&[][..]));
    assert_eq!(endpoint.hop_for(T0, OUR_V4.into()), None);
    let ping = icmp_v4(THEIR_V4, OUR_V4, &V4::EchoRequest { id: 7, seq: 8, data: &[] });
    assert_eq!(take(&mut endpoint, &ping[14..]).0, Verdict::EchoReply);
    assert_eq!(endpoint.pop_outbox().map(|frame| frame[0]), Some(0x45));
    endpoint.hop_release(HopId::BARE);
    assert_eq!((endpoint.next_deadline(), endpoint.neighbours()), (None, 0));
}
