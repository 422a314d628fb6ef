//! Data that arrives with the handshake (RFC 9293 §3.10.7.3, §3.10.7.4) is available to the program
//! and is acknowledged, without another segment of the peer.

use crate::peer::{Lab, OURS, Peer, THEIRS, at};
use baton_consumer::consumer::{Conn, SocketEvent};
use baton_engine::options::NODELAY;
use baton_wire::tcp::Flags;

/// Milliseconds within which data is acknowledged (RFC 9293 §3.8.6.3).
const SOON: usize = 500;

/// Checks that `conn` has `bytes` readable bytes and that the peer got an acknowledgment for them.
fn told_and_acknowledged(lab: &mut Lab, conn: Conn, peer: &Peer, bytes: usize, fin: bool) {
    lab.steps(SOON);
    let mut ready = false;
    while let Some(event) = lab.host.next_event() {
        ready |= matches!(event, SocketEvent::Ready { conn: about, .. } if about == conn);
    }
    assert!(ready, "the program is told of the data");
    let stream = lab.host.stream(conn).unwrap();
    assert_eq!((stream.readable(), stream.peer_finished()), (bytes, fin));
    let acked = lab.drain().iter().rfind(|seen| seen.packet.flags.contains(Flags::ACK)).map(|seen| seen.packet.ack);
    assert_eq!(acked, Some(peer.snd_nxt + bytes as u32 + u32::from(fin)));
    assert_eq!(lab.host.read(conn, &mut vec![0; bytes]).unwrap(), bytes);
}

fn accepted(lab: &mut Lab) -> Conn {
    while let Some(event) = lab.host.next_event() {
        if let SocketEvent::Accepted { conn, .. } = event {
            return conn;
        }
    }
    panic!("no connection");
}

#[test]
fn data_in_the_ack_that_completes_the_handshake() {
    for fin in [false, true] {
        let mut lab = Lab::new();
        lab.listen(OURS, 7);
        let mut peer = lab.peer(OURS, 7, 4000);
        lab.syn(&mut peer);
        let flags = Flags::ACK | Flags::PSH | if fin { Flags::FIN } else { Flags::NONE };
        lab.send(&peer, flags, &[1; 100]);
        lab.steps(1);
        let conn = accepted(&mut lab);
        told_and_acknowledged(&mut lab, conn, &peer, 100, fin);
    }
}

#[test]
fn data_behind_a_lost_ack_of_the_handshake_out_of_order() {
    let mut lab = Lab::new();
    lab.listen(OURS, 7);
    let mut peer = lab.peer(OURS, 7, 4000);
    lab.syn(&mut peer);
    let first = peer;
    peer.snd_nxt += 60;
    lab.send(&peer, Flags::ACK, &[2; 40]);
    lab.steps(1);
    let conn = accepted(&mut lab);
    lab.send(&first, Flags::ACK, &[1; 60]);
    told_and_acknowledged(&mut lab, conn, &first, 100, false);
}

#[test]
fn data_with_the_ack_of_a_cookie() {
    let mut lab = Lab::new();
    lab.host.listen(at(OURS, 7), 0).unwrap();
    lab.steps(2);
    lab.host.next_event();
    let mut peer = lab.peer(OURS, 7, 4000);
    lab.syn(&mut peer);
    lab.send(&peer, Flags::ACK | Flags::PSH, &[1; 100]);
    lab.steps(1);
    assert_eq!(lab.host.engine().tce().counters().cookies_accepted, 1);
    let conn = accepted(&mut lab);
    told_and_acknowledged(&mut lab, conn, &peer, 100, false);
}

#[test]
fn data_on_the_syn_ack() {
    for fin in [Flags::NONE, Flags::FIN] {
        let mut lab = Lab::new();
        lab.host.connect_with(at(THEIRS, 80), None, NODELAY).unwrap();
        lab.steps(3);
        let Some(SocketEvent::Opening { conn, .. }) = lab.host.next_event() else { panic!("a connection under way") };
        let syn = lab.next().packet;
        let mut peer = lab.peer(OURS, syn.src_port, 80);
        peer.rcv_nxt = syn.seq + 1;
        lab.send(&peer, Flags::SYN | Flags::ACK | fin, &[3; 50]);
        peer.snd_nxt += 1;
        told_and_acknowledged(&mut lab, conn, &peer, 50, fin != Flags::NONE);
    }
}

#[test]
fn data_on_a_syn_that_crosses_ours() {
    let mut lab = Lab::new();
    lab.host.connect_with(at(THEIRS, 80), None, NODELAY).unwrap();
    lab.steps(3);
    let Some(SocketEvent::Opening { conn, .. }) = lab.host.next_event() else { panic!("a connection under way") };
    let syn = lab.next().packet;
    let mut peer = lab.peer(OURS, syn.src_port, 80);
    lab.send(&peer, Flags::SYN, &[3; 50]);
    lab.steps(2);
    assert_eq!(lab.next().packet.flags, Flags::SYN | Flags::ACK);
    peer.snd_nxt += 1;
    peer.rcv_nxt = syn.seq + 1;
    let mut bare = peer;
    bare.snd_nxt += 50;
    lab.send(&bare, Flags::ACK, &[]);
    told_and_acknowledged(&mut lab, conn, &peer, 50, false);
}
