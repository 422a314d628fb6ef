//! Each rule on its own: a table of short inputs and what has to come out.

mod pair;
mod slow;
mod traffic;

use pair::Pair;
use slow::{Frame, Out, Rules, Slow, Window};
use traffic::build::{Ip, Packet};

const RSC: Rules = Rules { rsc: true, cache: 4, buffer: 8192, limit: None, window: Window::Frames(20), verify: false };
const RA: Rules = Rules { rsc: false, limit: Some(20), ..RSC };

/// The `n`th segment of 1000 bytes of a connection.
fn nth(n: u32) -> Packet {
    Packet { seq: 5000 + 1000 * n, payload: 1000, ..Packet::default() }
}

/// Of another connection.
fn other(port: u16, n: u32) -> Packet {
    Packet { src_port: port, ..nth(n) }
}

fn v6() -> Ip {
    Ip::V6 { src: [1; 16], dst: [2; 16] }
}

fn frame(packet: &Packet) -> Frame {
    let bytes = packet.build(1);
    Frame { wire_len: bytes.len(), bytes, time_ns: 0, link_type: 1 }
}

/// The output as words: `run 0 1`, `psh_alone 2`. Both coalescers have to say so.
fn out(rules: Rules, frames: &[Frame]) -> String {
    let words = |out: &[Out]| {
        let word = |out: &Out| match out {
            Out::Alone(at, reason) => format!("{reason} {at}"),
            Out::Run(frames) => {
                let frames: Vec<_> = frames.iter().map(ToString::to_string).collect();
                format!("run {}", frames.join(" "))
            }
        };
        out.iter().map(word).collect::<Vec<_>>().join(", ")
    };
    let mut slow = Slow::new(rules);
    frames.iter().for_each(|frame| slow.frame(frame));
    let (report, slow) = slow.finish();
    let (ours, our_out) = Pair::run(rules, frames);
    assert_eq!((words(&our_out), ours), (words(&slow), report));
    words(&our_out)
}

fn packets(rules: Rules, packets: &[Packet]) -> String {
    out(rules, &packets.iter().map(frame).collect::<Vec<_>>())
}

#[test]
fn segments_that_follow_each_other_merge_and_others_start_anew() {
    let second = |change: fn(&mut Packet)| {
        let mut packet = nth(1);
        change(&mut packet);
        packet
    };
    for (name, packet, merges) in [
        ("next", nth(1), true),
        ("a gap", nth(2), false),
        ("sent again", nth(0), false),
        ("acknowledges more", second(|p| p.ack += 1), true),
        ("acknowledges less", second(|p| p.ack -= 1), false),
        ("has timestamps", second(|p| p.ts = Some((1, 1))), false),
        ("other traffic class", second(|p| p.class = 4), false),
        ("congestion experienced", second(|p| p.class = 3), false),
        ("other time to live", second(|p| p.ttl = 3), true),
        ("other identification, DF clear", second(|p| (p.ip_id, p.fragment) = (77, Some(0))), true),
        ("other window", second(|p| p.window = 1), true),
        ("padding as its only options", second(|p| p.options = vec![1, 1, 0, 9]), true),
        ("other source port", second(|p| p.src_port = 9), false),
        ("other destination port", second(|p| p.dst_port = 9), false),
        ("other tag", second(|p| p.tags = vec![[0x81, 0, 0, 1]]), false),
    ] {
        let two = if merges { "run 0 1" } else { "run 0, run 1" };
        assert_eq!(packets(RSC, &[nth(0), packet.clone()]), two, "{name}");
        assert_eq!(packets(RA, &[nth(0), packet]), two, "{name}");
    }
}

#[test]
fn timestamps_do_not_go_back() {
    let with = |n, val| Packet { ts: Some((val, 9)), ..nth(n) };
    for (first, second, merges) in
        [(5, 5, true), (5, 6, true), (6, 5, false), (u32::MAX, 0, true), (0, u32::MAX, false)]
    {
        let two = if merges { "run 0 1" } else { "run 0, run 1" };
        assert_eq!(packets(RA, &[with(0, first), with(1, second)]), two, "{first} {second}");
    }
    assert_eq!(packets(RA, &[with(0, 1), nth(1)]), "run 0, run 1", "none after some");
    // In whatever place among the options, and the last of two.
    let odd = |n, val| Packet { options: vec![8, 10, 0, 0, 0, val, 0, 0, 0, 0, 0, 9], ..nth(n) };
    assert_eq!(packets(RA, &[odd(0, 5), with(1, 6), odd(2, 5)]), "run 0 1, run 2");
}

