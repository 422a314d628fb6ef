//! Hosts agree to go without checksums, or a middle keeps them from it.

use crate::world::*;
use baton_wire::packet::{Link, Packet};
use baton_wire::tcp::Flags;

const BYTES: u64 = 400_000;

fn untouched() -> Middle {
    Box::new(|_, _| {})
}

/// Runs an exchange from SYN to FIN.
fn run(mut world: World) -> World {
    let conns = world.connect();
    world.exchange(conns, BYTES);
    world.close(conns);
    // Segments may still be on the way.
    (0..200).for_each(|_| world.step());
    world
}

#[test]
fn two_that_want_it_mark_all_but_their_syns() {
    let mut world = run(World::new([true; 2], untouched()));
    for at in 0..2 {
        let Sent { asking, marked, summed } = world.sent[at];
        assert_eq!((asking, summed), (1, 0));
        assert!(marked > BYTES as u32 / 1460, "{marked}");
        let counters = world.counters(at);
        assert_eq!((counters.drop_tcp_checksum, counters.drop_unsummed), (0, 0));
        assert!(counters.rx_fast > 100, "{counters:?}");
        assert_eq!(counters.rx_unsummed, u64::from(world.sent[1 - at].marked));
    }
}

#[test]
fn a_host_that_does_not_want_it_gets_checksums() {
    for (wants, asking) in [([true, false], [1, 0]), ([false, true], [0, 0]), ([false, false], [0, 0])] {
        let world = run(World::new(wants, untouched()));
        assert_eq!(world.sent.map(|sent| sent.marked), [0; 2]);
        assert_eq!(world.sent.map(|sent| sent.asking), asking);
    }
}

/// It may strip one SYN and not the other; with the second, the two ends do not know the same.
#[test]
fn a_middlebox_that_strips_the_option_leads_back_to_checksums() {
    for from in 0..2 {
        let middle: Middle = Box::new(move |sender, frame| {
            if sender == from {
                strip(frame);
            }
        });
        let mut world = run(World::new([true; 2], middle));
        assert_eq!(world.sent.map(|sent| sent.marked), [0; 2], "stripped from host {from}");
        assert_eq!(world.sent[1].asking, from as u32, "a server answers only who asks");
        assert_eq!(world.counters(0).drop_unsummed + world.counters(1).drop_unsummed, 0);
    }
}

/// Even one that answers ARP for the hosts behind it.
#[test]
fn a_router_between_leads_back_to_checksums() {
    let middle: Middle = Box::new(|_, frame| {
        if frame[12..14] == [8, 0] {
            // Time to live, and the header's checksum.
            frame[22] -= 1;
            let sum = u16::from_be_bytes([frame[24], frame[25]]);
            let word = |ttl: u8, protocol: u8| u16::from_be_bytes([ttl, protocol]);
            let sum = baton_wire::checksum::update(sum, word(frame[22] + 1, frame[23]), word(frame[22], frame[23]));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
    });
    let world = run(World::new([true; 2], middle));
    assert_eq!(world.sent.map(|sent| (sent.asking, sent.marked)), [(1, 0), (0, 0)]);
}

#[test]
fn a_server_that_lives_behind_a_gateway_is_not_asked() {
    let mut near = config(0, true);
    near.engine.interface.addresses = vec!["10.0.0.1/32".parse().unwrap()];
    near.engine.interface.gateway_v4 = Some("10.0.0.2".parse::<std::net::IpAddr>().unwrap().into());
    let mut far = config(1, true);
    far.engine.interface.addresses.push("10.9.0.2/32".parse().unwrap());
    let mut world = World::with([near, far], untouched());
    world.hosts[1].listen("10.9.0.2:7".parse().unwrap(), 16).unwrap();
    world.step();
    world.hosts[0].connect("10.9.0.2:7".parse().unwrap(), None).unwrap();
    for _ in 0..20 {
        world.step();
    }
    let [client, server] = world.sent;
    assert_eq!((client.asking, server.asking, client.marked, server.marked), (0, 0, 0, 0));
    assert!(client.summed > 0, "it is open all the same");
}

/// The ACK that ends the handshake tells the server that its grant arrived. Without it, data does.
#[test]
fn a_lost_last_ack_of_the_handshake_does_no_harm() {
    let mut lost = 0;
    let middle: Middle = Box::new(move |sender, frame| {
        let ack = Packet::parse(frame, Link::Ethernet).is_ok_and(|packet| packet.flags == Flags::ACK);
        if sender == 0 && ack && lost == 0 {
            lost += 1;
            // No longer any host's.
            frame[0] ^= 0x40;
            frame[12..14].copy_from_slice(&[0xff, 0xff]);
        }
    });
    let world = run(World::new([true; 2], middle));
    assert_eq!(world.sent.map(|sent| sent.summed), [0; 2]);
}

#[test]
fn a_syn_cookie_grants_nothing() {
    let mut world = World::new([true; 2], untouched());
    let server = "10.0.0.2:7".parse().unwrap();
    world.hosts[1].listen(server, 0).unwrap();
    world.step();
    world.hosts[0].connect(server, None).unwrap();
    for _ in 0..20 {
        world.step();
    }
    assert_eq!(world.hosts[1].engine().tce().counters().cookies_accepted, 1);
    assert_eq!(world.sent.map(|sent| (sent.asking, sent.marked)), [(1, 0), (0, 0)]);
}

/// Segments with the mark that get lost look like a middlebox that drops them.
#[test]
fn a_middlebox_that_drops_the_mark_is_outlived() {
    let middle: Middle = Box::new(|_, frame| {
        let marked = Packet::parse(frame, Link::Ethernet)
            .is_ok_and(|packet| baton_wire::tcp::unsummed::is_marked(packet.tcp_header(frame)));
        if marked {
            frame[12..14].copy_from_slice(&[0xff, 0xff]);
        }
    });
    let mut world = World::new([true; 2], middle);
    let server = "10.0.0.2:7".parse().unwrap();
    world.hosts[1].listen(server, 16).unwrap();
    world.step();
    world.hosts[0].connect(server, None).unwrap();
    let mut conns = [None; 2];
    for _ in 0..200 {
        world.step();
        while let Some(event) = world.hosts[0].next_event() {
            if let baton_consumer::consumer::SocketEvent::Opening { conn, .. } = event {
                conns[0] = Some(conn);
            }
        }
    }
    let client = conns[0].expect("the client's end");
    assert!(world.hosts[0].stream(client).unwrap().is_established());
    world.hosts[0].write(client, b"anybody there?").unwrap();
    // The client's second timeout brings checksums back, and with them the server's end opens.
    for _ in 0..20_000 {
        world.step();
        while let Some(event) = world.hosts[1].next_event() {
            if let baton_consumer::consumer::SocketEvent::Accepted { conn, .. } = event {
                conns[1] = Some(conn);
            }
        }
    }
    let server = conns[1].expect("the server's end");
    let mut buf = [0; 100];
    assert_eq!(world.hosts[1].read(server, &mut buf).unwrap(), 14);
    world.exchange([client, server], BYTES);
    assert!(world.sent.iter().all(|sent| sent.marked < 20 && sent.summed > 100), "{:?}", world.sent);
}
