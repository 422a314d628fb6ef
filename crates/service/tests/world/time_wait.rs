//! A new connection with the addresses and ports of one that is in TIME-WAIT in the engine.

use crate::common::World;
use crate::common::kernels::Wire;
use crate::common::kernels::firewall::{invalid, stateful};
use baton_client::{Service, Stream};
use baton_kernel::steer::Kind;
use baton_testkit::{need_program, need_root, wait_for};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

/// A client that always uses the same port.
fn client(to: SocketAddr) -> Option<TcpStream> {
    let [_, there] = Wire::addresses(to.is_ipv6());
    let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &SocketAddr::new(there, 40_000)).ok()?;
    connect(&socket, &to).ok()?;
    Some(socket.into())
}

/// The number of SYNs that were retransmitted in this network namespace.
fn repeated() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let value = names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "TCPSynRetrans").unwrap().1;
    value.parse().unwrap()
}

/// The server closes first, three times, and keeps the sockets that it closed if `hold`.
fn come_again(world: &World<'_>, service: &Service, ipv6: bool, hold: bool) {
    let [here, _] = Wire::addresses(ipv6);
    let listener = world.wire.ours.enter(|| TcpListener::bind((here, 0)).unwrap());
    let to = listener.local_addr().unwrap();
    let before = world.wire.peer.enter(repeated);
    let mut held: Vec<Stream> = Vec::new();
    for round in 0u8..4 {
        let mut peer = None;
        // The client's last connection may not have seen its end yet.
        wait_for("a connection", || {
            peer = world.wire.peer.enter(|| client(to));
            peer.is_some()
        });
        let mut peer = peer.expect("the wait above succeeded");
        let (ours, _) = listener.accept().unwrap();
        let mut stream = service.adopt(ours.into()).unwrap();
        stream.write_all(&[round; 1000]).unwrap();
        stream.shutdown().unwrap();
        let mut bytes = Vec::new();
        peer.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [round; 1000]);
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        if hold {
            held.push(stream);
        }
    }
    assert_eq!(world.wire.peer.enter(repeated), before, "a SYN was lost");
    for mut stream in held {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn a_new_connection_of_a_name_in_time_wait_begins_in_the_kernel_at_once() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        World::enter_with(
            |config| config.interfaces[0].kind = kind,
            |world| {
                let mut services = vec![world.service()];
                if kind == Kind::Tc {
                    services.push(world.direct());
                }
                let resets = world.wire.resets();
                for service in services {
                    for (ipv6, hold) in [(false, false), (true, false), (false, true)] {
                        come_again(world, &service, ipv6, hold);
                    }
                }
                assert_eq!(world.wire.resets(), resets);
            },
        );
    }
}

/// The engine left the entry in TIME_WAIT, and the SYN takes it over.
#[test]
fn a_new_connection_of_a_name_in_time_wait_passes_stateful_rules() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        stateful(world.wire);
        for service in [world.service(), world.direct()] {
            come_again(world, &service, false, false);
            come_again(world, &service, true, true);
        }
        assert_eq!(invalid(world.wire), 0);
    });
}
