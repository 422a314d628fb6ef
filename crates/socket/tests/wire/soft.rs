//! Soft errors: reports from the network about a connection that do not end it (RFC 9293 §3.9.2.2).
//! Each kind of consumer reports them and continues.

use crate::peer::{FarEnd, Lab, THEIRS, at};
use baton_engine::options::NODELAY;
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::HostConfig;
use baton_socket::stack::{Stack, Threads};
use baton_wire::packet::Packet;
use baton_wire::tcp::Flags;
use std::io::ErrorKind;

/// Type and code of ICMP's "host unreachable".
const HOST_UNREACHABLE: (u8, u8) = (3, 1);

fn unreachable(far: &mut FarEnd, about: &Packet) {
    far.send_icmp(HOST_UNREACHABLE.0, HOST_UNREACHABLE.1, about);
}

// tests: MUST-56, MUST-47
#[test]
fn a_stream_continues_after_a_soft_error() {
    let mut lab = Lab::new();
    let (mut peer, conn) = lab.connect(80, None, NODELAY);
    lab.drain();
    lab.host.write(conn, b"lost").unwrap();
    lab.steps(2);
    let lost = lab.next();
    assert!(lab.host.error(conn).is_none());
    unreachable(&mut lab.far, &lost.packet);
    lab.steps(2);
    assert_eq!(lab.host.error(conn).unwrap().kind(), ErrorKind::HostUnreachable);
    assert_eq!(lab.host.take_soft_error(conn).unwrap().kind(), ErrorKind::HostUnreachable);
    assert!(lab.host.take_soft_error(conn).is_none(), "once");
    // Reading and writing do not report it.
    assert_eq!(lab.host.read(conn, &mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(lab.host.write(conn, b" and more").unwrap(), 9);
    lab.steps(2000);
    let again = lab.drain();
    assert!(
        again.iter().any(|seen| seen.packet.seq == lost.packet.seq && !seen.payload.is_empty()),
        "the data was retransmitted"
    );
    peer.rcv_nxt += 13;
    lab.send(&peer, Flags::ACK, b"got it");
    lab.steps(2);
    let mut buf = [0; 8];
    assert_eq!(lab.host.read(conn, &mut buf).unwrap(), 6);
    assert_eq!(lab.host.stream(conn).unwrap().unacknowledged(), 0);
    // A normal end leaves no error behind.
    peer.snd_nxt += 6;
    lab.send(&peer, Flags::ACK | Flags::FIN, &[]);
    lab.steps(2);
    assert_eq!(lab.host.read(conn, &mut buf).unwrap(), 0);
}

// tests: MUST-56
#[test]
fn a_connect_waits_on_after_a_soft_error() {
    let (port, wire) = MemoryPort::wakeable_pair(MemoryOptions::default()).unwrap();
    let config = HostConfig::new("10.0.0.2/24".parse().unwrap());
    let mut far = FarEnd::new(wire, config.engine.interface.mac);
    let stack = Stack::spawn(&config, port, Threads::One).unwrap();
    let connecting = std::thread::spawn(move || (stack.connect(at(THEIRS, 80)), stack));
    let syn = far.wait();
    unreachable(&mut far, &syn);
    // The SYN is repeated a second later, which would not happen if the connect had failed.
    let again = far.wait();
    assert_eq!((again.flags, again.seq), (Flags::SYN, syn.seq));
    far.accept(&again);
    let (connected, _stack) = connecting.join().unwrap();
    connected.unwrap();
}
