//! Steering between two kernels over a veth: the peer's, and ours with an engine next to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::common::toy::{Toy, segment};
use crate::common::{Pair, Ramp, Wire, wait_for};
use baton_kernel::steer::{Kind, Mode, Options, SteerError, SteeredTuple, Steering};
use baton_port::{TxMeta, XdpOptions, XdpPort, link};
use baton_testkit::{Netns, need_program, need_root, skip};
use baton_wire::addr::Tuple;
use rustix::net::sockopt::set_tcp_congestion;

const PLAIN: [&str; 2] = ["net.ipv4.tcp_timestamps=0", "net.ipv4.tcp_sack=0"];
const MSS: u16 = 1400;

/// A steered wire, with an engine that is up.
struct Bench {
    toy: Toy,
    steering: Steering,
    wire: Wire,
}

fn attach(netns: &Netns, kind: Kind, options: Options) -> Result<Steering, SteerError> {
    netns.enter(|| Steering::attach("wire", kind, options))
}

impl Bench {
    fn new(kind: Kind) -> Bench {
        Bench::on(Wire::new(&PLAIN), kind)
    }

    fn on(wire: Wire, kind: Kind) -> Bench {
        if kind == Kind::Xdp {
            // AF_XDP cannot tell a checksum that a veth left out from damage.
            wire.peer.enter(|| link::set_tx_checksum_offload("wire", false).unwrap());
        }
        let mut steering = attach(&wire.ours, kind, Options::default()).unwrap();
        let port = wire.ours.enter(|| steering.open_port()).unwrap();
        steering.set_engine(true).unwrap();
        Bench { toy: Toy::new(port), steering, wire }
    }
}

fn tuple(ours: &TcpStream) -> Tuple {
    Tuple::new(ours.local_addr().unwrap(), ours.peer_addr().unwrap())
}

/// Checks that nothing arrives for some time.
fn stays_silent(mut stream: &TcpStream) {
    thread::sleep(Duration::from_millis(300));
    assert!(stream.read(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock), "the kernel got data");
}

/// Writes everything from a thread of its own, as fast as the other side reads it.
fn write_ramp(stream: &TcpStream, len: usize) -> thread::JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    stream.set_nonblocking(false).unwrap();
    thread::spawn(move || stream.write_all(&Ramp::bytes(0, len)).unwrap())
}

fn read_ramp(stream: &TcpStream, len: usize) -> thread::JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    stream.set_nonblocking(false).unwrap();
    thread::spawn(move || {
        let mut bytes = vec![0; len];
        stream.read_exact(&mut bytes).unwrap();
        assert!(bytes == Ramp::bytes(0, len), "what was read is not what was written");
    })
}

