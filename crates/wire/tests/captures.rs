//! Real and crafted captures: the fast parse against another implementation of
//! the same formats (`etherparse`), and the verdicts it must give.

mod support;

use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::packet::{Checks, Link, Packet, Reject};
use baton_wire::tcp::options::TcpOption;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use std::collections::BTreeMap;
use std::net::IpAddr;
use support::{Capture, capture, captures};

/// Whatever a capture kept: snapped frames and checksums left to a NIC.
const LENIENT: Checks = Checks { ip_checksum: false, whole: false };

fn link(capture: &Capture) -> Link {
    if capture.ethernet { Link::Ethernet } else { Link::Ip }
}

fn oracle(frame: &[u8], ethernet: bool) -> Option<SlicedPacket<'_>> {
    if ethernet { SlicedPacket::from_ethernet(frame).ok() } else { SlicedPacket::from_ip(frame).ok() }
}

#[test]
fn the_fast_parse_sees_what_another_implementation_sees() {
    let mut compared = 0;
    // Frames with a length of 0 in the IP header, which the oracle takes for all there is.
    let zero_length = |name: &str| name.starts_with("bigtcp") || name == "tso-http.pcap";
    for capture in captures().into_iter().filter(|capture| !zero_length(&capture.name)) {
        for (number, frame) in capture.frames.iter().enumerate() {
            let Some(sliced) = oracle(&frame.data, capture.ethernet) else { continue };
            let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { continue };
            let place = format!("{} frame {}", capture.name, number + 1);
            let packet = Packet::parse_with(&frame.data, link(&capture), Checks { whole: true, ip_checksum: false })
                .unwrap_or_else(|reject| panic!("{place}: {reject:?}"));
            let (src, dst): (IpAddr, IpAddr) = match sliced.net.as_ref().expect("TCP is over IP") {
                NetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
                NetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
                NetSlice::Arp(_) => panic!("{place}: TCP over ARP"),
            };
            assert_eq!((packet.src, packet.dst), (Addr::from(src), Addr::from(dst)), "{place}");
            assert_eq!(packet.src_port, tcp.source_port(), "{place}");
            assert_eq!(packet.dst_port, tcp.destination_port(), "{place}");
            assert_eq!(packet.seq.0, tcp.sequence_number(), "{place}");
            assert_eq!(packet.ack.0, tcp.acknowledgment_number(), "{place}");
            assert_eq!(packet.window, tcp.window_size(), "{place}");
            assert_eq!(packet.urgent, tcp.urgent_pointer(), "{place}");
            let flags =
                [tcp.fin(), tcp.syn(), tcp.rst(), tcp.psh(), tcp.ack(), tcp.urg(), tcp.ece(), tcp.cwr(), tcp.ns()];
            let bits = flags.iter().enumerate().fold(0, |bits, (bit, set)| bits | u16::from(*set) << bit);
            assert_eq!(packet.flags.0, bits, "{place}");
            assert_eq!(packet.payload(&frame.data), tcp.payload(), "{place}");
            assert_eq!(packet.vlan.len(), sliced.vlan_ids().len(), "{place}");
            options_agree(&packet, &frame.data, tcp, &place);
            compared += 1;
        }
    }
    // If the oracle stopped seeing TCP, the test would pass on nothing.
    assert!(compared > 1400, "{compared} segments compared");
}

/// Where the oracle reads an option of the list, we read the same.
fn options_agree(packet: &Packet, frame: &[u8], tcp: &etherparse::TcpSlice<'_>, place: &str) {
    use etherparse::TcpOptionElement as Theirs;
    let mut ours = packet.options(frame);
    for theirs in tcp.options_iterator() {
        let Ok(theirs) = theirs else { return };
        if theirs == Theirs::Noop {
            continue;
        }
        let ours = ours.next().unwrap_or_else(|| panic!("{place}: no option for {theirs:?}"));
        let same = match (ours, theirs.clone()) {
            (Ok(TcpOption::Mss(ours)), Theirs::MaximumSegmentSize(theirs)) => ours == theirs,
            (Ok(TcpOption::WindowScale(ours)), Theirs::WindowScale(theirs)) => ours == theirs,
            (Ok(TcpOption::SackPermitted), Theirs::SelectiveAcknowledgementPermitted) => true,
            (Ok(TcpOption::Sack(ours)), Theirs::SelectiveAcknowledgement(first, rest)) => {
                let theirs: Vec<_> = std::iter::once(first).chain(rest.into_iter().flatten()).collect();
                ours.as_slice().iter().map(|(start, end)| (start.0, end.0)).eq(theirs)
            }
            (Ok(TcpOption::Timestamps(ours)), Theirs::Timestamp(val, ecr)) => (ours.val, ours.ecr) == (val, ecr),
            _ => false,
        };
        assert!(same, "{place}: {ours:?} is not {theirs:?}");
    }
}

