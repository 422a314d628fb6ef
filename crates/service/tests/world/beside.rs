//! The kernel does more with a connection's packets than its socket does: the engine does the same, or
//! the connection comes home.

use crate::common::kernels::{Ramp, Wire};
use crate::common::{At, Line, World};
use baton_client::Place;
use baton_ipc::channel::Channel;
use baton_ipc::message::Selector;
use baton_kernel::steer::Kind;
use baton_testkit::bpf::{Order, Programs};
use baton_testkit::{Netns, Running, need_program, need_root};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs a test over tc and XDP, over IPv4 and IPv6, with one connection in the engine and one in
/// the kernel.
pub fn each(kinds: &[Kind], test: impl Fn(&World<'_>, bool, Line, Line)) {
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

pub const EACH: [Kind; 2] = [Kind::Tc, Kind::Xdp];

pub fn both(line: &mut Line, kernels: &mut Line, bytes: u64) {
    line.go_on(bytes);
    kernels.go_on(bytes);
}

/// The bytes that a connection has carried in each direction.
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

/// Bytes that a peer may have had in flight, and which arrive if only the way back is interrupted.
const FLIGHT: u64 = 200_000;

/// Checks that nothing leaves on either connection, and that at most what the peers had in flight
/// arrives.
#[track_caller]
pub fn both_stand_still(line: &mut Line, kernels: &mut Line) {
    both_stand_still_but_for(0, line, kernels);
}

/// The same, except that up to `bytes` bytes may leave.
#[track_caller]
fn both_stand_still_but_for(bytes: u64, line: &mut Line, kernels: &mut Line) {
    // Reads first what had arrived before.
    let begun = Instant::now();
    let mut before = [carried(line), carried(kernels)];
    loop {
        turns_for(&mut [line, kernels], Duration::from_millis(300));
        let now = [carried(line), carried(kernels)];
        if std::mem::replace(&mut before, now) == now {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(3), "bytes leave: {before:?}");
    }
    turns_for(&mut [line, kernels], Duration::from_millis(700));
    let after = [carried(line), carried(kernels)];
    for ([out, back], [out_before, back_before]) in after.into_iter().zip(before) {
        assert!(out - out_before <= bytes, "bytes leave: {before:?} {after:?}");
        assert!(back - back_before < FLIGHT, "bytes are acknowledged: {before:?} {after:?}");
    }
}

/// Checks that the connection comes home soon, for this reason.
#[track_caller]
fn comes_home(world: &World<'_>, line: &mut Line, why: &str) {
    let begun = Instant::now();
    while line.place() != Place::Kernel {
        line.turn(3_000);
        assert!(begun.elapsed() < Duration::from_secs(5), "the connection is not home: {:?}", world.service().list());
    }
    let entries = world.service().list().unwrap();
    assert!(entries.iter().all(|entry| entry.why == why), "{entries:?}");
}

/// Returns why another connection stays.
#[track_caller]
fn stays(world: &World<'_>, ipv6: bool) -> String {
    let line = world.line(ipv6);
    let At::Kernel(stream) = &line.at else { panic!("the connection is away") };
    let copy: TcpStream = stream.try_clone().unwrap();
    let Err(refused) = world.service().adopt(copy.into()) else { panic!("the connection moved") };
    refused.to_string()
}

/// Returns whether the connection goes to the engine again.
#[track_caller]
fn returns(world: &World<'_>, line: &mut Line) -> bool {
    let service = world.service();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| service.handoff(Selector::All).unwrap());
        while !asked.is_finished() {
            line.turn(3_000);
        }
        let tally = asked.join().unwrap();
        assert_eq!(tally.count, 1);
        // The broker may know of an arrival before the program's library has looked.
        let begun = Instant::now();
        while tally.failed == 0 && line.place() != Place::Engine {
            line.turn(3_000);
            assert!(begun.elapsed() < Duration::from_secs(5), "the connection did not arrive: {tally:?}");
        }
        assert_eq!(tally.failed == 0, line.place() == Place::Engine, "{tally:?}");
        tally.failed == 0
    })
}

/// Checks that the connection goes to the engine as soon as nothing keeps it in the kernel.
#[track_caller]
fn goes_back(world: &World<'_>, line: &mut Line) {
    let begun = Instant::now();
    while !returns(world, line) {
        assert!(begun.elapsed() < Duration::from_secs(5), "the connection stays: {:?}", world.service().list());
    }
}

fn moves(world: &World<'_>, ipv6: bool) {
    let mut line = world.line(ipv6);
    line.adopt(&world.service());
    line.go_on(100_000);
    line.finish();
}

pub fn go_on_and_finish(mut line: Line, mut kernels: Line) {
    both(&mut line, &mut kernels, 300_000);
    line.finish();
    kernels.finish();
}

