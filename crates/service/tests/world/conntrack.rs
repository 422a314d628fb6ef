//! The usual stateful rules with connections that move: conntrack is told of the moves.

use crate::common::kernels::Ramp;
use crate::common::kernels::firewall::{entries, entry, invalid, stateful};
use crate::common::{At, Line, Role, World};
use baton_client::{Place, Service};
use baton_ipc::message::Selector;
use baton_testkit::{need_program, need_root, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::thread::sleep;
use std::time::Duration;

/// More bytes than conntrack lets a window deviate.
const FAR: u64 = 4 << 20;

/// A connection of each IP version in the engine, after conntrack has missed more than [`FAR`]
/// bytes.
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

/// The connections are in the kernel. They continue there and again in the engine, to their end.
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

/// All written bytes arrive, and so does their end. Then bytes of the peer are answered by a reset.
#[test]
fn after_a_programs_death_stateful_rules_pass_what_is_left() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        stateful(world.wire);
        let (ours, mut peer) = world.pair();
        let port = peer.local_addr().unwrap().port();
        let (mut running, mut lines) = world.program("programs::the_programs_process", ours, FAR, &|_| {});
        let reader = std::thread::spawn(move || {
            let mut read = Vec::new();
            peer.read_to_end(&mut read).unwrap();
            (peer, read)
        });
        assert!(lines.any(|line| line == "outcome adopted"));
        running.child().kill().unwrap();
        let (mut peer, read) = reader.join().unwrap();
        assert!(read == Ramp::bytes(0, FAR as usize), "{} bytes", read.len());
        // Nobody reads it.
        wait_for("its reset", || peer.write_all(&[0; 1000]).is_err());
        wait_for("its end in conntrack", || entry(world.wire, port).is_none_or(|e| e.state == "CLOSE"));
        assert_eq!(invalid(world.wire), 0);
    });
}

#[test]
fn an_entry_outlives_its_timeout_while_its_connection_is_away() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        stateful(world.wire);
        world.wire.ours.run("sysctl -q -w net.netfilter.nf_conntrack_tcp_timeout_established=4");
        let service = world.service();
        let mut line = world.line(false);
        line.go_on(10_000);
        line.adopt(&service);
        line.come_to_rest();
        sleep(Duration::from_secs(9));
        assert_eq!(line.place(), Place::Engine);
        let left_s = entries(world.wire)[0].left_s;
        assert!((1..=4).contains(&left_s), "{left_s}");
        line.restore();
        line.go_on(10_000);
        line.finish();
        assert_eq!(invalid(world.wire), 0);
    });
}

/// Conntrack picks the connection up again if the rules allow it, as it would have in the kernel.
#[test]
fn a_connection_whose_entry_was_deleted_comes_home() {
    need_root!();
    need_program!("clang");
    need_program!("conntrack");
    World::enter(|world| {
        stateful(world.wire);
        let service = world.service();
        let mut line = world.line(false);
        line.adopt(&service);
        line.go_on(FAR);
        line.come_to_rest();
        world.wire.ours.run("conntrack -F");
        wait_for("its way home", || line.place() == Place::Kernel);
        let known = service.list().unwrap();
        assert!(known.iter().all(|entry| entry.why == "untracked" && entry.place == "kernel"), "{known:?}");
        for hook in ["input", "output"] {
            world.wire.ours.run(&format!("nft add rule inet fw {hook} ct state new accept"));
        }
        line.go_on(100_000);
        assert_eq!(entries(world.wire)[0].state, "ESTABLISHED");
        service.handoff(Selector::All).unwrap();
        wait_for("its way back", || line.place() == Place::Engine);
        line.go_on(FAR);
        line.restore();
        line.finish();
    });
}
