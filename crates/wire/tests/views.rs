//! A view reads back the bytes that its builder wrote; too small a buffer is refused; no bytes
//! panic.

use baton_wire::error::{BuildError, ParseError};
use baton_wire::eth::{self, MacAddr, VlanTag, VlanTags};
use baton_wire::{arp, icmpv4, icmpv6, ipv4, ipv6};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

fn addr_v6() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(Ipv6Addr::from_bits)
}

fn addr_v4() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from_bits)
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..max)
}

/// Calls `write` with buffers of every length below `len` and of `len` itself.
fn refuses_small_buffers(len: usize, write: impl Fn(&mut [u8]) -> Result<usize, BuildError>) {
    let mut out = vec![0; len];
    for short in 0..len {
        assert_eq!(write(&mut out[..short]), Err(BuildError::BufferTooSmall));
    }
    assert_eq!(write(&mut out), Ok(len));
}

fn eth_header() -> impl Strategy<Value = eth::Header> {
    let tag = (prop_oneof![Just(0x8100u16), Just(0x88a8)], any::<u16>());
    let ether_type = any::<u16>().prop_filter("not a tag", |value| !VlanTag::is_tpid(*value));
    (mac(), mac(), vec(tag, 0..=2), ether_type).prop_map(|(dst, src, tags, ether_type)| {
        let mut vlan = VlanTags::NONE;
        for (tpid, tci) in tags {
            assert!(vlan.push(VlanTag { tpid, tci }));
        }
        eth::Header { dst, src, vlan, ether_type }
    })
}

fn ipv4_header() -> impl Strategy<Value = ipv4::Header> {
    let fragment = (any::<bool>(), any::<bool>(), 0..0x2000u16);
    (any::<(u8, u16, u8, u8)>(), fragment, addr_v4(), addr_v4()).prop_map(|(fields, fragment, src, dst)| {
        let (traffic_class, id, ttl, protocol) = fields;
        let (dont_fragment, more_fragments, units) = fragment;
        let fragment_offset = units << 3;
        ipv4::Header { traffic_class, id, dont_fragment, more_fragments, fragment_offset, ttl, protocol, src, dst }
    })
}

