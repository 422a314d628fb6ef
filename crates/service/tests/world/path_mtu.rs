//! The kernel knows the MTU of a path that an engine has learned, whether the engine gave the
//! connection back or died with it.

use crate::common::kernels::{LONG, Wire, wait_for};
use crate::common::{Line, World};
use baton_client::Place;
use baton_ipc::message::Entry;
use baton_kernel::steer::Kind;
use baton_testkit::{Netns, need_program, need_root};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Instant;

const NARROW: u32 = 1300;

/// The MTU that our kernel has learned for the path to the peer, if any.
fn route_mtu(wire: &Wire) -> Option<u32> {
    let [_, there] = Wire::addresses(false);
    let route = wire.ours.run(&format!("ip -d route get {there}"));
    let mut words = route.split_whitespace().skip_while(|word| *word != "mtu");
    words.nth(1).map(|mtu| mtu.parse().unwrap())
}

fn narrowed(killed: bool) {
    let router = Netns::new("router");
    let wire = Wire::through(&router);
    World::enter_on(
        &wire,
        |_| {},
        |world| {
            let mut line = world.line(false);
            line.adopt(&world.service());
            line.go_on(1_000_000);
            router.run(&format!("ip link set peer mtu {NARROW}"));
            wire.peer.run(&format!("ip link set wire mtu {NARROW}"));
            line.go_on(1_000_000);
            assert_eq!(route_mtu(&wire), None, "the kernel has sent nothing that was too big");
            if killed {
                kill_process(Pid::from_raw(world.engine as i32).unwrap(), Signal::KILL).unwrap();
                let begun = Instant::now();
                while line.place() != Place::Kernel {
                    line.turn(10_000);
                    assert!(begun.elapsed() < LONG, "the connection does not come home");
                }
            } else {
                line.restore();
            }
            assert_eq!(route_mtu(&wire), Some(NARROW));
            line.go_on(1_000_000);
            line.finish();
        },
    );
}

#[test]
fn what_the_interface_carries_may_change() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        World::enter_with(
            |config| config.interfaces[0].kind = kind,
            |world| {
                let service = world.service();
                let mut lines = [world.line(false), world.line(true)];
                lines.iter_mut().for_each(|line| line.adopt(&service));
                for (moves, mtu) in [(1, 1500), (3, NARROW), (5, 2000), (7, 1500)] {
                    for side in [&world.wire.peer, &world.wire.ours] {
                        side.run(&format!("ip link set wire mtu {mtu}"));
                    }
                    wait_for("another engine", || {
                        lines.iter_mut().for_each(|line| line.turn(10_000));
                        let there = |entry: Entry| entry.place == "engine" && entry.moves == moves;
                        service.list().unwrap().into_iter().all(there)
                    });
                    lines.iter_mut().for_each(|line| line.go_on(1_000_000));
                }
                lines.into_iter().for_each(Line::finish);
            },
        );
    }
}

#[test]
fn a_connection_that_comes_home_brings_what_its_path_carries() {
    need_root!();
    need_program!("clang");
    narrowed(false);
}

#[test]
fn a_connection_whose_engine_dies_does_too() {
    need_root!();
    need_program!("clang");
    narrowed(true);
}
