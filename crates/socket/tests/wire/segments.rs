//! How segments are cut, and their header fields.

use crate::peer::{Lab, MSS, OURS, Peer, Seen, at};
use baton_consumer::consumer::Conn;
use baton_engine::options::{IpFields, NODELAY};
use baton_port::memory::MemoryOptions;
use baton_tcp::options::SocketOption;
use baton_wire::tcp::Flags;

/// Returns the payload lengths of the segments of a write, and which of them carry PSH.
fn pushes(len: usize) -> Vec<(usize, bool)> {
    let mut lab = Lab::new();
    let (_, conn) = lab.connect(80, None, NODELAY);
    lab.drain();
    lab.host.write(conn, &vec![1; len]).unwrap();
    lab.steps(2);
    lab.drain().iter().map(|seen| (seen.payload.len(), seen.packet.flags.contains(Flags::PSH))).collect()
}

// tests: MUST-61
#[test]
fn the_last_queued_segment_is_pushed() {
    assert_eq!(pushes(1), [(1, true)]);
    assert_eq!(pushes(MSS), [(MSS, true)]);
    assert_eq!(pushes(MSS + 1), [(MSS, false), (1, true)]);
    assert_eq!(pushes(3 * MSS), [(MSS, false), (MSS, false), (MSS, true)]);
    assert_eq!(pushes(3 * MSS + 7), [(MSS, false), (MSS, false), (MSS, false), (7, true)]);
}

// tests: MUST-61
#[test]
fn a_segment_cut_by_the_window_carries_no_psh() {
    let mut lab = Lab::new();
    let (mut peer, conn) = lab.connect(80, None, NODELAY);
    peer.window = 2 * MSS as u16;
    lab.send(&peer, Flags::ACK, &[]);
    lab.steps(2);
    lab.drain();
    lab.host.write(conn, &[1; 3 * MSS]).unwrap();
    lab.steps(2);
    let seen = lab.drain();
    assert_eq!(seen.iter().map(|seen| seen.payload.len()).collect::<Vec<_>>(), [MSS, MSS]);
    assert!(seen.iter().all(|seen| !seen.packet.flags.contains(Flags::PSH)));
    peer.rcv_nxt += 2 * MSS as u32;
    lab.send(&peer, Flags::ACK, &[]);
    lab.steps(2);
    assert!(lab.next().packet.flags.contains(Flags::PSH));
}

/// Lengths of the segments sent since the last call.
fn lengths(lab: &mut Lab) -> Vec<usize> {
    lab.steps(2);
    lab.drain().iter().map(|seen| seen.payload.len()).filter(|len| *len > 0).collect()
}

fn acknowledge(lab: &mut Lab, peer: &mut Peer, bytes: usize) {
    peer.rcv_nxt += bytes as u32;
    lab.send(peer, Flags::ACK, &[]);
}

fn write(lab: &mut Lab, conn: Conn, bytes: usize) {
    assert_eq!(lab.host.write(conn, &vec![1; bytes]).unwrap(), bytes);
}

// tests: SHLD-7, MUST-17
#[test]
fn short_segments_wait_for_the_acknowledgment_of_the_one_before() {
    let mut lab = Lab::new();
    let (mut peer, conn) = lab.connect(80, None, 0);
    lab.drain();
    write(&mut lab, conn, 10);
    assert_eq!(lengths(&mut lab), [10], "nothing is in flight");
    write(&mut lab, conn, 20);
    write(&mut lab, conn, 30);
    assert_eq!(lengths(&mut lab), []);
    acknowledge(&mut lab, &mut peer, 10);
    assert_eq!(lengths(&mut lab), [50], "in one segment");
    // A full segment is sent at once; the remainder waits.
    write(&mut lab, conn, MSS + 5);
    assert_eq!(lengths(&mut lab), [MSS]);
    acknowledge(&mut lab, &mut peer, 50 + MSS);
    assert_eq!(lengths(&mut lab), [5]);
    // A remainder is sent at once if it is the only short segment outstanding. Otherwise a peer
    // that acknowledges every second segment would delay it.
    acknowledge(&mut lab, &mut peer, 5);
    write(&mut lab, conn, 3 * MSS + 5);
    assert_eq!(lengths(&mut lab), [MSS, MSS, MSS, 5]);
    write(&mut lab, conn, 20);
    acknowledge(&mut lab, &mut peer, 3 * MSS);
    assert_eq!(lengths(&mut lab), [], "the short segment is not acknowledged yet");
    acknowledge(&mut lab, &mut peer, 5);
    assert_eq!(lengths(&mut lab), [20]);
    // With TCP_NODELAY, each is sent at once.
    lab.host.set_option(conn, baton_tcp::options::SocketOption::NoDelay(true)).unwrap();
    lab.steps(2);
    for _ in 0..2 {
        write(&mut lab, conn, 10);
        assert_eq!(lengths(&mut lab), [10]);
    }
}

