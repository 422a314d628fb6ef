//! Active and passive opens in the presence of existing connections (RFC 9293 §3.9.1.1).

use crate::peer::{ALSO_OURS, Lab, OURS, THEIRS, addr, at};
use baton_consumer::consumer::SocketEvent;
use baton_engine::options::NODELAY;
use baton_wire::tcp::Flags;
use std::io::ErrorKind;

// tests: MUST-41
#[test]
fn listening_leaves_the_ports_connections_as_they_are() {
    let mut lab = Lab::new();
    lab.listen("0.0.0.0", 7);
    let mut peer = lab.peer(OURS, 7, 4000);
    lab.syn(&mut peer);
    let conn = lab.complete(&peer);
    // Another passive open on the same port. The connection's segments would match it if they did
    // not match the connection first.
    lab.listen(OURS, 7);
    lab.send(&peer, Flags::ACK | Flags::PSH, b"still there?");
    lab.steps(100);
    let mut buf = [0; 32];
    assert_eq!(lab.host.read(conn, &mut buf).unwrap(), 12);
    let answers = lab.drain();
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].packet.flags, answers[0].packet.ack), (Flags::ACK, peer.snd_nxt + 12));
    // A later peer connects to the new listener.
    let mut late = lab.peer(OURS, 7, 4001);
    lab.syn(&mut late);
    lab.complete(&late);
}

// tests: MUST-42
#[test]
fn a_port_is_listened_on_while_connections_from_it_are_opening() {
    let mut lab = Lab::new();
    // SYN-SENT.
    lab.host.connect_with(at(THEIRS, 80), Some(at(OURS, 7)), NODELAY).unwrap();
    lab.steps(3);
    assert!(matches!(lab.host.next_event(), Some(SocketEvent::Opening { .. })));
    let syn = lab.next().packet;
    assert_eq!((syn.flags, syn.src_port), (Flags::SYN, 7));
    lab.listen(OURS, 7);
    // SYN-RECEIVED.
    let mut half_open = lab.peer(OURS, 7, 4000);
    lab.syn(&mut half_open);
    lab.listen("0.0.0.0", 7);
    // Both continue, and the listener accepts others.
    lab.complete(&half_open);
    let mut other = lab.peer(ALSO_OURS, 7, 4000);
    lab.syn(&mut other);
    lab.complete(&other);
    let mut answer = lab.peer(OURS, 7, 80);
    answer.rcv_nxt = syn.seq + 1;
    lab.send(&answer, Flags::SYN | Flags::ACK, &[]);
    lab.steps(2);
    let last = lab.next().packet;
    assert_eq!((last.flags, last.ack), (Flags::ACK, answer.snd_nxt + 1));
}

// tests: MUST-43, MUST-45
#[test]
fn a_connection_has_the_local_address_that_it_was_opened_with() {
    for (local, expected) in [(None, OURS), (Some(at(OURS, 0)), OURS), (Some(at(ALSO_OURS, 0)), ALSO_OURS)] {
        let mut lab = Lab::new();
        let (mut peer, conn) = lab.connect(80, local, NODELAY);
        // Data, its retransmission, an ACK and a FIN.
        lab.host.write(conn, &[1; 2000]).unwrap();
        lab.steps(2000);
        peer.rcv_nxt += 2000;
        lab.send(&peer, Flags::ACK, b"answer");
        lab.steps(100);
        peer.snd_nxt += 6;
        lab.host.shutdown(conn).unwrap();
        lab.steps(3000);
        let seen = lab.drain();
        assert!(seen.iter().any(|seen| seen.packet.flags.contains(Flags::FIN)));
        let first = seen.iter().find(|seen| !seen.payload.is_empty()).unwrap().packet.seq;
        assert!(seen.iter().filter(|seen| seen.packet.seq == first && !seen.payload.is_empty()).count() > 1);
        for seen in &seen {
            assert_eq!(seen.packet.src, addr(expected), "{:?}", seen.packet.flags);
        }
    }
}

// tests: MUST-45
#[test]
fn an_accepted_connection_answers_from_the_address_that_was_called() {
    let mut lab = Lab::new();
    lab.listen("0.0.0.0", 7);
    let mut peer = lab.peer(ALSO_OURS, 7, 4000);
    lab.send(&peer, Flags::SYN, &[]);
    lab.steps(2);
    peer.snd_nxt += 1;
    peer.rcv_nxt = lab.far.seen[0].packet.seq + 1;
    let conn = lab.complete(&peer);
    lab.host.write(conn, b"welcome").unwrap();
    lab.steps(1000);
    lab.host.close(conn);
    lab.steps(1000);
    let seen = lab.drain();
    assert!(seen.iter().filter(|seen| seen.payload == b"welcome").count() > 1, "sent and retransmitted");
    assert!(seen.iter().all(|seen| seen.packet.src == addr(ALSO_OURS)));
}

// tests: MUST-43
#[test]
fn an_address_of_somebody_elses_is_refused() {
    let mut lab = Lab::new();
    lab.host.connect_with(at(THEIRS, 80), Some(at("10.0.0.77", 0)), NODELAY).unwrap();
    lab.steps(3);
    match lab.host.next_event() {
        Some(SocketEvent::Failed { error, .. }) => assert_eq!(error.kind(), ErrorKind::AddrNotAvailable),
        other => panic!("{other:?}"),
    }
    assert!(lab.drain().is_empty());
}
