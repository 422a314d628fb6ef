//! ECN on the wire (RFC 3168).

use crate::peer::{Lab, MSS, OURS, THEIRS, at};
use baton_consumer::consumer::SocketEvent;
use baton_engine::options::NODELAY;
use baton_wire::tcp::Flags;

/// ECN-Capable Transport, the codepoint that senders use (§5).
const ECT0: u8 = 2;

/// §6.1.4 to §6.1.6: only data that is sent for the first time may be ECN-capable.
#[test]
fn ecn_marks_new_data_and_nothing_else() {
    for agreed in [false, true] {
        let mut lab = Lab::with(|config| config.engine.tcp.ecn = true);
        lab.host.connect_with(at(THEIRS, 80), None, NODELAY).unwrap();
        lab.steps(3);
        let Some(SocketEvent::Opening { conn, .. }) = lab.host.next_event() else { panic!("a connection under way") };
        let syn = lab.next().packet;
        assert_eq!((syn.flags, syn.traffic_class & 3), (Flags::SYN | Flags::ECE | Flags::CWR, 0));
        let mut peer = lab.peer(OURS, syn.src_port, 80);
        peer.rcv_nxt = syn.seq + 1;
        lab.send(&peer, Flags::SYN | Flags::ACK | if agreed { Flags::ECE } else { Flags::NONE }, &[]);
        peer.snd_nxt += 1;
        lab.steps(2);
        lab.host.write(conn, &[1; 2 * MSS]).unwrap();
        // The ACK of the handshake, the data, and its retransmission.
        lab.steps(1500);
        // An ACK and a FIN follow.
        lab.send(&peer, Flags::ACK | Flags::PSH, &[1; 10]);
        lab.steps(100);
        lab.host.shutdown(conn).unwrap();
        lab.steps(100);
        let (mut new, mut sent) = (0, peer.rcv_nxt);
        for seen in lab.drain() {
            let (packet, len) = (&seen.packet, seen.payload.len() as u32);
            let first = len > 0 && packet.seq == sent;
            if first {
                sent += len;
                new += 1;
            }
            let expected = if first && agreed { ECT0 } else { 0 };
            assert_eq!(packet.traffic_class & 3, expected, "{:?} of {len} bytes at {:?}", packet.flags, packet.seq);
        }
        assert_eq!((new, sent), (2, peer.rcv_nxt + 2 * MSS as u32));
    }
}
