//! The usual stateful rules beside connections that move: conntrack is told of them.

use crate::common::kernels::firewall::{entries, entry, invalid, stateful};
use crate::common::{At, Line, Role, World};
use baton_socket::service::{Place, Service};
use baton_testkit::{need_program, need_root, wait_for};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// More than conntrack lets a window be off by.
const FAR: u64 = 4 << 20;

/// A line of each version that the engine has, after so much that conntrack did not see.
fn far_lines(world: &World<'_>, service: &Service) -> Vec<Line> {
    [false, true]
        .map(|ipv6| {
            let mut line = world.line(ipv6);
            line.go_on(10_000);
            line.adopt(service);
            line.go_on(FAR);
            line
        })
        .into()
}

/// They are in the kernel, and go on there and back in the engine, to their end.
fn go_on_and_finish(world: &World<'_>, service: &Service, lines: Vec<Line>) {
    for mut line in lines {
        line.go_on(FAR);
        if matches!(line.at, At::Service(_)) {
            line.restore();
            line.go_on(100_000);
        }
        line.adopt(service);
        line.go_on(FAR);
        line.restore();
        line.go_on(100_000);
        line.finish();
    }
    assert_eq!(invalid(world.wire), 0);
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

fn wait_until_home(lines: &mut [Line]) {
    for line in lines {
        wait_for("its way home", || {
            line.turn(1_000);
            line.place() == Place::Kernel
        });
    }
}

#[test]
fn what_comes_home_passes_stateful_rules() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        stateful(world.wire);
        let resets = world.wire.resets();
        for service in [world.service(), world.direct()] {
            let lines = far_lines(world, &service);
            go_on_and_finish(world, &service, lines);
        }
        assert_eq!(world.wire.resets(), resets);
        let tracked = entries(world.wire);
        assert!(tracked.len() >= 4 && tracked.iter().all(|entry| entry.state == "TIME_WAIT"), "{tracked:?}");
    });
}

#[test]
fn after_the_engines_death_stateful_rules_pass_what_goes_on() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        stateful(world.wire);
        let service = world.service();
        let mut lines = far_lines(world, &service);
        kill(world.engine);
        wait_until_home(&mut lines);
        wait_for("another engine", || service.list().is_ok());
        lines.into_iter().for_each(|mut line| {
            line.go_on(FAR);
            line.finish();
        });
        assert_eq!(invalid(world.wire), 0);
    });
}

#[test]
fn after_the_brokers_death_stateful_rules_pass_what_goes_on() {
    need_root!();
    need_program!("clang");
    World::enter_guarded(|world| {
        stateful(world.wire);
        let service = world.service();
        let mut lines = far_lines(world, &service);
        kill(world.process(Role::Broker));
        wait_until_home(&mut lines);
        lines.into_iter().for_each(|mut line| {
            line.go_on(FAR);
            line.finish();
        });
        assert_eq!(invalid(world.wire), 0);
    });
}