pub fn address(ipv6: bool) -> &'static str {
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
        // An interface without addresses has no IPv6 routes, without which the connection cannot be
        // put back.
        ours.run("ip -6 route replace fd66::/64 dev wire");
        comes_home(world, &mut line, "homeless");
        // The kernel retransmits from a deleted IPv6 address while it has a route: after its timeout
        // of a second. Nothing is acknowledged.
        both_stand_still_but_for(if ipv6 { FLIGHT } else { 0 }, &mut line, &mut kernels);
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
                // The kernel takes no connection without an IPv6 route, so the engine keeps it,
                // silent.
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
            // While it was down it lost its address.
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

#[test]
fn an_ipsec_policy_stops_what_would_leave_in_the_clear() {
    need_root!();
    need_program!("clang");
    each(&EACH, |world, ipv6, mut line, mut kernels| {
        let ours = &world.wire.ours;
        let [here, there] = Wire::addresses(ipv6);
        let policies = [
            format!("dir out src {here} dst {there} proto tcp action block"),
            format!("dir in src {there} dst {here} proto tcp action block"),
            format!("dir out src {here} dst {there} tmpl proto esp mode transport"),
        ];
        for policy in policies {
            ours.run(&format!("ip xfrm policy add {policy}"));
            comes_home(world, &mut line, "ipsec");
            // If only the answers are dropped, what is in flight leaves.
            let flight = if policy.contains("dir in") { FLIGHT } else { 0 };
            both_stand_still_but_for(flight, &mut line, &mut kernels);
            assert!(!returns(world, &mut line));
            ours.run("ip xfrm policy flush");
            both(&mut line, &mut kernels, 50_000);
            goes_back(world, &mut line);
            both(&mut line, &mut kernels, 50_000);
        }
        // A policy for other packets does not affect the connection.
        ours.run("ip xfrm policy add dir out src 192.0.2.1 dst 192.0.2.2 action block");
        ours.run("ip xfrm policy add dir out proto udp action block");
        turns_for(&mut [&mut line], Duration::from_millis(300));
        assert_eq!(line.place(), Place::Engine);
        both(&mut line, &mut kernels, 50_000);
        ours.run("ip xfrm policy setdefault out block");
        comes_home(world, &mut line, "ipsec");
        both_stand_still(&mut line, &mut kernels);
        ours.run("ip xfrm policy setdefault out accept");
        go_on_and_finish(line, kernels);
    });
}

/// A control group of version 2, which is removed when this is dropped.
struct Group(PathBuf);