/// tcp(7): `TCP_NODELAY` flushes pending output, including corked output.
#[test]
fn nodelay_flushes_what_the_cork_holds() {
    let mut lab = Lab::new();
    let (mut peer, conn) = lab.connect(80, None, 0);
    lab.drain();
    let set = |lab: &mut Lab, option| lab.host.set_option(conn, option).unwrap();
    set(&mut lab, SocketOption::Cork(true));
    lab.steps(2);
    write(&mut lab, conn, MSS + 10);
    assert_eq!(lengths(&mut lab), [MSS]);
    set(&mut lab, SocketOption::NoDelay(true));
    assert_eq!(lengths(&mut lab), [10]);
    // Bytes written later are held back by the cork again.
    write(&mut lab, conn, 20);
    assert_eq!(lengths(&mut lab), []);
    set(&mut lab, SocketOption::Cork(false));
    assert_eq!(lengths(&mut lab), [20]);
    acknowledge(&mut lab, &mut peer, MSS + 30);
}

/// As in Linux: there is nothing to push.
#[test]
fn a_fin_alone_is_not_pushed() {
    let mut lab = Lab::new();
    let (mut peer, conn) = lab.connect(80, None, NODELAY);
    lab.drain();
    write(&mut lab, conn, 5);
    lab.steps(2);
    acknowledge(&mut lab, &mut peer, 5);
    lab.host.shutdown(conn).unwrap();
    lab.steps(1500);
    let flags: Vec<_> = lab.drain().iter().map(|seen| seen.packet.flags).collect();
    assert_eq!(flags[..3], [Flags::PSH | Flags::ACK, Flags::FIN | Flags::ACK, Flags::FIN | Flags::ACK], "{flags:?}");
}

#[test]
fn no_super_frame_takes_a_whole_window() {
    let mut lab = Lab::on(MemoryOptions::new().gso(true), |_| ());
    let (mut peer, conn) = lab.connect(80, None, NODELAY);
    lab.drain();
    // The initial window is ten segments.
    write(&mut lab, conn, 12 * MSS);
    assert_eq!(lengths(&mut lab), [5 * MSS, 5 * MSS]);
    acknowledge(&mut lab, &mut peer, 10 * MSS);
    assert_eq!(lengths(&mut lab), [2 * MSS], "less than half of the present window");
    acknowledge(&mut lab, &mut peer, 2 * MSS);
    // The same holds for a retransmission, if it covers more than one segment.
    write(&mut lab, conn, 8 * MSS);
    assert_eq!(lengths(&mut lab), [8 * MSS]);
    lab.steps(300);
    assert_eq!(lengths(&mut lab), [MSS], "the retransmission timer expired");
    acknowledge(&mut lab, &mut peer, MSS);
    assert_eq!(lengths(&mut lab), [MSS, MSS]);
    acknowledge(&mut lab, &mut peer, 2 * MSS);
    assert_eq!(lengths(&mut lab), [2 * MSS, MSS]);
}

/// Traffic class and time to live of the segments sent since the last call.
fn ip_fields(lab: &mut Lab) -> Vec<(u8, u8)> {
    lab.drain().iter().map(|seen| (seen.packet.traffic_class, seen.packet.ttl)).collect()
}

// tests: MUST-48, MUST-49
#[test]
fn an_application_sets_its_segments_class_and_time_to_live() {
    let mut lab = Lab::with(|config| config.engine.ttl = 61);
    let (_, plain) = lab.connect(79, None, NODELAY);
    write(&mut lab, plain, 10);
    lab.steps(2);
    assert_eq!(ip_fields(&mut lab), [(0, 61); 3], "the host's: ACK, SYN and data");
    let chosen = IpFields { traffic_class: 0xb8, ttl: 7, ..IpFields::default() };
    let (mut peer, conn) = lab.connect(80, None, NODELAY | chosen.bits());
    // Full segments and a short one, a retransmission, an acknowledgment and a FIN.
    write(&mut lab, conn, 3 * MSS + 1);
    lab.steps(1000);
    acknowledge(&mut lab, &mut peer, 3 * MSS + 1);
    lab.send(&peer, Flags::ACK, b"request");
    lab.steps(100);
    lab.host.shutdown(conn).unwrap();
    lab.steps(2);
    let seen = lab.drain();
    let ours = seen.iter().filter(|seen| seen.packet.dst_port == 80);
    assert!(ours.clone().count() > 8 && ours.clone().any(|seen| seen.packet.flags.contains(Flags::FIN)));
    for Seen { packet, .. } in ours {
        assert_eq!((packet.traffic_class, packet.ttl), (0xb8, 7), "{:?}", packet.flags);
    }
    // An established connection uses a new choice from then on.
    acknowledge(&mut lab, &mut peer, 1);
    lab.host.set_ip_fields(plain, IpFields { traffic_class: 0x20, ttl: 0, ..IpFields::default() }).unwrap();
    lab.steps(2);
    lab.drain();
    write(&mut lab, plain, 10);
    lab.steps(2);
    assert_eq!(ip_fields(&mut lab), [(0x20, 61)]);
}

