//! A connection with data beyond a gap in the kernel moves once the gap has closed.

use crate::common::World;
use crate::common::kernels::tcp_counter;
use baton_client::{Place, Service, Stream};
use baton_testkit::{need_program, need_root, wait_for};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::{self, sleep};
use std::time::Duration;

/// With a service that waits for `drain`, hands over a connection one byte of which is lost again
/// and again, and calls `meanwhile`. Returns the connection and its peer.
fn hand_over(
    drain: Duration,
    ipv6: bool,
    meanwhile: impl FnOnce(&World<'_>, &Service),
    then: impl FnOnce(&World<'_>, Stream, TcpStream),
) {
    let configure = |config: &mut baton_service::broker::Config| config.drain = drain;
    World::enter_with(configure, |world| {
        let service = world.service();
        let (ours, mut peer) = world.wire.connect(ipv6);
        world.wire.lose_single_bytes(ipv6);
        peer.write_all(b"a").unwrap();
        peer.write_all(b"bc").unwrap();
        wait_for("a gap", || world.wire.ours.enter(|| tcp_counter("TCPOFOQueue")) > 0);
        let stream = thread::scope(|scope| {
            let adopting = scope.spawn(|| service.adopt(ours.into()));
            meanwhile(world, &world.service());
            adopting.join().unwrap().unwrap()
        });
        assert_eq!(stream.place(), Place::Engine);
        then(world, stream, peer);
    });
}

fn reads_all(stream: &Stream) {
    let (mut read, mut bytes) = (0, [0; 3]);
    wait_for("three bytes", || {
        read += (&*stream).read(&mut bytes[read..]).unwrap_or(0);
        read == bytes.len()
    });
    assert_eq!(&bytes, b"abc");
}

#[test]
fn a_connection_waits_in_the_kernel_until_nothing_lies_beyond_a_gap() {
    need_root!();
    need_program!("clang");
    for ipv6 in [false, true] {
        let meanwhile = |world: &World<'_>, service: &Service| {
            sleep(Duration::from_millis(300));
            let entries = service.list().unwrap();
            assert!(entries.iter().all(|entry| entry.place == "kernel") && entries.len() == 1, "{entries:?}");
            world.wire.lose_nothing();
        };
        hand_over(Duration::from_secs(60), ipv6, meanwhile, |world, stream, _peer| {
            reads_all(&stream);
            assert_eq!(world.wire.peer.enter(|| tcp_counter("TCPSACKReneging")), 0);
        });
    }
}

#[test]
fn it_does_not_wait_for_ever() {
    need_root!();
    need_program!("clang");
    hand_over(
        Duration::from_millis(200),
        false,
        |_, _| (),
        |world, stream, _peer| {
            // The rule is only on the kernel's path.
            world.wire.lose_nothing();
            reads_all(&stream);
        },
    );
}