#[test]
fn a_steered_connection_goes_to_the_engine_and_the_kernels_own_do_not() {
    need_root!();
    need_program!("clang");
    for (kind, ipv6) in [(Kind::Tc, false), (Kind::Tc, true), (Kind::Xdp, false), (Kind::Xdp, true)] {
        let Bench { mut toy, mut steering, wire } = Bench::new(kind);
        let (host, host_peer) = wire.connect(ipv6);
        let (ours, peer) = wire.connect(ipv6);
        steering.insert(tuple(&ours)).unwrap();
        // Connections of the kernel, in both directions, at the same time.
        let kernels = [
            write_ramp(&host, 20_000_000),
            read_ramp(&host, 20_000_000),
            write_ramp(&host_peer, 20_000_000),
            read_ramp(&host_peer, 20_000_000),
        ];
        // BBR retransmits one segment per timeout to a peer without SACK.
        set_tcp_congestion(&peer, "reno").unwrap();
        let sent = write_ramp(&peer, 3_000_000);
        toy.run("the stream", |toy| toy.received.len() == 3_000_000);
        sent.join().unwrap();
        assert!(toy.received == Ramp::bytes(0, 3_000_000), "{kind:?}");
        // Then the opposite direction, in super-frames if the port cuts them.
        let read = read_ramp(&peer, 300_000);
        let bytes = Ramp::bytes(0, 300_000);
        let (piece, mss) = if kind == Kind::Tc { (60_000, MSS) } else { (1_000, 0) };
        toy.send_all(&bytes, piece, mss);
        toy.run("the peer", |_| read.is_finished());
        read.join().unwrap();
        for side in kernels {
            side.join().unwrap();
        }
        assert_eq!((toy.sink.strangers, toy.sink.wrong_checksums), (0, 0), "{kind:?}");
        let counters = steering.counters().unwrap();
        assert!(counters.hit > 0 && counters.passed > 100, "{kind:?}: {counters:?}");
        let silent = (counters.no_engine, counters.held_back, counters.fragment, counters.malformed, counters.foreign);
        assert_eq!(silent, (0, 0, 0, 0, 0), "{counters:?}");
        if kind == Kind::Tc {
            // Super-frames and missing checksums arrive just as our kernel would have received
            // them.
            assert!(toy.sink.longest > 10_000, "{}", toy.sink.longest);
            assert!(toy.sink.vouched > 0 && counters.sent > 0);
        }
        assert_eq!(wire.resets(), 0);
    }
}

#[test]
fn a_tuple_that_is_removed_goes_to_the_kernel_again() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        let Bench { mut toy, mut steering, wire } = Bench::new(kind);
        toy.answers = false;
        let mut pair = Pair::new(&wire, false);
        steering.insert(tuple(&pair.ours)).unwrap();
        assert_eq!(steering.tuples().unwrap(), [SteeredTuple::from(tuple(&pair.ours))]);
        pair.back.write(&pair.peer, 1000);
        toy.run("the segment", |toy| toy.sink.seen.iter().any(|s| s.payload.len() == 1000));
        stays_silent(&pair.ours);
        assert!(steering.remove(tuple(&pair.ours)).unwrap());
        assert!(!steering.remove(tuple(&pair.ours)).unwrap(), "it was there once");
        // The peer sends it again.
        wait_for("what was lost", || pair.back.read(&pair.ours) == Some(1000) || pair.back.read == 1000);
        pair.close();
    }
}

#[test]
fn without_an_engine_nothing_reaches_the_kernel() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        let Bench { toy, mut steering, wire } = Bench::new(kind);
        let mut pair = Pair::new(&wire, false);
        // The engine is declared to be down.
        steering.set_engine(false).unwrap();
        steering.insert(tuple(&pair.ours)).unwrap();
        pair.back.write(&pair.peer, 1000);
        stays_silent(&pair.ours);
        assert!(steering.counters().unwrap().no_engine > 0, "{kind:?}");
        // The connection is held back.
        steering.set_engine(true).unwrap();
        steering.hold_back(tuple(&pair.ours)).unwrap();
        wait_for("a frame that is held back", || steering.counters().unwrap().held_back > 0);
        // The engine is gone with its device or its sockets, and nobody has noticed.
        drop(toy);
        steering.insert(tuple(&pair.ours)).unwrap();
        stays_silent(&pair.ours);
        // A new engine receives the frames.
        let port = wire.ours.enter(|| steering.open_port()).unwrap();
        let mut toy = Toy::new(port);
        toy.run("the segment", |toy| toy.received.len() == 1000);
    }
}

