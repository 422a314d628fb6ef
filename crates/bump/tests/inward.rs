//! From the wire to the host.

mod rig;

use baton_port::vnet::{GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, Vnet};
use baton_wire::tcp::Flags;
use rig::{Rig, Seg, Sent, assert_checksum, parse, payload, rig};

fn arrive(bump: &mut Rig, frames: impl IntoIterator<Item = Sent>) -> Vec<Sent> {
    bump.wire().inbox.extend(frames);
    assert!(bump.poll(0).unwrap());
    assert!(!bump.poll(0).unwrap(), "nothing is left for later");
    std::mem::take(&mut bump.host().sent)
}

#[test]
fn segments_that_follow_each_other_arrive_as_one() {
    for (v6, vlan) in [(false, None), (true, None), (false, Some(5)), (true, Some(5))] {
        let parts = [vec![1; 1000], vec![2; 1000], vec![3; 400]];
        let mut segs = Vec::new();
        let mut seq = 100;
        for (at, part) in (0..).zip(&parts) {
            segs.push(Seg { v6, vlan, ack: 5000 + at, ts: Some(7 + at), ..Seg::data(9, seq, part) });
            seq += part.len() as u32;
        }
        let out = arrive(&mut rig(20), segs.iter().map(Seg::sent));
        assert_eq!(out.len(), 1, "{v6} {vlan:?}");
        let (vnet, frame) = &out[0];
        let packet = parse(frame);
        assert_eq!((packet.seq.0, packet.ack.0, packet.payload_len), (100, 5002, 2400));
        assert_eq!(packet.timestamps.map(|ts| ts.val), Some(9));
        assert_eq!(payload(frame), parts.concat());
        assert_eq!(vnet.gso_type, if v6 { GSO_TCPV6 } else { GSO_TCPV4 });
        assert_eq!((vnet.flags, vnet.gso_size, vnet.header_len), (NEEDS_CSUM, 1000, packet.payload_offset));
        assert_checksum(&out[0]);
    }
}

#[test]
fn a_limit_of_one_joins_nothing_and_a_limit_of_two_pairs() {
    for (limit, lens) in [(1, vec![10; 5]), (2, vec![20, 20, 10]), (3, vec![30, 20]), (20, vec![50])] {
        let out = arrive(&mut rig(limit), (0..5).map(|n| Seg::data(9, n * 10, &[n as u8; 10]).sent()));
        assert_eq!(out.iter().map(|(_, frame)| payload(frame).len()).collect::<Vec<_>>(), lens);
        out.iter().for_each(assert_checksum);
    }
}

#[test]
fn a_segment_alone_keeps_all_but_its_checksum() {
    let seg = Seg { flags: Flags::ACK | Flags::PSH, ..Seg::data(9, 1, b"hello") };
    let out = arrive(&mut rig(20), [seg.sent()]);
    assert_eq!((out[0].0.gso_type, out[0].0.flags), (0, NEEDS_CSUM));
    assert_checksum(&out[0]);
    let (mut ours, mut theirs) = (out[0].1.clone(), seg.frame());
    let at = usize::from(parse(&theirs).tcp_offset) + 16;
    ours[at..at + 2].fill(0);
    theirs[at..at + 2].fill(0);
    assert_eq!(ours, theirs);
}

#[test]
fn what_does_not_coalesce_passes_unchanged_and_in_order() {
    let arp = (Vnet::default(), [&[0xff; 6][..], &[2; 6], &[8, 6], &[0; 46]].concat());
    let mut udp = Seg::data(9, 0, &[1; 20]).frame();
    udp[23] = 17;
    let header = 14 + 20;
    udp[24..26].fill(0);
    let sum = !baton_wire::checksum::rfc1071(&udp[14..header]);
    udp[24..26].copy_from_slice(&sum.to_be_bytes());
    let udp = (Vnet { flags: NEEDS_CSUM, checksum_start: 34, checksum_offset: 6, ..Vnet::default() }, udp);
    let fin = Seg { flags: Flags::ACK | Flags::FIN, ..Seg::data(9, 10, &[]) };
    let wrong = {
        let mut frame = Seg::data(9, 10, &[4; 10]).frame();
        let last = frame.len() - 1;
        frame[last] ^= 1;
        (Vnet::default(), frame)
    };
    let data = Seg::data(9, 0, &[3; 10]);
    let frames = [data.sent(), arp.clone(), udp.clone(), wrong.clone(), fin.sent()];
    let out = arrive(&mut rig(20), frames);
    assert_eq!(out.len(), 5);
    // Frames of no connection pass at once; frames of this one do not overtake.
    assert_eq!(out[..2], [arp, udp]);
    assert_eq!(payload(&out[2].1), [3; 10]);
    assert_eq!(out[3..], [wrong, fin.sent()]);
}

#[test]
fn a_super_frame_passes_as_it_is_behind_what_came_before() {
    let vnet = Vnet {
        flags: NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        header_len: 66,
        gso_size: 1000,
        checksum_start: 34,
        checksum_offset: 16,
    };
    let long = (vnet, Seg::data(9, 10, &[2; 3000]).frame());
    let out =
        arrive(&mut rig(20), [Seg::data(9, 0, &[1; 10]).sent(), long.clone(), Seg::data(9, 3010, &[3; 10]).sent()]);
    assert_eq!(out.len(), 3);
    assert_eq!(out[1], long);
}

#[test]
fn a_full_host_loses_frames_and_counts_them() {
    let mut bump = rig(2);
    bump.host().room = Some(1);
    let out = arrive(&mut bump, (0..6).map(|n| Seg::data(9, n * 10, &[0; 10]).sent()));
    assert_eq!((out.len(), bump.counters().host_full, bump.counters().host_in), (1, 2, 1));
}

/// Bytes with their place in the stream, of every connection in the order in which they came.
fn bytes(frames: &[Sent]) -> std::collections::BTreeMap<u16, Vec<(u32, u8)>> {
    let mut all = std::collections::BTreeMap::<u16, Vec<(u32, u8)>>::new();
    for (_, frame) in frames {
        let packet = parse(frame);
        let stream = all.entry(packet.src_port).or_default();
        stream.extend((packet.seq.0..).zip(payload(frame).iter().copied()));
    }
    all
}

#[test]
fn loss_repetition_and_disorder_pass_through_unchanged() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut frames = Vec::new();
        let mut next = [0u32; 5];
        for _ in 0..random.usize(1..300) {
            let connection = random.usize(..next.len());
            let len = *random.choice(&[0, 1, 100, 1000, 1448]).unwrap();
            let payload: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
            let flags = if random.u8(..) < 20 { Flags::ACK | Flags::PSH } else { Flags::ACK };
            let flags = if random.u8(..) < 5 { flags | Flags::ECE } else { flags };
            let seg = Seg { flags, v6: connection == 0, ..Seg::data(connection as u16, next[connection], &payload) };
            next[connection] += len as u32;
            match random.u8(..) {
                0..10 => {}
                10..20 => frames.extend([seg.sent(), seg.sent()]),
                20..30 => frames.insert(random.usize(..=frames.len()), seg.sent()),
                _ => frames.push(seg.sent()),
            }
        }
        let mut bump = rig(random.u32(1..50));
        bump.wire().burst = random.usize(..100);
        bump.wire().inbox.extend(frames.iter().cloned());
        while bump.poll(0).unwrap() {}
        let out = std::mem::take(&mut bump.host().sent);
        assert_eq!(bytes(&out), bytes(&frames), "seed {seed}");
        out.iter().for_each(assert_checksum);
        assert!(bump.wire().sent.is_empty());
    }
}
