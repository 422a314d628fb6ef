//! Conntrack's entries of connections that ended on the engine match those of connections that
//! ended in the kernel.

use crate::common::kernels::firewall::{Entry, entries, entry, invalid, stateful};
use crate::common::kernels::wait_for;
use crate::common::{At, Line, World};
use baton_client::Service;
use baton_testkit::{need_program, need_root};
use rustix::net::sockopt::set_socket_linger;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// The seconds of a timeout that pass before it is examined.
const LATE_S: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    OursFirst,
    PeerFirst,
    OursReset,
    PeersReset,
}

fn shut_ours(line: &Line) {
    match &line.at {
        At::Kernel(stream) => stream.shutdown(Shutdown::Write).unwrap(),
        At::Service(stream) => stream.shutdown().unwrap(),
        At::Moving => unreachable!("it has arrived"),
    }
}

fn end(line: Line, how: How) {
    match how {
        How::PeerFirst => line.finish(),
        How::OursReset => match &line.at {
            At::Kernel(stream) => set_socket_linger(stream, Some(Duration::ZERO)).unwrap(),
            At::Service(stream) => stream.set_linger(Some(Duration::ZERO)).unwrap(),
            At::Moving => unreachable!("it has arrived"),
        },
        How::PeersReset => set_socket_linger(&line.peer, Some(Duration::ZERO)).unwrap(),
        How::OursFirst => {
            let mut line = line;
            shut_ours(&line);
            wait_for("its end at the peer", || line.read()[1]);
            line.peer.shutdown(Shutdown::Write).unwrap();
            wait_for("its end here", || line.read()[0]);
        }
    }
}

/// The entry of a connection that ended in this way, in the kernel or on a service's engine.
fn entry_after(world: &World<'_>, service: Option<&Service>, how: How, ipv6: bool) -> Entry {
    let mut line = world.line(ipv6);
    let port = line.peer.local_addr().unwrap().port();
    line.go_on(10_000);
    if let Some(service) = service {
        line.adopt(service);
    }
    line.go_on(50_000);
    line.come_to_rest();
    end(line, how);
    let mut found = None;
    wait_for("its end in conntrack", || {
        found = entry(world.wire, port);
        found.as_ref().is_none_or(|entry| matches!(&*entry.state, "TIME_WAIT" | "CLOSE"))
    });
    found.unwrap_or_else(|| panic!("{how:?}: the entry is gone"))
}

#[test]
fn an_entry_ends_as_the_kernels() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        stateful(world.wire);
        for ipv6 in [false, true] {
            for how in [How::OursFirst, How::PeerFirst, How::OursReset, How::PeersReset] {
                let kernels = entry_after(world, None, how, ipv6);
                for service in [world.service(), world.direct()] {
                    let engines = entry_after(world, Some(&service), how, ipv6);
                    assert_eq!(engines.state, kernels.state, "{how:?}: {engines:?} {kernels:?}");
                    assert!(engines.left_s.abs_diff(kernels.left_s) <= LATE_S, "{how:?}: {engines:?} {kernels:?}");
                }
            }
        }
        assert_eq!(invalid(world.wire), 0);
    });
}

/// After a FIN that conntrack did not see, the entry develops like the kernel's.
#[test]
fn what_comes_home_half_closed_ends_in_time_wait() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        stateful(world.wire);
        let service = world.service();
        for (ipv6, ours_first) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut line = world.line(ipv6);
            let port = line.peer.local_addr().unwrap().port();
            line.adopt(&service);
            line.go_on(4 << 20);
            line.come_to_rest();
            if ours_first {
                shut_ours(&line)
            } else {
                line.peer.shutdown(Shutdown::Write).unwrap()
            }
            wait_for("the end", || line.read() != [false, false]);
            line.restore();
            let found = entry(world.wire, port).unwrap();
            assert_eq!(found.state, "CLOSE_WAIT", "{found:?}");
            assert!(found.left_s <= 60, "{found:?}");
            if ours_first {
                line.peer.shutdown(Shutdown::Write).unwrap();
            } else {
                shut_ours(&line);
            }
            wait_for("the other end", || line.read() != [!ours_first, ours_first]);
            wait_for("its end in conntrack", || entry(world.wire, port).is_some_and(|e| e.state == "TIME_WAIT"));
        }
        assert_eq!(invalid(world.wire), 0);
    });
}

/// The number of entries in each state.
fn states(world: &World<'_>) -> BTreeMap<String, usize> {
    let mut states = BTreeMap::new();
    entries(world.wire).into_iter().for_each(|entry| *states.entry(entry.state).or_default() += 1);
    states
}

/// Runs `count` connections with one byte in each direction, some at a time. The peer closes first,
/// because it does not reuse a port then.
fn many(world: &World<'_>, service: Option<&Service>, count: usize) {
    const AT_ONCE: usize = 8;
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| one_by_one(world, service, count / AT_ONCE));
        }
    });
}

fn one_by_one(world: &World<'_>, service: Option<&Service>, count: usize) {
    let listener = world.wire.ours.enter(|| TcpListener::bind("10.66.0.1:0").unwrap());
    let to = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            world.wire.peer.enter(|| {
                for _ in 0..count {
                    let mut client = TcpStream::connect(to).unwrap();
                    client.write_all(&[1]).unwrap();
                    client.read_exact(&mut [0]).unwrap();
                    client.shutdown(Shutdown::Write).unwrap();
                    assert_eq!(client.read(&mut [0]).unwrap(), 0);
                }
            });
        });
        for _ in 0..count {
            let (server, _) = listener.accept().unwrap();
            match service {
                None => serve(server),
                Some(service) => serve(service.adopt(server.into()).unwrap_or_else(|refused| panic!("{refused}"))),
            }
        }
    });
}

fn serve(mut stream: impl Read + Write) {
    stream.read_exact(&mut [0]).unwrap();
    stream.write_all(&[2]).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn ten_thousand_short_connections_leave_what_the_kernels_leave() {
    need_root!();
    need_program!("clang");
    const COUNT: usize = 10_000;
    World::enter(|world| {
        stateful(world.wire);
        // All entries must exist at the end, however long that takes.
        world.wire.ours.run("sysctl -q -w net.netfilter.nf_conntrack_tcp_timeout_time_wait=3600");
        let service = world.service();
        many(world, None, COUNT);
        let kernels = states(world);
        many(world, Some(&service), COUNT);
        wait_for("the end of all", || service.list().unwrap().iter().all(|entry| entry.place == "closing"));
        wait_for("the end in conntrack", || !states(world).contains_key("ESTABLISHED"));
        let both = states(world);
        println!("the kernel's: {kernels:?}, and the engine's: {both:?}");
        assert_eq!(kernels, BTreeMap::from([("TIME_WAIT".to_owned(), COUNT)]));
        assert_eq!(both, BTreeMap::from([("TIME_WAIT".to_owned(), 2 * COUNT)]));
        assert_eq!(invalid(world.wire), 0);
    });
}
