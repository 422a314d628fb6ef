//! A connection with data beyond a gap in the kernel moves once the gap has closed.

use crate::world::World;
use crate::world::common::tcp_counter;
use baton_kernel::steer::Kind;
use baton_testkit::{need_program, need_root, wait_for};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

#[test]
fn a_handoff_waits_until_nothing_lies_beyond_a_gap() {
    need_root!();
    need_program!("clang");
    for (kind, ipv6) in [(Kind::Tc, false), (Kind::Xdp, true)] {
        World::enter(kind, |world| {
            let wire = world.wire;
            let (ours, mut peer) = wire.connect(ipv6);
            wire.lose_single_bytes(ipv6);
            peer.write_all(b"a").unwrap();
            peer.write_all(b"bc").unwrap();
            wait_for("a gap", || tcp_counter("TCPOFOQueue") > 0);
            let filled = AtomicBool::new(false);
            let name = thread::scope(|scope| {
                scope.spawn(|| {
                    sleep(Duration::from_millis(100));
                    filled.store(true, Ordering::Relaxed);
                    wire.lose_nothing();
                });
                let name = world.mover.handoff(ours.into()).unwrap();
                assert!(filled.load(Ordering::Relaxed), "it did not wait");
                name
            });
            let (mut read, mut bytes) = (0, [0; 3]);
            wait_for("three bytes", || {
                world.mover.poll().unwrap();
                read += world.mover.read(name, &mut bytes[read..]).unwrap_or(0);
                read == bytes.len()
            });
            assert_eq!(&bytes, b"abc");
            assert_eq!(wire.peer.enter(|| tcp_counter("TCPSACKReneging")), 0);
        });
    }
}
