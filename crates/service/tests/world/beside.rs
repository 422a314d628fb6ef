//! What stands beside a connection's socket: the engine does what the kernel would, or the
//! connection comes home.

use crate::common::kernels::{LONG, Wire, wait_for};
use crate::common::{At, Line, World};
use baton_host::steer::Kind;
use baton_socket::service::Place;
use baton_testkit::bpf::{Order, Programs};
use baton_testkit::{Netns, need_program, need_root};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Over tc and xdp, by IPv4 and IPv6, with a connection in the engine and one in the kernel.
fn each(kinds: &[Kind], test: impl Fn(&World<'_>, bool, Line, Line)) {
    for kind in kinds {
        for ipv6 in [false, true] {
            World::enter_with(
                |config| config.interfaces[0].kind = *kind,
                |world| {
                    let resets = world.wire.resets();
                    let (mut line, mut kernels) = (world.line(ipv6), world.line(ipv6));
                    line.adopt(&world.service());
                    both(&mut line, &mut kernels, 100_000);
                    test(world, ipv6, line, kernels);
                    assert_eq!(world.wire.resets(), resets);
                },
            );
        }
    }
}

const EACH: [Kind; 2] = [Kind::Tc, Kind::Xdp];

fn both(line: &mut Line, kernels: &mut Line, bytes: u64) {
    line.go_on(bytes);
    kernels.go_on(bytes);
}

/// What both have carried.
fn carried(line: &Line) -> [u64; 2] {
    [line.out.read, line.back.read]
}

#[track_caller]
fn turns_for(lines: &mut [&mut Line], span: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < span {
        lines.iter_mut().for_each(|line| line.turn(3_000));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Nothing passes, neither of the one nor of the kernel's own.
#[track_caller]
fn both_stand_still(line: &mut Line, kernels: &mut Line) {
    turns_for(&mut [line, kernels], Duration::from_millis(100));
    let before = [carried(line), carried(kernels)];
    turns_for(&mut [line, kernels], Duration::from_millis(700));
    assert_eq!([carried(line), carried(kernels)], before, "something passes");
}

/// It comes home within two seconds, for this reason.
#[track_caller]
fn comes_home(world: &World<'_>, line: &mut Line, why: &str) {
    let begun = Instant::now();
    while line.place() != Place::Kernel {
        line.turn(3_000);
        assert!(begun.elapsed() < Duration::from_secs(5), "it is not home: {:?}", world.service().list());
    }
    let entries = world.service().list().unwrap();
    assert!(entries.iter().all(|entry| entry.why == why), "{entries:?}");
}

/// Why another connection stays.
#[track_caller]
fn stays(world: &World<'_>, ipv6: bool) -> String {
    let line = world.line(ipv6);
    let At::Kernel(stream) = &line.at else { panic!("it is away") };
    let copy: TcpStream = stream.try_clone().unwrap();
    let Err(refused) = world.service().adopt(copy.into()) else { panic!("it moved") };
    refused.to_string()
}

fn moves(world: &World<'_>, ipv6: bool) {
    let mut line = world.line(ipv6);
    line.adopt(&world.service());
    line.go_on(100_000);
    line.finish();
}

fn go_on_and_finish(mut line: Line, mut kernels: Line) {
    both(&mut line, &mut kernels, 300_000);
    line.finish();
    kernels.finish();
}

fn address(ipv6: bool) -> &'static str {
    if ipv6 { "fd66::1/64" } else { "10.66.0.1/24" }
}

fn peer(ipv6: bool) -> String {
    let [_, there] = Wire::addresses(ipv6);
    format!("{there}/{}", if ipv6 { 128 } else { 32 })
}

#[test]
fn an_address_that_is_taken_off_stops_a_connection_until_it_is_back() {
    need_root!();
    need_program!("clang");
    each(&EACH, |world, ipv6, mut line, mut kernels| {
        let ours = &world.wire.ours;
        ours.run(&format!("ip addr del {} dev wire", address(ipv6)));
        // Its last address takes the routes of IPv6 along, without which it cannot be put back.
        ours.run("ip -6 route replace fd66::/64 dev wire");
        comes_home(world, &mut line, "homeless");
        both_stand_still(&mut line, &mut kernels);
        ours.run(&format!("ip addr add {} dev wire{}", address(ipv6), if ipv6 { " nodad" } else { "" }));
        go_on_and_finish(line, kernels);
    });
}

#[test]
fn a_route_that_says_no_stops_a_connection() {
    need_root!();
    need_program!("clang");
    for what in ["unreachable", "prohibit", "blackhole"] {
        each(&[Kind::Tc], |world, ipv6, mut line, mut kernels| {
            let ours = &world.wire.ours;
            let version = if ipv6 { "-6" } else { "-4" };
            ours.run(&format!("ip {version} route add {what} {}", peer(ipv6)));
            if ipv6 {
                // The kernel takes no connection without a route of IPv6: the engine has it, silent.
                both_stand_still(&mut line, &mut kernels);
                assert_eq!(line.place(), Place::Engine);
            } else {
                comes_home(world, &mut line, "homeless");
                both_stand_still(&mut line, &mut kernels);
            }
            ours.run(&format!("ip {version} route del {what} {}", peer(ipv6)));
            go_on_and_finish(line, kernels);
        });
    }
}

#[test]
fn an_interface_goes_down_and_up_again() {
    need_root!();
    need_program!("clang");
    each(&[Kind::Tc], |world, ipv6, mut line, mut kernels| {
        let ours = &world.wire.ours;
        ours.run("ip link set wire down");
        both_stand_still(&mut line, &mut kernels);
        ours.run("ip link set wire up");
        if ipv6 {
            // Being down cost it its address.
            ours.run(&format!("ip addr replace {} dev wire nodad", address(ipv6)));
        }
        go_on_and_finish(line, kernels);
    });
}

#[test]
fn a_new_name_of_the_interface_is_nothing_to_a_connection() {
    need_root!();
    need_program!("clang");
    each(&EACH, |world, ipv6, mut line, mut kernels| {
        world.wire.ours.run("ip link set wire name renamed");
        both(&mut line, &mut kernels, 300_000);
        assert_eq!(line.place(), Place::Engine);
        line.restore();
        both(&mut line, &mut kernels, 300_000);
        moves(world, ipv6);
        world.wire.ours.run("ip link set renamed name wire");
        go_on_and_finish(line, kernels);
    });
}

#[test]
fn an_interface_that_moves_to_another_namespace_stops_a_connection_until_it_is_back() {
    need_root!();
    need_program!("clang");
    each(&[Kind::Tc], |world, ipv6, mut line, mut kernels| {
        let (ours, elsewhere) = (&world.wire.ours, Netns::new("elsewhere"));
        ours.run(&format!("ip link set wire netns {}", elsewhere.name()));
        both_stand_still(&mut line, &mut kernels);
        if !ipv6 {
            comes_home(world, &mut line, "homeless");
        }
        elsewhere.run(&format!("ip link set wire netns {}", ours.name()));
        ours.run("ip link set wire up");
        ours.run(&format!("ip addr replace {} dev wire{}", address(ipv6), if ipv6 { " nodad" } else { "" }));
        go_on_and_finish(line, kernels);
    });
}

#[test]
fn a_bridge_that_takes_the_interface_sends_connections_home() {
    need_root!();
    need_program!("clang");
    each(&EACH, |world, ipv6, mut line, kernels| {
        let ours = &world.wire.ours;
        ours.run("ip link add bridge up type bridge");
        ours.run("ip link set wire master bridge");
        comes_home(world, &mut line, "enslaved");
        assert!(stays(world, ipv6).contains("belongs to a VRF, bridge or bond"));
        ours.run("ip link set wire nomaster");
        go_on_and_finish(line, kernels);
        moves(world, ipv6);
    });
}
