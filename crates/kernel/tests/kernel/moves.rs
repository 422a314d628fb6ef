//! Live connections move out of the kernel and back, with a kernel as the peer: every byte arrives
//! once and in order, and nobody resets.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::common::{Pair, Wire};
use baton_kernel::Captured;
use baton_kernel::socket_options::IntOption;
use baton_testkit::{need_root, output, skip};
use rustix::net::sockopt;

const OPTIONS: [(&str, &[&str]); 4] = [
    ("all options", &[]),
    ("no timestamps", &["net.ipv4.tcp_timestamps=0"]),
    ("no SACK", &["net.ipv4.tcp_sack=0"]),
    ("no window scaling", &["net.ipv4.tcp_window_scaling=0"]),
];

/// Bytes that wait in the queues when the connection moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiting {
    Nothing,
    Unread,
    Unsent,
    Both,
    Unacked,
}

fn one_move(wire: &Wire, ipv6: bool, waiting: Waiting) {
    let mut pair = Pair::new(wire, ipv6);
    pair.exchange(3_000);
    if matches!(waiting, Waiting::Unread | Waiting::Both) {
        pair.leave_unread(50_000);
    }
    if matches!(waiting, Waiting::Unsent | Waiting::Both) {
        pair.fill_send_queue();
    }
    if waiting == Waiting::Unacked {
        pair.leave_unacked(wire, 20_000);
    }
    let captured = wire.move_there_and_back(&pair.ours);
    let p = &captured.protocol;
    let unread = matches!(waiting, Waiting::Unread | Waiting::Both);
    let unsent = matches!(waiting, Waiting::Unsent | Waiting::Both);
    assert_eq!(p.unread_bytes() > 0, unread, "{captured:?}");
    assert!(p.unsent_bytes() > 0 || !unsent, "{captured:?}");
    assert!(p.unacked_bytes() > 0 || waiting != Waiting::Unacked, "{captured:?}");
    pair.exchange(200_000);
    pair.close();
}

fn matrix(ipv6: bool) {
    for (name, settings) in OPTIONS {
        let wire = Wire::new(settings);
        for waiting in [Waiting::Nothing, Waiting::Unread, Waiting::Unsent, Waiting::Both, Waiting::Unacked] {
            println!("{name}, {waiting:?}, ipv6 {ipv6}");
            one_move(&wire, ipv6, waiting);
        }
        assert_eq!(wire.resets(), 0, "{name}");
    }
}

#[test]
fn a_connection_moves_with_whatever_waits_in_its_queues_over_ipv4() {
    need_root!();
    matrix(false);
}

#[test]
fn a_connection_moves_with_whatever_waits_in_its_queues_over_ipv6() {
    need_root!();
    matrix(true);
}

#[test]
fn two_hundred_moves_under_load() {
    need_root!();
    for ipv6 in [false, true] {
        let wire = Wire::new(&[]);
        let mut pair = Pair::new(&wire, ipv6);
        let mut busy = [0; 3];
        for _ in 0..200 {
            // More is written than read, so something always waits or is on its way.
            for _ in 0..4 {
                pair.out.write(&pair.ours, 100_000);
                pair.back.write(&pair.peer, 100_000);
                pair.out.read(&pair.peer).unwrap();
                pair.back.read(&pair.ours).unwrap();
            }
            let p = wire.move_there_and_back(&pair.ours).protocol;
            let full = [p.unread_bytes(), p.unacked_bytes(), p.unsent_bytes()].map(|bytes| u32::from(bytes > 0));
            busy = std::array::from_fn(|i| busy[i] + full[i]);
        }
        println!("{} bytes out, {} back; moves with unread, unacked, unsent: {busy:?}", pair.out.read, pair.back.read);
        assert!(busy.iter().all(|moves| *moves > 10), "the queues were used");
        assert!(pair.out.read > 1 << 20 && pair.back.read > 1 << 20, "both streams continued");
        pair.exchange(1_000);
        pair.close();
        assert_eq!(wire.resets(), 0);
    }
}

#[test]
fn megabytes_move_in_both_queues() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::new(&wire, false);
    sockopt::set_socket_send_buffer_size_force(&pair.ours, 8 << 20).unwrap();
    sockopt::set_socket_recv_buffer_size_force(&pair.ours, 8 << 20).unwrap();
    sockopt::set_socket_send_buffer_size_force(&pair.peer, 8 << 20).unwrap();
    pair.fill_send_queue();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(2);
    while std::time::Instant::now() < deadline {
        pair.back.write(&pair.peer, 65_536);
    }
    let captured = wire.move_there_and_back(&pair.ours);
    assert!(captured.send_queue.len() > 2 << 20 && captured.receive_queue.len() > 1 << 20, "{captured:?}");
    let again = wire.move_there_and_back(&pair.ours);
    assert!(captured.send_queue.ends_with(&again.send_queue), "what had not left");
    pair.exchange(100_000);
    pair.close();
    assert_eq!(wire.resets(), 0);
}

#[test]
fn more_is_unread_than_the_buffer_takes_since_the_program_made_it_small() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::new(&wire, false);
    pair.exchange(1_000);
    sockopt::set_socket_recv_buffer_size_force(&pair.ours, 1 << 20).unwrap();
    sockopt::set_socket_send_buffer_size_force(&pair.peer, 1 << 20).unwrap();
    pair.leave_unread(300_000);
    pair.leave_unread(0);
    sockopt::set_socket_recv_buffer_size(&pair.ours, 2304).unwrap();
    for _ in 0..2 {
        let captured = wire.move_there_and_back(&pair.ours);
        // More than the kernel accepts in one piece.
        assert!(captured.receive_queue.len() > 150_000, "{captured:?}");
        assert_eq!(captured.options.buffers.receive, 4608);
    }
    pair.exchange(20_000);
    pair.close();
    assert_eq!(wire.resets(), 0);
}