#[test]
fn an_engine_sends_frames_of_its_own_tuples_only() {
    need_root!();
    need_program!("clang");
    let Bench { mut toy, mut steering, wire } = Bench::new(Kind::Tc);
    let (ours, peer) = wire.connect(false);
    let (host, host_peer) = wire.connect(false);
    let datagrams = wire.peer.enter(|| UdpSocket::bind("10.66.0.2:0").unwrap());
    datagrams.set_nonblocking(true).unwrap();
    steering.insert(tuple(&ours)).unwrap();
    (&peer).write_all(b"x").unwrap();
    toy.run("a byte", |toy| toy.received == b"x");
    let before = steering.counters().unwrap();
    assert_eq!(before.foreign, 0);
    // A segment like one of its own, with the ports of a connection of the kernel.
    let mut state = toy.state.clone().unwrap();
    state.ports = [host.local_addr().unwrap().port(), host_peer.local_addr().unwrap().port()];
    let (frame, meta) = segment(&state, b"y", 0);
    toy.send_frame(&frame, meta);
    // A datagram to the peer, without a checksum.
    let mut frame = frame;
    frame[14 + 9] = 17;
    frame[34..42].copy_from_slice(&[0, 9, 0, 0, 0, 21, 0, 0]);
    frame[36..38].copy_from_slice(&datagrams.local_addr().unwrap().port().to_be_bytes());
    frame[24..26].fill(0);
    let header: u32 = (14..34).step_by(2).map(|i| u32::from(u16::from_be_bytes([frame[i], frame[i + 1]]))).sum();
    let check = !((header & 0xffff) + (header >> 16)) as u16;
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    toy.send_frame(&frame, TxMeta::default());
    // Not an IP packet.
    frame[12..14].copy_from_slice(&[0x08, 0x06]);
    toy.send_frame(&frame, TxMeta::default());
    // Its own segment arrives after them.
    toy.send(b"z", 0);
    let mut byte = [0];
    wait_for("the engine's byte", || (&peer).read(&mut byte).is_ok());
    assert_eq!(&byte, b"z");
    assert!(datagrams.recv(&mut [0; 64]).is_err(), "a datagram left");
    let after = steering.counters().unwrap();
    assert_eq!((after.foreign, after.sent), (3, before.sent + 1), "{after:?}");
    // An engine that was given up sends nothing more, and nothing of connections that it no longer
    // has.
    steering.set_engine(false).unwrap();
    toy.send(b"z", 0);
    steering.set_engine(true).unwrap();
    steering.hold_back(tuple(&ours)).unwrap();
    toy.send(b"z", 0);
    steering.remove(tuple(&ours)).unwrap();
    toy.send(b"z", 0);
    assert_eq!(steering.counters().unwrap().foreign, 6);
    stays_silent(&peer);
    stays_silent(&host_peer);
}

#[test]
fn each_engine_has_its_own_connections_and_a_device_that_can_be_taken_away() {
    need_root!();
    need_program!("clang");
    let Bench { mut toy, mut steering, wire } = Bench::new(Kind::Tc);
    let ends: Vec<_> = (0..3).map(|_| wire.connect(false)).collect();
    let mut toys: Vec<Toy> = Vec::new();
    for number in [1, 2] {
        let port = wire.ours.enter(|| steering.open_engine(number)).unwrap();
        steering.set_engine_up(number, true).unwrap();
        toys.push(Toy::new(port));
    }
    for ((ours, peer), number) in ends.iter().zip([1, 2, 0]) {
        steering.insert_for(tuple(ours), number).unwrap();
        let mut peer = peer;
        peer.write_all(&[b'0' + number as u8]).unwrap();
    }
    toy.run("a byte", |toy| toy.received == b"0");
    toys[0].run("a byte", |toy| toy.received == b"1");
    toys[1].run("a byte", |toy| toy.received == b"2");
    // A program writes segments of other programs' connections, and something that is not a
    // segment.
    let before = steering.counters().unwrap();
    for other in [toys[1].state.clone().unwrap(), toy.state.clone().unwrap()] {
        let (frame, meta) = segment(&other, b"y", 0);
        toys[0].send_frame(&frame, meta);
        toys[0].send_frame(&frame[..40], TxMeta::default());
    }
    toys[0].send(b"z", 0);
    let mut byte = [0];
    wait_for("the engine's byte", || (&ends[0].1).read(&mut byte).is_ok());
    let after = steering.counters().unwrap();
    assert_eq!((after.foreign - before.foreign, after.sent - before.sent), (4, 1), "{after:?}");
    // The device is removed although a process has it open: nothing leaves by it, and the other engines
    // continue.
    wire.ours.enter(|| steering.close_engine(1)).unwrap();
    let (frame, meta) = segment(&toys[0].state.clone().unwrap(), b"y", 1);
    assert!(!toys[0].try_send_frame(&frame, meta), "its device still exists");
    (&ends[0].1).write_all(b"lost").unwrap();
    (&ends[1].1).write_all(b"2").unwrap();
    toys[1].run("a byte", |toy| toy.received == b"22");
    toys[1].send(b"z", 0);
    wait_for("the engine's byte", || (&ends[1].1).read(&mut byte).is_ok());
    // The number is free again.
    let _port = wire.ours.enter(|| steering.open_engine(1)).unwrap();
    for (_, peer) in [&ends[0], &ends[2]] {
        stays_silent(peer);
    }
}

