//! Connections that move through a service of several processes.

mod common;

use baton_socket::service::Place;
use baton_socket::service::message::Selector;
use baton_testkit::{need_program, need_root};
use common::{World, be_the_engine};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// Not a test: what the others start as an engine.
#[test]
fn the_engines_process() {
    be_the_engine();
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_connection_goes_to_the_engine_and_back() {
    need_root!();
    need_program!("clang");
    World::enter(|_| {}, |world| {
        let service = world.service();
        let resets = world.wire.resets();
        for ipv6 in [false, true] {
            let mut line = world.line(ipv6);
            line.go_on(100_000);
            for _ in 0..5 {
                line.adopt(&service);
                assert_eq!(line.place(), Place::Engine);
                line.go_on(500_000);
                line.restore();
                line.go_on(100_000);
            }
            line.finish();
        }
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn when_the_engine_is_killed_connections_go_on_in_the_kernel() {
    need_root!();
    need_program!("clang");
    World::enter(|_| {}, |world| {
        let service = world.service();
        let resets = world.wire.resets();
        let mut lines: Vec<_> = (0..10).map(|n| world.line(n % 2 == 0)).collect();
        for line in &mut lines {
            line.adopt(&service);
        }
        for _ in 0..20 {
            lines.iter_mut().for_each(|line| line.turn(30_000));
        }
        kill(world.engine);
        let killed = Instant::now();
        while lines.iter().any(|line| line.place() != Place::Kernel) {
            lines.iter_mut().for_each(|line| line.turn(30_000));
            assert!(killed.elapsed() < Duration::from_secs(1), "they are not in the kernel after a second");
        }
        lines.iter_mut().for_each(|line| line.go_on(200_000));
        // There is a new engine, and they go to it.
        let begun = Instant::now();
        loop {
            let tally = service.handoff(Selector::All).unwrap();
            assert_eq!(tally.count, 10);
            lines.iter_mut().for_each(|line| line.turn(30_000));
            if lines.iter().all(|line| line.place() == Place::Engine) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "{tally:?}");
        }
        lines.iter_mut().for_each(|line| line.go_on(200_000));
        lines.into_iter().for_each(common::Line::finish);
        assert_eq!(world.wire.resets(), resets);
    });
}