fn ipv6_header() -> impl Strategy<Value = ipv6::Header> {
    let next_header = any::<u8>().prop_filter("no extension", |value| !ipv6::is_extension(*value));
    (any::<(u8, u8)>(), 0..1u32 << 20, next_header, addr_v6(), addr_v6()).prop_map(
        |((traffic_class, hop_limit), flow_label, next_header, src, dst)| ipv6::Header {
            traffic_class,
            flow_label,
            next_header,
            hop_limit,
            src,
            dst,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ethernet(header in eth_header(), payload in bytes(60)) {
        let mut frame = vec![0; header.len()];
        refuses_small_buffers(header.len(), |out| header.write(out));
        header.write(&mut frame).unwrap();
        frame.extend(&payload);
        prop_assert_eq!(eth::Header::parse(&frame), Ok((header, &payload[..])));
    }

    #[test]
    fn arp(request in any::<bool>(), macs in (mac(), mac()), ips in (addr_v4(), addr_v4())) {
        let operation = if request { arp::Operation::Request } else { arp::Operation::Reply };
        let packet = arp::Packet {
            operation,
            sender_mac: macs.0,
            sender_ip: ips.0,
            target_mac: macs.1,
            target_ip: ips.1,
        };
        refuses_small_buffers(arp::LEN, |out| packet.write(out));
        let mut out = [0xaa; 46];
        packet.write(&mut out).unwrap();
        prop_assert_eq!(arp::Packet::parse(&out), Ok(packet));
        prop_assert_eq!(arp::Packet::parse(&out[..27]), Err(ParseError::Truncated));
        for field in [0, 2, 4, 5, 6] {
            let mut other = out;
            other[field] ^= 0x40;
            prop_assert_eq!(arp::Packet::parse(&other), Err(ParseError::BadFormat));
        }
    }

    #[test]
    fn ipv4(header in ipv4_header(), options in bytes(41), payload in bytes(60), padding in bytes(9)) {
        let len = 20 + options.len().next_multiple_of(4);
        refuses_small_buffers(len, |out| header.write(&options, payload.len(), out));
        let mut packet = vec![0xaa; len];
        header.write(&options, payload.len(), &mut packet).unwrap();
        packet.extend(&payload);
        let end = packet.len();
        packet.extend(&padding);
        let view = ipv4::Datagram::parse(&packet).unwrap();
        prop_assert_eq!((view.header, view.payload), (header, &payload[..]));
        prop_assert_eq!(&view.options[..options.len()], &options[..]);
        prop_assert!(view.options[options.len()..].iter().all(|byte| *byte == 0));
        for cut in 0..end {
            prop_assert_eq!(ipv4::Datagram::parse(&packet[..cut]), Err(ParseError::Truncated));
        }
        packet[15] ^= 1;
        prop_assert_eq!(ipv4::Datagram::parse(&packet), Err(ParseError::BadChecksum));
    }

    #[test]
    fn ipv6(header in ipv6_header(), payload in bytes(60), padding in bytes(9)) {
        refuses_small_buffers(40, |out| header.write(payload.len(), out));
        let mut packet = vec![0xaa; 40];
        header.write(payload.len(), &mut packet).unwrap();
        packet.extend(&payload);
        let end = packet.len();
        packet.extend(&padding);
        let view = ipv6::Datagram::parse(&packet).unwrap();
        prop_assert_eq!((view.header, view.payload), (header, &payload[..]));
        prop_assert_eq!((view.chain.protocol, view.extensions), (header.next_header, &[][..]));
        for cut in 0..end {
            prop_assert_eq!(ipv6::Datagram::parse(&packet[..cut]), Err(ParseError::Truncated));
        }
    }

    #[test]
    fn icmpv4_messages(which in 0..7usize, a in any::<u16>(), b in any::<u16>(), data in bytes(60)) {
        use icmpv4::Message;
        let (data, code) = (&data[..], a as u8);
        let message = match which {
            0 => Message::EchoRequest { id: a, seq: b, data },
            1 => Message::EchoReply { id: a, seq: b, data },
            2 => Message::Unreachable { code: if code == 4 { 3 } else { code }, quote: data },
            3 => Message::FragmentationNeeded { mtu: a, quote: data },
            4 => Message::TimeExceeded { code, quote: data },
            5 => Message::ParameterProblem { code, pointer: b as u8, quote: data },
            _ => Message::Unknown { kind: 13 + (b % 200) as u8, code, rest: [1, 2, 3, code], data },
        };
        let mut out = vec![0; 8 + data.len()];
        refuses_small_buffers(out.len(), |out| message.write(out));
        message.write(&mut out).unwrap();
        prop_assert_eq!(Message::parse(&out), Ok(message));
        prop_assert_eq!(Message::parse(&out[..7]), Err(ParseError::Truncated));
        out[5] ^= 1;
        prop_assert_eq!(Message::parse(&out), Err(ParseError::BadChecksum));
    }

    #[test]
    fn icmpv6_messages(
        which in 0..9usize,
        addrs in (addr_v6(), addr_v6(), addr_v6()),
        link in any::<Option<[u8; 6]>>(),
        bits in any::<(u32, bool, bool, bool)>(),
        data in bytes(60),
    ) {
        use icmpv6::Message;
        let (src, dst, target) = (addrs.0, addrs.1, Ipv6Addr::from_bits(addrs.2.to_bits() & !(1 << 127)));
        let (word, router, solicited, overriding) = bits;
        let (data, code, link) = (&data[..], word as u8, link.map(MacAddr));
        let message = match which {
            0 => Message::EchoRequest { id: word as u16, seq: 7, data },
            1 => Message::EchoReply { id: word as u16, seq: 7, data },
            2 => Message::Unreachable { code, quote: data },
            3 => Message::PacketTooBig { mtu: word, quote: data },
            4 => Message::TimeExceeded { code, quote: data },
            5 => Message::ParameterProblem { code, pointer: word, quote: data },
            6 => Message::NeighbourSolicitation { target, source_link: link },
            7 => Message::NeighbourAdvertisement { target, router, solicited, overriding, target_link: link },
            _ => Message::Unknown { kind: 5 + (word % 120) as u8, code, rest: [1, 2, 3, code], data },
        };
        let mut out = vec![0; 100];
        let len = message.write(src, dst, &mut out).unwrap();
        refuses_small_buffers(len, |out| message.write(src, dst, out));
        prop_assert_eq!(Message::parse(&out[..len], src, dst), Ok(message));
        prop_assert_eq!(Message::parse(&out[..7], src, dst), Err(ParseError::Truncated));
        let other = Ipv6Addr::from_bits(dst.to_bits() ^ 1);
        prop_assert_eq!(Message::parse(&out[..len], src, other), Err(ParseError::BadChecksum));
    }
}

#[test]
fn ethernet_with_a_third_tag_shows_it_as_ethertype() {
    let mut frame = vec![0; 12];
    frame.extend([0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0]);
    let (header, rest) = eth::Header::parse(&frame).unwrap();
    assert_eq!((header.vlan.len(), header.ether_type, rest.len()), (2, 0x8100, 4));
    assert_eq!(header.vlan.as_slice().iter().map(|tag| tag.vid()).collect::<Vec<_>>(), [1, 2]);
    for cut in 0..22 {
        assert_eq!(eth::Header::parse(&frame[..cut]), Err(ParseError::Truncated));
    }
}

#[test]
fn ipv4_length_and_version_errors() {
    let header = ipv4::Header::atomic(64, 1, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
    let mut out = [0; 64];
    assert_eq!(header.write(&[0; 41], 0, &mut out), Err(BuildError::TooLong));
    assert_eq!(header.write(&[], 65_516, &mut out), Err(BuildError::TooLong));
    assert_eq!(header.write(&[], 8, &mut out), Ok(20));
    let broken = |at: usize, value: u8| {
        let mut packet = out;
        packet[at] = value;
        ipv4::Datagram::parse(&packet).map(|view| view.header)
    };
    assert_eq!(broken(0, 0x65), Err(ParseError::BadFormat));
    assert_eq!(broken(0, 0x44), Err(ParseError::BadLength));
    assert_eq!(broken(3, 19), Err(ParseError::BadLength));
}

#[test]
fn ipv4_options_are_walked_and_broken_lists_reported() {
    let options = |bytes: &[u8]| {
        let header = ipv4::Header {
            traffic_class: 0,
            id: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 1,
            protocol: 6,
            src: Ipv4Addr::LOCALHOST,
            dst: Ipv4Addr::LOCALHOST,
        };
        let mut out = [0; 60];
        let len = header.write(bytes, 0, &mut out).unwrap();
        let view = ipv4::Datagram::parse(&out[..len]).unwrap();
        view.options().map(|option| option.map(|option| (option.kind, option.data.to_vec()))).collect::<Vec<_>>()
    };
    // Router alert, no operation, record route with one slot, end, rubbish.
    let list = options(&[148, 4, 0, 0, 1, 7, 7, 4, 0, 0, 0, 0, 0, 9, 9, 9]);
    assert_eq!(list, [Ok((148, vec![0, 0])), Ok((7, vec![4, 0, 0, 0, 0]))]);
    for broken in [[148, 0, 1, 1], [148, 1, 1, 1], [148, 5, 1, 1], [1, 1, 1, 148]] {
        assert_eq!(options(&broken).last(), Some(&Err(ParseError::BadLength)), "{broken:?}");
    }
}

#[test]
fn ipv6_extension_headers_are_walked_up_to_eight() {
    let chain = |count: usize| {
        let mut data = Vec::new();
        for i in 0..count {
            data.extend([if i + 1 == count { 6 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        ipv6::walk_extensions(if count == 0 { 6 } else { 60 }, &data)
    };
    for count in 0..=8 {
        let walked = chain(count).unwrap();
        assert_eq!((walked.protocol, walked.len, walked.count), (6, 8 * count, count));
    }
    assert_eq!(chain(9), Err(ParseError::TooManyExtensions));
    // A routing header of 16 bytes of which 8 are there.
    assert_eq!(ipv6::walk_extensions(43, &[6, 1, 0, 0, 0, 0, 0, 0]), Err(ParseError::Truncated));
    // The first fragment is walked through, a later one not.
    let first = ipv6::walk_extensions(44, &[60, 0, 0, 1, 0, 0, 0, 9, 6, 0, 1, 4, 0, 0, 0, 0]).unwrap();
    assert_eq!((first.protocol, first.len), (6, 16));
    assert_eq!(first.fragment, Some(ipv6::FragmentInfo { offset: 0, more: true, id: 9 }));
    let later = ipv6::walk_extensions(44, &[60, 0, 0, 8, 0, 0, 0, 9, 6, 0, 1, 4, 0, 0, 0, 0]).unwrap();
    assert_eq!((later.protocol, later.len), (60, 8));
    assert_eq!(later.fragment, Some(ipv6::FragmentInfo { offset: 8, more: false, id: 9 }));
}

#[test]
fn neighbour_discovery_options_of_impossible_length_are_refused() {
    let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    let target = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let parse = |target: Ipv6Addr, options: &[u8]| {
        let data = [&target.octets(), options].concat();
        let mut out = [0; 100];
        let message = icmpv6::Message::Unknown { kind: 135, code: 0, rest: [0; 4], data: &data };
        let len = message.write(src, dst, &mut out).unwrap();
        icmpv6::Message::parse(&out[..len], src, dst).map(|message| format!("{message:?}"))
    };
    let address = [1, 1, 2, 0, 0, 0, 0, 7];
    assert!(parse(target, &address).unwrap().contains("02:00:00:00:00:07"));
    // An option of another kind before it is passed over.
    assert!(parse(target, &[&[14, 1, 0, 0, 0, 0, 0, 0][..], &address].concat()).unwrap().contains("02:00:00:00:00:07"));
    for broken in [&[1, 0, 2, 0, 0, 0, 0, 7][..], &[1, 2, 2, 0, 0, 0, 0, 7], &[1], &[1, 1, 2]] {
        assert_eq!(parse(target, broken), Err(ParseError::BadLength), "{broken:?}");
    }
    assert_eq!(parse(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), &address), Err(ParseError::BadFormat));
}

#[test]
fn multicast_addresses_of_neighbour_discovery() {
    let addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x12, 0x3456);
    let group = ipv6::solicited_node(addr);
    assert_eq!(group, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff12, 0x3456));
    assert_eq!(MacAddr::ipv6_multicast(group).to_string(), "33:33:ff:12:34:56");
    assert!(MacAddr::BROADCAST.is_multicast() && !MacAddr([2, 0, 0, 0, 0, 1]).is_multicast());
}
