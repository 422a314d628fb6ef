//! From the host to the wire.

mod rig;

use baton_port::vnet::{GSO_TCPV4, NEEDS_CSUM, Vnet};
use baton_wire::checksum;
use baton_wire::packet::PROTOCOL_TCP;
use baton_wire::tcp::Flags;
use rig::{Rig, Seg, Sent, assert_checksum, parse, rig};

/// Brings `count` segments of 10 bytes from sequence number 0 on to the host.
fn bring(bump: &mut Rig, port: u16, count: u32) {
    bump.wire().inbox.extend((0..count).map(|n| Seg::data(port, n * 10, &[0; 10]).sent()));
    bump.poll(0).unwrap();
    bump.host().sent.clear();
}

fn leave(bump: &mut Rig, frames: impl IntoIterator<Item = Sent>) -> Vec<Sent> {
    bump.host().inbox.extend(frames);
    while bump.poll(0).unwrap() {}
    std::mem::take(&mut bump.wire().sent)
}

fn acks(frames: &[Sent]) -> Vec<u32> {
    frames.iter().map(|(_, frame)| parse(frame).ack.0).collect()
}

/// The same frame with its checksum left out, as a kernel hands it to a TAP device.
fn partial(seg: &Seg) -> Sent {
    let mut frame = seg.frame();
    let packet = parse(&frame);
    let at = usize::from(packet.tcp_offset);
    let len = (frame.len() - at) as u32;
    let pseudo = checksum::fold(checksum::pseudo(packet.src, packet.dst, PROTOCOL_TCP, len));
    frame[at + 16..at + 18].copy_from_slice(&pseudo.to_be_bytes());
    (Vnet { flags: NEEDS_CSUM, checksum_start: at as u16, checksum_offset: 16, ..Vnet::default() }, frame)
}

#[test]
fn an_ack_of_a_run_becomes_one_for_every_second_segment() {
    for partial_checksum in [false, true] {
        let mut bump = rig(20);
        bring(&mut bump, 9, 7);
        let ack = Seg::ack(9, 70);
        let out = leave(&mut bump, [if partial_checksum { partial(&ack) } else { ack.sent() }]);
        assert_eq!(acks(&out), [20, 40, 60, 70]);
        out.iter().for_each(assert_checksum);
        assert_eq!((bump.counters().acks_expanded, bump.counters().acks_made), (1, 3));
        // Nothing is left of them.
        assert_eq!(acks(&leave(&mut bump, [ack.sent()])), [70]);
    }
}

#[test]
fn what_is_more_than_an_ack_goes_as_it_is_and_acknowledges() {
    let fin = Seg { flags: Flags::ACK | Flags::FIN, ..Seg::ack(9, 40) };
    let data = Seg { payload: vec![1; 20], ..Seg::ack(9, 40) };
    for seg in [fin, data] {
        let mut bump = rig(20);
        bring(&mut bump, 9, 6);
        assert_eq!(leave(&mut bump, [seg.sent()]), [seg.sent()]);
        assert_eq!(acks(&leave(&mut bump, [Seg::ack(9, 60).sent()])), [60]);
    }
}

#[test]
fn a_connection_that_begins_anew_is_a_new_one() {
    let mut bump = rig(20);
    bring(&mut bump, 9, 6);
    let syn = Seg { flags: Flags::SYN, ..Seg::data(9, 4_000_000, &[]) };
    bump.wire().inbox.push_back(syn.sent());
    assert_eq!(acks(&leave(&mut bump, [Seg::ack(9, 60).sent()])), [60]);
}

#[test]
fn every_connection_has_its_own_acks() {
    let mut bump = rig(20);
    bring(&mut bump, 1, 4);
    bring(&mut bump, 2, 4);
    let tagged = Seg { vlan: Some(7), ..Seg::ack(1, 40) };
    assert_eq!(acks(&leave(&mut bump, [tagged.sent()])), [40], "of another VLAN");
    assert_eq!(acks(&leave(&mut bump, [Seg::ack(2, 40).sent(), Seg::ack(1, 30).sent()])), [20, 40, 20, 30]);
}

#[test]
fn what_is_no_ack_passes_unchanged() {
    let vnet = Vnet {
        flags: NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        header_len: 66,
        gso_size: 1448,
        checksum_start: 34,
        checksum_offset: 16,
    };
    let long = (vnet, Seg { payload: vec![1; 9000], ..Seg::ack(9, 5) }.frame());
    let arp = (Vnet::default(), [&[0xff; 6][..], &[2; 6], &[8, 6], &[0; 46]].concat());
    let frames = [arp, long, (Vnet::default(), vec![0; 14])];
    assert_eq!(leave(&mut rig(20), frames.clone()), frames);
}

#[test]
fn a_full_wire_pushes_back_and_loses_nothing() {
    let mut bump = rig(20);
    bring(&mut bump, 9, 6);
    bump.wire().room = Some(1);
    let frames = [Seg::ack(9, 60).sent(), Seg::ack(8, 1).sent(), Seg::ack(8, 2).sent()];
    let mut out = leave(&mut bump, frames);
    assert_eq!(acks(&out), [20]);
    assert!(bump.is_stuck());
    assert_eq!(bump.host().inbox.len(), 2, "the host waits");
    // Frames from the wire meanwhile do not wait.
    bump.wire().inbox.push_back(Seg::data(9, 60, &[0; 10]).sent());
    assert!(bump.poll(0).unwrap());
    assert_eq!(bump.host().sent.len(), 1);
    while bump.is_stuck() || !bump.host().inbox.is_empty() {
        bump.wire().room = Some(1);
        out.extend(leave(&mut bump, []));
    }
    assert_eq!(acks(&out), [20, 40, 60, 1, 2]);
}

#[test]
fn acks_do_not_pile_up_behind_what_they_answer() {
    let mut bump = rig(1);
    bump.wire().inbox.extend((0..2000).map(|n| Seg::data(n, 0, &[0; 10]).sent()));
    bump.host().inbox.extend((0..2000).map(|n| Seg::ack(n, 10).sent()));
    while bump.poll(0).unwrap() {
        assert_eq!(bump.wire().inbox.len(), bump.host().inbox.len());
    }
}