impl Group {
    fn new() -> Group {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).expect("version 2 is mounted");
        let path = PathBuf::from(mount.split(' ').nth(4).unwrap()).join(format!("baton-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Group(path)
    }

    /// A connection whose socket was made by a process of the group, and which therefore belongs to
    /// it.
    fn line(&self, world: &World<'_>, ipv6: bool) -> Line {
        let [_, there] = Wire::addresses(ipv6);
        let listener = world.wire.peer.enter(|| TcpListener::bind((there, 0)).unwrap());
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut maker = Command::new("nsenter");
        maker.arg(format!("--net=/run/netns/{}", world.wire.ours.name())).args(["python3", "-c", MAKER]);
        maker.arg(&self.0).arg(there.to_string()).arg(listener.local_addr().unwrap().port().to_string());
        let mut maker = Running::start(maker.stdin(theirs));
        let (peer, _) = listener.accept().unwrap();
        assert!(maker.child().wait().unwrap().success());
        let made = Channel::new(ours).receive().unwrap().expect("the process sends the socket").fds.pop().unwrap();
        let made = TcpStream::from(made);
        for end in [&made, &peer] {
            end.set_nonblocking(true).unwrap();
            end.set_nodelay(true).unwrap();
        }
        Line { at: At::Kernel(made), peer, out: Ramp::default(), back: Ramp::default() }
    }
}

/// A script that joins the group, connects, and sends the socket over its standard input.
const MAKER: &str = "
import os, socket, sys
group, there, port = sys.argv[1:]
with open(group + '/cgroup.procs', 'w') as procs:
    procs.write(str(os.getpid()))
made = socket.create_connection((there, int(port)))
socket.send_fds(socket.socket(fileno=0), [b'made'], [made.fileno()])
";

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_program_of_the_control_group_sees_all_packets() {
    need_root!();
    need_program!("clang");
    need_program!("python3");
    let group = Group::new();
    for (ipv6, egress) in [(false, true), (true, false)] {
        World::enter(|world| {
            let mut line = group.line(world, ipv6);
            let mut other = world.line(ipv6);
            for line in [&mut line, &mut other] {
                line.adopt(&world.service());
                line.go_on(100_000);
            }
            let mut programs = Programs::load();
            programs.on_cgroup(&group.0, egress);
            let begun = Instant::now();
            while line.place() != Place::Kernel {
                line.turn(3_000);
                assert!(begun.elapsed() < Duration::from_secs(5), "the connection is not home");
            }
            let whys: Vec<_> = world.service().list().unwrap().into_iter().map(|entry| entry.why).collect();
            assert_eq!(whys, ["cgroup-program", "handed-over"]);
            let seen = programs.seen();
            line.go_on(100_000);
            assert!(programs.seen() > seen, "the program sees nothing");
            // The group of the other connection has no program.
            assert_eq!(other.place(), Place::Engine);
            let late = group.line(world, ipv6);
            let At::Kernel(stream) = &late.at else { panic!("the connection is away") };
            let Err(refused) = world.service().adopt(stream.try_clone().unwrap().into()) else {
                panic!("the connection moved")
            };
            assert!(refused.to_string().contains("a BPF program of its cgroup"), "{refused}");
            drop(programs);
            goes_back(world, &mut line);
            line.go_on(100_000);
            line.finish();
            other.finish();
        });
    }
}

#[test]
fn another_tc_program_is_not_skipped() {
    need_root!();
    need_program!("clang");
    each(&EACH, |world, ipv6, mut line, kernels| {
        let xdp = world.wire.ours.run("ip link show wire").contains("xdp");
        let mut programs = Programs::load();
        // Before our program, or on the way out, it sees the engine's frames. With XDP it sees
        // none.
        for (egress, order) in [(false, Order::First), (true, Order::Last)] {
            world.wire.ours.enter(|| programs.on_interface("wire", egress, order, false));
            let seen = programs.seen();
            if xdp {
                comes_home(world, &mut line, "tc-program");
            } else {
                turns_for(&mut [&mut line], Duration::from_millis(1_500));
                assert_eq!(line.place(), Place::Engine);
            }
            line.go_on(100_000);
            assert!(programs.seen() > seen, "the program sees nothing");
            drop(std::mem::replace(&mut programs, Programs::load()));
            if xdp {
                goes_back(world, &mut line);
            }
        }
        // After our program it would be skipped.
        world.wire.ours.enter(|| programs.on_interface("wire", false, Order::Last, false));
        comes_home(world, &mut line, "tc-program");
        assert!(stays(world, ipv6).contains("another tc program"));
        drop(programs);
        goes_back(world, &mut line);
        // So would a filter of the older kind.
        world.wire.ours.run("tc qdisc add dev wire clsact");
        line.go_on(100_000);
        assert_eq!(line.place(), Place::Engine);
        world.wire.ours.run("tc filter add dev wire ingress u32 match u32 0 0 flowid 1:1");
        comes_home(world, &mut line, "tc-program");
        world.wire.ours.run("tc qdisc del dev wire clsact");
        go_on_and_finish(line, kernels);
        moves(world, ipv6);
    });
}

#[test]
fn what_a_program_on_the_way_out_drops_does_not_leave() {
    need_root!();
    need_program!("clang");
    each(&[Kind::Tc], |world, _, mut line, mut kernels| {
        let mut programs = Programs::load();
        world.wire.ours.enter(|| programs.on_interface("wire", true, Order::Last, true));
        both_stand_still(&mut line, &mut kernels);
        assert_eq!(line.place(), Place::Engine);
        drop(programs);
        go_on_and_finish(line, kernels);
    });
}

/// The number of bytes that the interface's discipline has sent, and of times that it delayed one.
fn shaped(world: &World<'_>) -> [u64; 2] {
    let text = world.wire.ours.run("tc -s qdisc show dev wire");
    let number = |word: &str| {
        let (_, rest) = text.split_once(word).expect("the discipline counts this");
        rest.split_whitespace().next().unwrap().trim_end_matches(')').parse().unwrap()
    };
    [number("Sent "), number("overlimits ")]
}

#[test]
fn a_discipline_that_shapes_has_the_engines_frames() {
    need_root!();
    need_program!("clang");
    each(&EACH, |world, ipv6, mut line, kernels| {
        let xdp = world.wire.ours.run("ip link show wire").contains("xdp");
        world.wire.ours.run("tc qdisc add dev wire root tbf rate 20mbit burst 32k latency 20ms");
        if xdp {
            comes_home(world, &mut line, "tc-program");
            assert!(stays(world, ipv6).contains("another tc program"));
        }
        line.come_to_rest();
        let before = (shaped(world), line.out.read);
        line.go_on(500_000);
        let after = (shaped(world), line.out.read);
        assert!(after.0[0] - before.0[0] >= after.1 - before.1, "{before:?} {after:?}");
        assert!(after.0[1] > before.0[1], "nothing waited: {before:?} {after:?}");
        assert_eq!(line.place() == Place::Engine, !xdp);
        world.wire.ours.run("tc qdisc del dev wire root");
        go_on_and_finish(line, kernels);
        moves(world, ipv6);
    });
}