// tests: MUST-48, MUST-49
#[test]
fn accepted_connections_inherit_the_listeners_options() {
    let mut lab = Lab::new();
    let chosen = IpFields { traffic_class: 0x48, ttl: 255, ..IpFields::default() };
    lab.host.listen_with(at(OURS, 7), 4, NODELAY | chosen.bits()).unwrap();
    lab.steps(2);
    lab.host.next_event();
    let mut peer = lab.peer(OURS, 7, 4000);
    lab.send(&peer, Flags::SYN, &[]);
    lab.steps(2);
    peer.snd_nxt += 1;
    peer.rcv_nxt = lab.far.seen[0].packet.seq + 1;
    let conn = lab.complete(&peer);
    write(&mut lab, conn, 5);
    lab.steps(2);
    assert_eq!(ip_fields(&mut lab), [(0x48, 255); 2], "SYN-ACK and data");
}

#[test]
fn data_and_fin_in_one_segment_arrive_without_a_pending_read() {
    for idle_ms in [0, 1000] {
        let mut lab = Lab::new();
        let (mut peer, conn) = lab.connect(80, None, NODELAY);
        if idle_ms > 0 {
            // Its receive buffer is posted, and returned when it is idle.
            lab.send(&peer, Flags::ACK, &[1; 10]);
            peer.snd_nxt += 10;
            lab.steps(5);
            assert_eq!(lab.host.read(conn, &mut [0; 20]).unwrap(), 10);
            lab.steps(idle_ms);
        }
        assert_eq!(lab.host.buffers_in_use(), 0);
        lab.send(&peer, Flags::ACK | Flags::FIN | Flags::PSH, &[2; 300]);
        lab.steps(5);
        let stream = lab.host.stream(conn).unwrap();
        assert_eq!((stream.readable(), stream.peer_finished()), (300, true), "idle for {idle_ms} ms");
        assert_eq!(lab.host.read(conn, &mut [0; 400]).unwrap(), 300);
    }
}

/// A peer accepts a reset only at the sequence number that it expects (RFC 5961 §3.2).
#[test]
fn a_reset_is_accepted_with_and_without_the_data_in_flight() {
    for acknowledged in [0, 10, 25] {
        let mut lab = Lab::new();
        let (mut peer, conn) = lab.connect(80, None, NODELAY);
        write(&mut lab, conn, 10);
        write(&mut lab, conn, 15);
        assert_eq!(lengths(&mut lab).iter().sum::<usize>(), 25);
        let lost = peer.rcv_nxt + acknowledged;
        let got = peer.rcv_nxt + 25;
        acknowledge(&mut lab, &mut peer, acknowledged as usize);
        lab.steps(2);
        lab.host.abort(conn);
        lab.steps(2);
        let resets: Vec<_> = lab.drain().iter().map(|seen| (seen.packet.flags, seen.packet.seq)).collect();
        let mut expected = vec![(Flags::RST | Flags::ACK, lost), (Flags::RST | Flags::ACK, got)];
        expected.dedup();
        assert_eq!(resets, expected, "{acknowledged} bytes of 25 are acknowledged");
    }
}

/// As in Linux: a program that has seen the peer's end reads the end of the stream, and the error
/// reports the rest.
#[test]
fn a_reset_behind_the_peers_end_leaves_the_end_to_be_read() {
    for shut in [true, false] {
        let mut lab = Lab::new();
        let (mut peer, conn) = lab.connect(80, None, NODELAY);
        lab.send(&peer, Flags::ACK | Flags::FIN, &[]);
        peer.snd_nxt += 1;
        lab.steps(2);
        if shut {
            lab.host.shutdown(conn).unwrap();
            lab.steps(2);
        }
        lab.send(&peer, Flags::RST, &[]);
        lab.steps(2);
        assert!(lab.host.stream(conn).unwrap().is_closed());
        assert_eq!(lab.host.error(conn).unwrap().kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(lab.host.read(conn, &mut [0; 8]).unwrap(), 0);
    }
}