#[test]
fn sequence_and_acknowledgment_go_around_the_circle() {
    let at = |seq, ack| Packet { seq, ack, ..nth(0) };
    let start = u32::MAX - 499;
    assert_eq!(packets(RSC, &[at(start, u32::MAX), at(500, 3), at(1500, 2)]), "run 0 1, run 2");
}

#[test]
fn every_bypass_has_its_reason_and_its_place_in_the_order_of_tests() {
    let p = || nth(1);
    let short = vec![8, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
    for (reason, packet) in [
        ("not_ip", Packet { ether_type: 0x0806, ..p() }),
        ("not_ip", Packet { tags: vec![[0x81, 0, 0, 1]; 5], ..p() }),
        ("malformed", Packet { ether_type: 0x86dd, ..p() }),
        ("malformed", Packet { ip: v6(), extensions: vec![60; 9], ..p() }),
        ("not_tcp", Packet { protocol: 17, ip_options: 4, ..p() }),
        ("not_tcp", Packet { protocol: 17, fragment: Some(0x2000), ..p() }),
        ("fragment", Packet { fragment: Some(0x2000), ip_options: 8, ..p() }),
        ("fragment", Packet { fragment: Some(0x0001), ..p() }),
        ("fragment", Packet { ip: v6(), extensions: vec![44], ..p() }),
        ("ip_options", Packet { ip_options: 4, flags: 2, ..p() }),
        ("ip_options", Packet { ip: v6(), extensions: vec![0, 51, 60], ..p() }),
        ("flags", Packet { flags: 0x11, options: short.clone(), ..p() }),
        ("flags", Packet { flags: 0x18 | 0x40, ..p() }),
        ("flags", Packet { flags: 0x110, ..p() }),
        ("flags", Packet { flags: 0x210, ..p() }),
        ("flags", Packet { flags: 0x08, ..p() }),
        ("tcp_options", Packet { options: vec![5, 2, 1, 1], payload: 0, ..p() }),
        ("tcp_options", Packet { options: short, ..p() }),
        ("tcp_options", Packet { options: vec![1, 1, 1, 8], ..p() }),
        ("no_payload", Packet { payload: 0, ..p() }),
    ] {
        let said = packets(RA, std::slice::from_ref(&packet));
        assert_eq!(said, format!("{reason} 0"), "{packet:?}");
        let tagged = Packet { tags: [vec![[0x88, 0xa8, 0, 1]], packet.tags.clone()].concat(), ..packet };
        assert_eq!(packets(RA, &[tagged]), said, "behind a tag");
    }
}

#[test]
fn lengths_that_contradict_each_other_are_malformed() {
    let good = frame(&nth(0));
    for (name, at, bytes) in [
        ("IHL below 5", 14, &[0x44][..]),
        ("another version", 14, &[0x65]),
        ("total length below the header", 16, &[0, 19]),
        ("IP payload shorter than a TCP header", 16, &[0, 39]),
        ("TCP data offset below 5", 46, &[0x40]),
    ] {
        let mut bad = good.clone();
        bad.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(out(RSC, &[good.clone(), bad]), "malformed 1, run 0", "{name}: no run is touched");
    }
    // The data offset past the IP payload, which itself is within the frame.
    let mut bad = good.clone();
    bad.bytes[16..18].copy_from_slice(&[0, 43]);
    bad.bytes[46] = 0x60;
    assert_eq!(out(RSC, &[bad]), "malformed 0");
    // Cut off within link, IP, TCP header; after that, lengths come from IP.
    for (cut, said) in
        [(13, "not_ip 0"), (14, "malformed 0"), (33, "malformed 0"), (53, "malformed 0"), (54, "run 0 1")]
    {
        let mut first = good.clone();
        first.bytes.truncate(cut);
        let all = [first, frame(&nth(1))];
        assert_eq!(out(RSC, &all[..if cut == 54 { 2 } else { 1 }]), said, "{cut}");
    }
}

#[test]
fn a_length_of_0_means_the_frame_on_the_wire() {
    for (packet, field) in [(nth(0), 16), (Packet { ip: v6(), ..nth(0) }, 18)] {
        let next = frame(&Packet { ip: packet.ip, ..nth(1) });
        let mut first = frame(&packet);
        first.bytes[field..field + 2].fill(0);
        assert_eq!(out(RSC, &[first.clone(), next.clone()]), "run 0 1");
        first.bytes.truncate(80);
        assert_eq!(out(RSC, &[first.clone(), next.clone()]), "run 0 1");
        first.wire_len += 7;
        assert_eq!(out(RSC, &[first, next]), "run 0, run 1");
    }
    // BIG TCP: beyond what an IP length says.
    let mut big = frame(&nth(0));
    big.bytes[16..18].fill(0);
    big.wire_len = 80_000;
    assert_eq!(out(RA, &[big.clone()]), "too_big 0");
    assert_eq!(out(Rules { buffer: 100_000, ..RSC }, &[big]), "run 0");
}

#[test]
fn a_frame_that_goes_on_alone_flushes_its_connection_and_no_other() {
    let bypass = |packet: Packet| packets(RA, &[nth(0), other(7, 0), packet, nth(1), other(7, 1)]);
    for packet in [
        Packet { flags: 0x11, ..nth(1) },
        Packet { payload: 0, ..nth(1) },
        Packet { ip_options: 4, ..nth(1) },
        Packet { fragment: Some(0x2000), ..nth(1) },
    ] {
        let said = bypass(packet);
        assert!(said.starts_with("run 0, ") && said.ends_with(" 2, run 3, run 1 4"), "{said}");
    }
    for packet in [
        Packet { fragment: Some(1), ..nth(1) },
        Packet { protocol: 17, ..nth(1) },
        Packet { src_port: 99, payload: 0, ..nth(1) },
        Packet { tags: vec![[0x81, 0, 0, 1]], payload: 0, ..nth(1) },
    ] {
        let said = bypass(packet);
        assert!(said.ends_with(" 2, run 0 3, run 1 4"), "{said}");
    }
}

#[test]
fn checksums_matter_where_they_are_verified() {
    let verify = |rsc: Rules| Rules { verify: true, ..rsc };
    for packet in [
        Packet { bad_ip_sum: true, ..nth(1) },
        Packet { bad_tcp_sum: true, ..nth(1) },
        Packet { ip: v6(), bad_tcp_sum: true, ..nth(1) },
    ] {
        let first = Packet { ip: packet.ip, ..nth(0) };
        assert_eq!(packets(RSC, &[first.clone(), packet.clone()]), "run 0 1");
        assert_eq!(packets(verify(RSC), &[first, packet]), "run 0, checksum 1");
    }
    assert_eq!(packets(verify(RSC), &[nth(0), Packet { payload: 999, ..nth(1) }]), "run 0 1");
    let mut cut = frame(&nth(0));
    cut.bytes.pop();
    assert_eq!(out(verify(RSC), &[cut.clone()]), "checksum 0");
    assert_eq!(out(RSC, &[cut]), "run 0");
    // Padding of the link is not part of the segment.
    let mut padded = frame(&nth(0));
    padded.bytes.extend([0xff; 9]);
    assert_eq!(out(verify(RSC), &[padded]), "run 0");
}

#[test]
fn push_ends_a_run_of_rsc_and_is_nothing_to_ra() {
    let push = |packet: Packet| Packet { psh: true, ..packet };
    let [p0, p1, p2] = [0, 1, 2].map(|n| push(nth(n)));
    assert_eq!(packets(RSC, &[nth(0), p1.clone(), nth(2), nth(3)]), "run 0 1, run 2 3");
    assert_eq!(packets(RSC, &[p0.clone(), p1.clone()]), "psh_alone 0, psh_alone 1");
    // One that the run cannot take: its connection's run goes first, and none starts.
    assert_eq!(packets(RSC, &[nth(0), p2.clone(), nth(3)]), "run 0, psh_alone 1, run 2");
    let full = Rules { buffer: 1500, ..RSC };
    assert_eq!(packets(full, &[nth(0), p1.clone()]), "run 0, psh_alone 1");
    assert_eq!(
        packets(Rules { buffer: 999, ..RSC }, std::slice::from_ref(&p0)),
        "psh_alone 0",
        "before its size is looked at"
    );
    assert_eq!(packets(RA, &[p0, p1, nth(2), p2]), "run 0 1 2, run 3");
}

#[test]
fn size_and_count_bound_a_run() {
    let all: Vec<Packet> = (0..12).map(nth).collect();
    assert_eq!(packets(RSC, &all), "run 0 1 2 3 4 5 6 7, run 8 9 10 11");
    assert_eq!(packets(Rules { buffer: 3000, ..RSC }, &all[..7]), "run 0 1 2, run 3 4 5, run 6");
    assert_eq!(packets(Rules { buffer: 999, ..RSC }, &all[..2]), "too_big 0, too_big 1");
    assert_eq!(packets(Rules { limit: Some(5), ..RSC }, &all), "run 0 1 2 3 4, run 5 6 7 8 9, run 10 11");
    assert_eq!(packets(Rules { limit: Some(1), ..RA }, &all[..3]), "run 0, run 1, run 2");
    // 40 bytes of headers and 65,495 of payload; with timestamps 12 less; IPv6 20 less.
    for (extra, ip, ts) in [(0, nth(0).ip, None), (12, nth(0).ip, Some((1, 1))), (20, v6(), None)] {
        let most = 65_535 - 40 - extra;
        let of = |seq, payload| Packet { ip, ts, seq, payload, ..nth(0) };
        let first = 60_000;
        let second = |payload| of(first as u32, payload);
        assert_eq!(packets(RA, &[of(0, first), second(most - first)]), "run 0 1", "{ip:?} {ts:?}");
        assert_eq!(packets(RA, &[of(0, first), second(most - first + 1)]), "run 0, run 1", "{ip:?} {ts:?}");
    }
    let alone = |payload| Packet { ip: v6(), payload, ..nth(0) };
    assert_eq!(packets(RA, &[alone(65_475)]), "run 0");
    assert_eq!(packets(RA, &[alone(65_476)]), "too_big 0");
}

#[test]
fn a_run_that_reaches_its_limit_makes_room_at_once() {
    let rules = Rules { cache: 1, limit: Some(2), window: Window::End, ..RA };
    assert_eq!(packets(rules, &[nth(0), nth(1), other(7, 0), nth(2)]), "run 0 1, run 2, run 3");
}

#[test]
fn the_run_least_recently_appended_to_makes_room() {
    let rules = Rules { cache: 2, ..RA };
    let (a, b, c) = (|n| other(1, n), |n| other(2, n), |n| other(3, n));
    assert_eq!(packets(rules, &[a(0), b(0), a(1), c(0), a(2), b(1)]), "run 1, run 3, run 0 2 4, run 5");
    // A bypass is no append, and an eviction does not care whose frame it was.
    let ack = Packet { payload: 0, ..c(0) };
    assert_eq!(packets(rules, &[a(0), b(0), ack, c(0)]), "no_payload 2, run 0, run 1, run 3");
}

#[test]
fn a_window_counts_all_frames_and_ends_for_all_runs() {
    let ack = Packet { payload: 0, ..other(9, 0) };
    let rules = Rules { window: Window::Frames(4), ..RSC };
    let all = [nth(0), ack.clone(), other(7, 0), ack, nth(1), nth(2)];
    assert_eq!(packets(rules, &all), "no_payload 1, no_payload 3, run 0, run 2, run 4 5");
}

#[test]
fn a_window_in_time_begins_with_its_first_frame() {
    let at = |n: u32, time_ns| Frame { time_ns, ..frame(&nth(n)) };
    let rules = Rules { window: Window::Nanos(100), ..RSC };
    let said = |times: &[u64]| out(rules, &(0..).zip(times).map(|(n, time)| at(n, *time)).collect::<Vec<_>>());
    assert_eq!(said(&[50, 149, 150, 249, 250]), "run 0 1, run 2 3, run 4");
    assert_eq!(said(&[50, 1000, 1099, 1100]), "run 0, run 1 2, run 3");
    assert_eq!(said(&[50, 149, 20, 119, 120]), "run 0 1, run 2 3, run 4", "a clock that was set back");
}