#[test]
fn by_xdp_there_is_one_engine() {
    need_root!();
    need_program!("clang");
    let Bench { mut steering, wire, toy: _ } = Bench::new(Kind::Xdp);
    let Err(refused) = wire.ours.enter(|| steering.open_engine(1)) else { panic!("a second engine") };
    assert!(refused.to_string().contains("use the kind tc"), "{refused}");
}

#[test]
fn frames_of_every_queue_reach_the_engine() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        let wire = Wire::new(&PLAIN);
        wire.ours.run("ip link del wire");
        wire.ours
            .run("ip link add wire numtxqueues 4 numrxqueues 4 type veth peer name far numtxqueues 4 numrxqueues 4");
        wire.ours.run(&format!("ip link set far netns {} name wire", wire.peer.name()));
        for (side, last) in [(&wire.ours, 1), (&wire.peer, 2)] {
            side.run(&format!("ip addr add 10.66.0.{last}/24 dev wire"));
            side.run("ip link set wire up");
        }
        let Bench { mut toy, mut steering, wire } = Bench::on(wire, kind);
        let pairs: Vec<_> = (0..16).map(|_| wire.connect(false)).collect();
        for (ours, peer) in &pairs {
            steering.insert(tuple(ours)).unwrap();
            (&mut &*peer).write_all(b"x").unwrap();
        }
        toy.answers = false;
        let ports = |toy: &Toy| {
            let mut ports: Vec<u16> = toy.sink.seen.iter().map(|s| s.ports[0]).collect();
            ports.sort_unstable();
            ports.dedup();
            ports.len()
        };
        toy.run("a segment of each connection", |toy| ports(toy) == 16);
        for (ours, _) in &pairs {
            assert!((&mut &*ours).read(&mut [0]).is_err(), "the kernel got a segment");
        }
    }
}

#[test]
fn a_connection_over_a_vlan_is_matched_with_its_tag() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        let Bench { mut toy, mut steering, wire } = Bench::new(kind);
        let vlan = wire.ours.command("ip").args("link add link wire name probe type vlan id 4".split(' ')).output();
        if !vlan.is_ok_and(|out| out.status.success()) {
            skip!("no VLAN interfaces on this kernel (modprobe 8021q)");
        }
        for (side, last) in [(&wire.ours, 1), (&wire.peer, 2)] {
            if kind == Kind::Xdp {
                // A veth passes tags outside the frame, where XDP does not see them.
                side.run("ethtool -K wire txvlan off rxvlan off");
            }
            side.run("ip link add link wire name tagged type vlan id 5");
            side.run(&format!("ip addr add 10.67.0.{last}/24 dev tagged"));
            side.run("ip link set tagged up");
        }
        let listener = wire.peer.enter(|| TcpListener::bind("10.67.0.2:0").unwrap());
        let there = listener.local_addr().unwrap();
        let ours = wire.ours.enter(|| TcpStream::connect(there).unwrap());
        let (peer, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        // The same addresses in another VLAN are another connection.
        for other in [[0, 0], [6, 0], [5, 5]] {
            steering.insert(SteeredTuple { tuple: tuple(&ours), vlans: other }).unwrap();
        }
        (&peer).write_all(b"kernel").unwrap();
        let mut word = [0; 6];
        wait_for("the kernel's", || (&ours).read(&mut word).is_ok());
        assert_eq!(&word, b"kernel");
        steering.insert(SteeredTuple { tuple: tuple(&ours), vlans: [5, 0] }).unwrap();
        let sent = write_ramp(&peer, 1_000_000);
        toy.run("the stream", |toy| toy.received.len() == 1_000_000);
        sent.join().unwrap();
        assert!(toy.received == Ramp::bytes(0, 1_000_000));
        let (piece, mss) = if kind == Kind::Tc { (60_000, MSS) } else { (1_000, 0) };
        let read = read_ramp(&peer, piece);
        toy.send_all(&Ramp::bytes(0, piece), piece, mss);
        toy.run("the peer", |_| read.is_finished());
        read.join().unwrap();
        stays_silent(&ours);
    }
}