#[test]
fn checksums_of_a_capture_without_offload_are_right() {
    // tests: MUST-3
    for name in ["ipv6-four-http-streams.pcap", "tcp-handshake-reorder.pcap", "mptcp-v0.pcap", "urgent-oob.pcap"] {
        let capture = capture(name);
        for (number, frame) in capture.frames.iter().enumerate() {
            let packet = Packet::parse(&frame.data, link(&capture)).unwrap();
            let sum = packet.header_sum(&frame.data) + checksum::sum(packet.payload(&frame.data));
            assert_eq!(checksum::fold(sum), 0xffff, "{name} frame {}", number + 1);
            let mut changed = frame.data.clone();
            changed[usize::from(packet.tcp_offset) + 4] ^= 0x10;
            let sum = packet.header_sum(&changed) + checksum::sum(packet.payload(&changed));
            assert_ne!(checksum::fold(sum), 0xffff, "{name} frame {} changed", number + 1);
        }
    }
}

/// Counts of verdicts for each capture: a row is `name: ok n, reason n, ...`.
fn verdicts(checks: Checks) -> BTreeMap<String, String> {
    captures()
        .iter()
        .map(|capture| {
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            for frame in &capture.frames {
                let verdict = match Packet::parse_with(&frame.data, link(capture), checks) {
                    Ok(_) => "ok".to_owned(),
                    Err(reject) => format!("{reject:?}"),
                };
                *counts.entry(verdict).or_default() += 1;
            }
            let row: Vec<String> = counts.iter().map(|(verdict, count)| format!("{verdict} {count}")).collect();
            (capture.name.clone(), row.join(", "))
        })
        .collect()
}

// tests: MUST-50
#[test]
fn every_crafted_frame_gets_its_verdict() {
    let strict = verdicts(Checks::ALL);
    let expected = [
        ("bad-heapoverflow-tcp.pcap", "Malformed 1"),
        ("bad-ipv6-39-bytes.pcap", "Malformed 1"),
        ("bad-ipv6-frag-negative.pcap", "Malformed 1"),
        ("bad-ipv6-version.pcap", "Malformed 2, NotTcp 2"),
        ("bigtcp-ipv4.pcap", "Malformed 1"),
        ("bigtcp-ipv6-hbh.pcap", "Malformed 1"),
        ("bigtcp-ipv6.pcap", "Malformed 1"),
        ("frag-ipv4.pcap", "NotTcp 53"),
        ("ip-options.pcap", "ok 8"),
        ("tcp-rst-data-trunc.pcap", "Malformed 1"),
        ("tso-http.pcap", "Malformed 1"),
        ("bad-tcp-all-flags.pcap", "ok 1"),
    ];
    for (name, expected) in expected {
        assert_eq!(strict[name], expected, "{name}");
    }
}

#[test]
fn snapped_captures_parse_when_only_headers_are_asked_for() {
    for name in ["tcp-timestamp-snapped.pcap", "tcp-retransmit-fast.pcap", "tcp-truncated-header.pcap"] {
        let capture = capture(name);
        let snapped = capture.frames.iter().filter(|frame| frame.snapped).count();
        let count = |checks| {
            capture
                .frames
                .iter()
                .filter(|frame| Packet::parse_with(&frame.data, Link::Ethernet, checks).is_ok())
                .count()
        };
        let (strict, lenient) = (count(Checks { whole: true, ..LENIENT }), count(LENIENT));
        assert!(
            snapped > 0 && strict + snapped >= lenient && lenient > strict,
            "{name}: {strict}, {lenient}, {snapped}"
        );
    }
}

#[test]
fn no_prefix_of_a_frame_panics_or_is_taken_for_the_whole() {
    for capture in captures() {
        for frame in capture.frames.iter().take(20).filter(|frame| frame.data.len() < 2000) {
            let Ok(packet) = Packet::parse(&frame.data, link(&capture)) else { continue };
            let end = usize::from(packet.payload_offset) + packet.payload_len as usize;
            for cut in 0..frame.data.len() {
                let prefix = &frame.data[..cut];
                let parsed = Packet::parse(prefix, link(&capture));
                let expected = match cut {
                    // Only padding is cut off.
                    cut if cut >= end => Ok(packet),
                    cut if cut < usize::from(packet.ip_offset) || cut == 0 => Err(Reject::NotIp),
                    _ => Err(Reject::Malformed),
                };
                assert_eq!(parsed, expected, "{} cut at {cut}", capture.name);
                if let Ok(packet) = Packet::parse_with(prefix, link(&capture), LENIENT) {
                    assert!(packet.payload(prefix).len() <= packet.payload_len as usize);
                }
            }
        }
    }
}
