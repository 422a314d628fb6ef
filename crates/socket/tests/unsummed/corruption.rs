//! Damage on the way: nothing wrong is delivered where checksums were not given up, and what is
//! delivered where they were.

use crate::world::*;
use baton_wire::checksum;
use baton_wire::packet::{Link, Packet};
use baton_wire::tcp::unsummed;

/// Changes a data segment; `None` if the result cannot be told from a right one, or there is no data.
fn damaged(frame: &[u8], rng: &mut fastrand::Rng) -> Option<Vec<u8>> {
    let packet = Packet::parse(frame, Link::Ethernet).ok().filter(|packet| packet.payload_len > 0)?;
    let mut out = frame.to_vec();
    let payload = usize::from(packet.payload_offset);
    let end = payload + packet.payload_len as usize;
    for _ in 0..rng.usize(1..4) {
        out[rng.usize(payload..end)] ^= rng.u8(1..);
    }
    if rng.bool() {
        // As if its sender had left the checksum out.
        unsummed::mark(&mut out[usize::from(packet.tcp_offset)..]);
    }
    let sum = u64::from(packet.header_sum(&out)) + u64::from(checksum::sum(packet.payload(&out)));
    (checksum::fold64(sum) != 0xffff).then_some(out)
}

/// Many streams of damage, over connections that did not agree on anything: neither wants it, one
/// does, the option is stripped. The world compares every byte.
#[test]
fn nothing_wrong_is_delivered_on_a_connection_that_did_not_negotiate() {
    let (mut unsummed, mut wrong) = (0, 0);
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let wants = [[false, false], [true, false], [false, true], [true, true]][seed as usize % 4];
        let share = rng.u32(2..20);
        let middle: Middle = Box::new(move |_, frame| {
            strip(frame);
            if rng.u32(..share) == 0
                && let Some(out) = damaged(frame, &mut rng)
            {
                *frame = out;
            }
        });
        let mut world = World::new(wants, middle);
        let conns = world.connect();
        world.exchange(conns, 60_000);
        assert_eq!(world.sent.map(|sent| sent.marked), [0; 2]);
        for at in 0..2 {
            let counters = world.counters(at);
            unsummed += counters.drop_unsummed;
            wrong += counters.drop_tcp_checksum;
        }
    }
    assert!(unsummed > 50 && wrong > 50, "{unsummed} and {wrong} segments were refused");
}

/// The price: a marked segment is taken as it is. Whatever carries a wrong sum is refused there too.
#[test]
fn a_connection_that_negotiated_trusts_its_link() {
    let mut frames = 0;
    let middle: Middle = Box::new(move |sender, frame| {
        let Ok(packet) = Packet::parse(frame, Link::Ethernet) else { return };
        if sender == 0 && packet.payload_len > 0 {
            frames += 1;
            frame[usize::from(packet.payload_offset)] ^= 0xff;
            if frames == 1 {
                // The mark itself is damaged: now there is a sum, and it is wrong.
                frame[usize::from(packet.tcp_offset) + 17] ^= 1;
            }
        }
    });
    let mut world = World::new([true; 2], middle);
    let [client, server] = world.connect();
    world.hosts[0].write(client, b"abcd").unwrap();
    for _ in 0..2_000 {
        world.step();
    }
    let mut buf = [0; 10];
    assert_eq!(world.hosts[1].read(server, &mut buf).unwrap(), 4);
    assert_eq!(buf[..4], [b'a' ^ 0xff, b'b', b'c', b'd']);
    let counters = world.counters(1);
    assert_eq!((counters.drop_tcp_checksum, counters.drop_unsummed), (1, 0));
}

/// A segment that is no connection's gets no privilege from the mark.
#[test]
fn a_marked_segment_of_nobody_is_refused_as_any_wrong_one() {
    let middle: Middle = Box::new(|sender, frame| {
        let Ok(packet) = Packet::parse(frame, Link::Ethernet) else { return };
        if sender == 0 {
            unsummed::mark(&mut frame[usize::from(packet.tcp_offset)..]);
        }
    });
    let mut world = World::new([true; 2], middle);
    world.hosts[1].listen("10.0.0.2:7".parse().unwrap(), 16).unwrap();
    world.step();
    world.hosts[0].connect("10.0.0.2:7".parse().unwrap(), None).unwrap();
    for _ in 0..10 {
        world.step();
    }
    let counters = world.counters(1);
    assert_eq!((counters.drop_tcp_checksum, counters.drop_unsummed, counters.rx_unknown), (1, 0, 0));
}
