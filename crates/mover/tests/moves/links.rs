//! Interfaces, addresses, routes and neighbours come and go while connections are away. Connections
//! survive what the kernel's own would survive.

use crate::world::common::{LONG, Wire};
use crate::world::{At, Line, Load, World};
use baton_kernel::handoff::{Outcome, Phase, Step};
use baton_kernel::steer::Kind;
use baton_mover::{Connection, MoverEvent};
use baton_port::link;
use baton_testkit::{need_program, need_root, run, veth};
use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

const SEVERAL: u64 = 50_000;
const EACH: [(Kind, bool); 4] = [(Kind::Tc, false), (Kind::Tc, true), (Kind::Xdp, false), (Kind::Xdp, true)];

fn name(line: &Line) -> Connection {
    let At::Engine(name) = line.at else { panic!("it is in the kernel") };
    name
}

/// Continues the load until `done`.
#[track_caller]
fn turns_until(line: &mut Line, world: &mut World<'_>, what: &str, mut done: impl FnMut(&mut World<'_>) -> bool) {
    let begun = Instant::now();
    while !done(world) {
        line.turns(world, 1);
        sleep(Duration::from_millis(1));
        if begun.elapsed() > LONG {
            panic!("{what} does not come\n{}", state(world));
        }
    }
}

/// Both kernels' tables of connections, wires and neighbours, as text.
fn state(world: &World<'_>) -> String {
    let mut text = String::new();
    for (name, side) in [("ours", &world.wire.ours), ("the peer", &world.wire.peer)] {
        for line in ["ss -tmieOn", "ip -s link", "ip -4 route", "ip -6 route", "ip neigh", "ip -6 addr", "nstat -as"] {
            text += &format!("{name}: {line}\n{}", side.run(line));
        }
    }
    text
}

/// Continues the load for `span`.
fn turns_for(line: &mut Line, world: &mut World<'_>, span: Duration) {
    let begun = Instant::now();
    turns_until(line, world, "the end of the time", |_| begun.elapsed() > span);
}

/// The kernel cannot take the connection and says so at once, and the engine still has it.
#[track_caller]
fn cannot_come_home(line: &Line, world: &mut World<'_>) {
    let aborted = world.mover.restore(name(line)).expect_err("there is no route");
    assert_eq!(aborted.step, Step::Rebuild, "{aborted}");
    assert!(matches!(aborted.outcome, Outcome::InEngine), "{aborted}");
    assert_eq!(world.mover.phase(name(line)), Some(Phase::Engine));
}

fn add_addresses(wire: &Wire) {
    for (side, last) in [(&wire.ours, 1), (&wire.peer, 2)] {
        side.run(&format!("ip addr replace 10.66.0.{last}/24 dev wire"));
        side.run(&format!("ip addr replace fd66::{last}/64 dev wire nodad"));
    }
}

#[test]
fn an_interface_that_goes_down_and_up_again_costs_a_pause() {
    need_root!();
    need_program!("clang");
    for (kind, ipv6) in EACH {
        World::enter(kind, |world| {
            let mut line = world.line(Load::Both, ipv6);
            line.handoff(world);
            line.go_on(world, SEVERAL);
            world.wire.ours.run("ip link set wire down");
            turns_for(&mut line, world, Duration::from_millis(300));
            if ipv6 {
                cannot_come_home(&line, world);
            } else {
                line.restore(world);
            }
            let (out, back) = (line.out.read, line.back.read);
            turns_for(&mut line, world, Duration::from_millis(100));
            assert_eq!((line.out.read, line.back.read), (out, back), "{kind:?}: over an interface that is down");
            world.wire.ours.run("ip link set wire up");
            // While it was down it lost its IPv6 address.
            add_addresses(world.wire);
            line.go_on(world, SEVERAL);
            if ipv6 {
                line.restore(world);
                line.go_on(world, SEVERAL);
            }
            line.finish(world);
            assert_eq!(world.resets(), 0);
        });
    }
}

#[test]
fn connections_outlive_their_interface() {
    need_root!();
    need_program!("clang");
    for (kind, ipv6) in EACH {
        World::enter(kind, |world| {
            let mut line = world.line(Load::Both, ipv6);
            let mut other = world.line(Load::Idle, ipv6);
            line.handoff(world);
            other.handoff(world);
            line.go_on(world, SEVERAL);
            world.wire.ours.run("ip link del wire");
            let mut homeless = BTreeSet::new();
            turns_until(&mut line, world, "word that it is homeless", |world| {
                let events = std::iter::from_fn(|| world.mover.next_event());
                homeless.extend(events.filter_map(|event| match event {
                    MoverEvent::Homeless(name) => Some(name),
                    _ => None,
                }));
                homeless.len() == 2
            });
            assert_eq!(homeless, [&line, &other].map(name).into());
            // It has neither a route nor an address now, but the kernel takes a connection over
            // IPv4 all the same.
            if ipv6 {
                for _ in 0..3 {
                    cannot_come_home(&line, world);
                    turns_for(&mut line, world, Duration::from_millis(20));
                }
            } else {
                line.restore(world);
                other.restore(world);
            }
            veth(&world.wire.ours, "wire", &world.wire.peer, "wire");
            if kind == Kind::Xdp {
                world.wire.peer.enter(|| link::set_tx_checksum_offload("wire", false).unwrap());
            }
            add_addresses(world.wire);
            if ipv6 {
                line.restore(world);
                other.restore(world);
            }
            line.go_on(world, SEVERAL);
            // It moves away again, over the interface that exists now.
            world.add_interface(kind);
            assert!(world.mover.port(1).is_none(), "the old interface is kept");
            line.handoff(world);
            line.go_on(world, SEVERAL);
            line.finish(world);
            other.finish(world);
            assert_eq!(world.resets(), 0);
        });
    }
}