#[test]
fn a_map_that_is_full_says_so() {
    need_root!();
    need_program!("clang");
    let wire = Wire::new(&[]);
    let mut steering = attach(&wire.ours, Kind::Tc, Options { tuples_max: 2, ..Options::default() }).unwrap();
    let remote: SocketAddr = "10.66.0.2:80".parse().unwrap();
    let tuple = |port| Tuple::new(SocketAddr::new("10.66.0.1".parse().unwrap(), port), remote);
    steering.insert(tuple(1)).unwrap();
    steering.insert(tuple(2)).unwrap();
    assert!(matches!(steering.insert(tuple(3)), Err(SteerError::Full)));
    assert!(steering.remove(tuple(1)).unwrap());
    steering.insert(tuple(3)).unwrap();
}

#[test]
fn an_xdp_program_that_is_there_keeps_its_place() {
    need_root!();
    need_program!("clang");
    let wire = Wire::new(&PLAIN);
    let held = wire.ours.enter(|| XdpPort::open("wire", XdpOptions::default()).unwrap());
    let error = attach(&wire.ours, Kind::Xdp, Options::default()).err().expect("the place is taken");
    assert!(matches!(&error, SteerError::Occupied { .. }) && error.to_string().contains("kind tc"), "{error}");
    // The checksum of a frame is then up to our own kernel, as without steering.
    wire.peer.enter(|| link::set_tx_checksum_offload("wire", false).unwrap());
    let Bench { mut toy, mut steering, wire } = Bench::on(wire, Kind::Auto);
    assert_eq!(steering.mode(), Mode::Tc);
    let (ours, peer) = wire.connect(false);
    steering.insert(tuple(&ours)).unwrap();
    let sent = write_ramp(&peer, 100_000);
    toy.run("the stream", |toy| toy.received.len() == 100_000);
    sent.join().unwrap();
    assert!(held.counters().unwrap().program.passed > 0);
}

#[test]
fn what_cannot_be_steered_is_named_with_a_remedy() {
    need_root!();
    need_program!("clang");
    let wire = Wire::new(&[]);
    let on = |name: &str, kind| wire.ours.enter(|| Steering::attach(name, kind, Options::default()));
    for name in ["nowhere", "", "a/b"] {
        assert!(matches!(on(name, Kind::Auto), Err(SteerError::Missing { .. })), "{name:?}");
    }
    assert!(matches!(on("lo", Kind::Auto), Err(SteerError::Unsuitable { .. })));
    for kind in [Kind::Tc, Kind::Xdp] {
        let held = on("wire", kind).unwrap();
        let error = on("wire", kind).err().expect("the interface is steered already");
        assert!(matches!(&error, SteerError::Occupied { .. }), "{error}");
        drop(held);
        drop(on("wire", kind).unwrap());
    }
}