#[test]
fn what_the_program_set_survives() {
    need_root!();
    let wire = Wire::new(&[]);
    for ipv6 in [false, true] {
        let mut pair = Pair::new(&wire, ipv6);
        let ours = &pair.ours;
        sockopt::set_tcp_nodelay(ours, true).unwrap();
        sockopt::set_socket_keepalive(ours, true).unwrap();
        sockopt::set_tcp_keepidle(ours, Duration::from_secs(77)).unwrap();
        sockopt::set_tcp_keepintvl(ours, Duration::from_secs(13)).unwrap();
        sockopt::set_tcp_keepcnt(ours, 4).unwrap();
        sockopt::set_tcp_user_timeout(ours, 12_345).unwrap();
        sockopt::set_socket_linger(ours, Some(Duration::from_secs(5))).unwrap();
        sockopt::set_socket_timeout(ours, sockopt::Timeout::Recv, Some(Duration::from_secs(3))).unwrap();
        sockopt::set_socket_recv_buffer_size(ours, 50_000).unwrap();
        sockopt::set_socket_reuseaddr(ours, true).unwrap();
        sockopt::set_tcp_congestion(ours, "reno").unwrap();
        sockopt::set_ip_tos(ours, 0x20).unwrap();
        if ipv6 {
            sockopt::set_ipv6_tclass(ours, 0x40).unwrap();
        }
        pair.exchange(10_000);
        pair.leave_unread(10_000);
        let first = wire.move_there_and_back(&pair.ours);
        let second = wire.move_there_and_back(&pair.ours);
        // Quick ACKs switch on and off by themselves.
        let set = |captured: &Captured| {
            let o = &captured.options;
            let ints = IntOption::ALL.map(|option| o.int(option).filter(|_| option != IntOption::QuickAck));
            (ints, o.reuse_address, o.buffers, o.linger, o.receive_timeout, o.send_timeout, o.congestion)
        };
        assert_eq!(set(&second), set(&first));
        let o = &second.options;
        let get = |option| o.int(option).unwrap();
        assert_eq!(
            (get(IntOption::NoDelay), get(IntOption::KeepAlive), get(IntOption::KeepIdle), get(IntOption::KeepCount)),
            (1, 1, 77, 4)
        );
        assert_eq!((get(IntOption::UserTimeout), get(IntOption::Tos), o.congestion_name()), (12_345, 0x20, "reno"));
        assert_eq!(o.int(IntOption::TrafficClass), ipv6.then_some(0x40));
        assert!(o.reuse_address && o.buffers.receive == 100_000 && o.buffers.locks == 2, "{o:?}");
        assert_eq!(second.protocol.scales, first.protocol.scales);
        assert_eq!(second.protocol.peer_mss, first.protocol.peer_mss);
        assert!(second.protocol.right_edge.after_eq(first.protocol.right_edge), "nothing was taken back");
        pair.exchange(10_000);
        pair.close();
    }
    assert_eq!(wire.resets(), 0);
}

#[test]
fn a_server_on_a_socket_of_both_versions_moves_and_its_port_stays_free_for_it() {
    need_root!();
    let wire = Wire::new(&[]);
    let listen = || TcpListener::bind("[::]:7777");
    let listener = wire.ours.enter(|| listen().unwrap());
    let peer = wire.peer.enter(|| TcpStream::connect("10.66.0.1:7777").unwrap());
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    peer.set_nonblocking(true).unwrap();
    let mut pair = Pair { ours, peer, out: Default::default(), back: Default::default() };
    pair.exchange(1_000);
    let captured = wire.move_there_and_back(&pair.ours);
    assert!(!captured.protocol.ipv6 && captured.local.is_ipv6(), "{captured:?}");
    assert!(captured.tuple().local.is_v4());
    pair.exchange(1_000);
    drop(listener);
    // A child that another test is forking has the old listener until its exec.
    let free = (0..100).any(|_| {
        let listening = wire.ours.enter(|| listen().is_ok());
        if !listening {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        listening
    });
    assert!(free, "the port is free for a new listener");
    pair.close();
    assert_eq!(wire.resets(), 0);
}

#[test]
fn a_connection_over_a_vlan_moves() {
    need_root!();
    let wire = Wire::new(&[]);
    let add = "ip link add link wire name tagged type vlan id 7";
    let out = output(&mut {
        let mut command = wire.ours.command("ip");
        command.args(add.split(' ').skip(1));
        command
    });
    if !out.status.success() {
        skip!("no VLAN devices here: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    wire.peer.run(add);
    for (side, last) in [(&wire.ours, 1), (&wire.peer, 2)] {
        side.run("ip link set tagged up");
        // The connection's addresses move to the VLAN device.
        side.run(&format!("ip addr del 10.66.0.{last}/24 dev wire"));
        side.run(&format!("ip addr add 10.66.0.{last}/24 dev tagged"));
    }
    one_move(&wire, false, Waiting::Both);
    assert_eq!(wire.resets(), 0);
}

#[test]
fn a_connection_between_link_local_addresses_moves() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::link_local(&wire);
    pair.exchange(3_000);
    pair.leave_unread(10_000);
    wire.move_there_and_back(&pair.ours);
    pair.exchange(50_000);
    pair.close();
    assert_eq!(wire.resets(), 0);
}