#[test]
fn an_address_that_goes_stops_a_connection_until_it_is_back() {
    need_root!();
    need_program!("clang");
    for ipv6 in [false, true] {
        World::enter(Kind::Tc, |world| {
            let mut line = world.line(Load::Both, ipv6);
            line.handoff(world);
            line.go_on(world, SEVERAL);
            let address = if ipv6 { "fd66::1/64" } else { "10.66.0.1/24" };
            world.wire.ours.run(&format!("ip addr del {address} dev wire"));
            let homeless = MoverEvent::Homeless(name(&line));
            turns_until(&mut line, world, "word that it is homeless", |world| {
                std::iter::from_fn(|| world.mover.next_event()).any(|event| event == homeless)
            });
            let before = (line.out.read, line.back.read);
            turns_for(&mut line, world, Duration::from_millis(300));
            assert_eq!((line.out.read, line.back.read), before, "it goes on");
            // The IPv6 route disappears with the last address.
            if ipv6 {
                cannot_come_home(&line, world);
            } else {
                line.restore(world);
            }
            turns_for(&mut line, world, Duration::from_millis(300));
            assert_eq!((line.out.read, line.back.read), before, "it goes on");
            add_addresses(world.wire);
            if ipv6 {
                line.go_on(world, SEVERAL);
                line.restore(world);
            }
            line.go_on(world, SEVERAL);
            line.finish(world);
            assert_eq!(world.resets(), 0);
        });
    }
}

#[test]
fn an_interface_that_carries_less_sends_connections_home() {
    need_root!();
    need_program!("clang");
    World::enter(Kind::Tc, |world| {
        let mut line = world.line(Load::Both, false);
        line.handoff(world);
        line.go_on(world, SEVERAL);
        for side in [&world.wire.ours, &world.wire.peer] {
            side.run("ip link set wire mtu 1300");
        }
        let homeless = MoverEvent::Homeless(name(&line));
        turns_until(&mut line, world, "word that it is homeless", |world| {
            std::iter::from_fn(|| world.mover.next_event()).any(|event| event == homeless)
        });
        line.restore(world);
        line.go_on(world, SEVERAL);
        line.handoff(world);
        line.go_on(world, 10 * SEVERAL);
        line.finish(world);
        assert_eq!(world.resets(), 0);
    });
}

/// Makes our kernel forget and probe neighbours quickly.
fn hurry(world: &World<'_>) {
    for version in ["ipv4", "ipv6"] {
        for setting in
            ["base_reachable_time_ms=300", "retrans_time_ms=50", "delay_first_probe_time=1", "gc_stale_time=1"]
        {
            world.wire.ours.run(&format!("sysctl -q -w net.{version}.neigh.wire.{setting}"));
        }
    }
}

/// Our kernel's neighbour entry of the peer, as text.
fn neighbour(world: &World<'_>, ipv6: bool) -> String {
    let [_, there] = Wire::addresses(ipv6);
    run(world.wire.ours.command("ip").args(["neigh", "show", &there.to_string(), "dev", "wire"]))
}

#[test]
fn a_neighbour_in_use_is_not_forgotten() {
    need_root!();
    need_program!("clang");
    for ipv6 in [false, true] {
        World::enter(Kind::Tc, |world| {
            hurry(world);
            let mut line = world.line(Load::RequestResponse, ipv6);
            line.handoff(world);
            line.go_on(world, 0);
            // Longer than the engine relies on an answer.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(7) {
                let before = line.out.read;
                turns_for(&mut line, world, Duration::from_millis(100));
                assert!(line.out.read > before, "it has stopped");
                assert!(neighbour(world, ipv6).contains("lladdr"), "forgotten: {}", neighbour(world, ipv6));
            }
            // As if the kernel's table were full: the kernel has to resolve the neighbour again,
            // because it is in use.
            world.wire.ours.run("ip neigh flush dev wire");
            turns_until(&mut line, world, "the neighbour", |world| neighbour(world, ipv6).contains("lladdr"));
            line.go_on(world, 0);
            line.finish(world);
        });
    }
}

#[test]
fn a_neighbour_that_moves_without_a_word_is_found_again() {
    need_root!();
    need_program!("clang");
    for (kind, ipv6) in [(Kind::Tc, false), (Kind::Xdp, true)] {
        World::enter(kind, |world| {
            hurry(world);
            let mut line = world.line(Load::Both, ipv6);
            line.handoff(world);
            line.go_on(world, SEVERAL);
            world.wire.peer.run("ip link set wire address 02:00:00:00:66:09");
            line.go_on(world, 10 * SEVERAL);
            assert!(neighbour(world, ipv6).contains("02:00:00:00:66:09"));
            line.restore(world);
            line.go_on(world, SEVERAL);
            line.finish(world);
            assert_eq!(world.resets(), 0);
        });
    }
}

#[test]
fn a_peer_that_comes_in_by_another_interface_sends_connections_home() {
    need_root!();
    need_program!("clang");
    for (kind, ipv6) in EACH {
        World::enter(kind, |world| {
            let mut line = world.line(Load::Both, ipv6);
            line.handoff(world);
            line.go_on(world, SEVERAL);
            world.wire.reroute_peer();
            let homeless = MoverEvent::Homeless(name(&line));
            turns_until(&mut line, world, &format!("{kind:?}, IPv6 {ipv6}: word that it is homeless"), |world| {
                std::iter::from_fn(|| world.mover.next_event()).any(|event| event == homeless)
            });
            line.restore(world);
            line.go_on(world, SEVERAL);
            line.finish(world);
            assert_eq!(world.resets(), 0);
        });
    }
}
