//! A router on the path carries less than the wire. ICMP errors about a connection that is away
//! reach the engine, which then sends smaller packets. The kernel knows the MTU when the connection
//! is back.

use crate::world::common::Wire;
use crate::world::{At, Line, Load, World};
use baton_kernel::steer::Kind;
use baton_mover::MoverConfig;
use baton_port::link;
use baton_testkit::{Netns, need_program, need_root};

/// The MTU of the far wire from some point on, in bytes.
const NARROW: u32 = 1300;

/// The bytes that go over it: several flights.
const BYTES: u64 = 3_000_000;

fn errors(world: &mut World<'_>) -> u64 {
    world.mover.engine(0).unwrap().streamer().counters().icmp_errors
}

/// The MTU that our kernel assumes for the path.
fn route_mtu(world: &World<'_>, ipv6: bool) -> Option<u32> {
    let [_, there] = Wire::addresses(ipv6);
    let route = world.wire.ours.run(&format!("ip -d route get {there}"));
    let mut words = route.split_whitespace().skip_while(|word| *word != "mtu");
    words.nth(1).map(|mtu| mtu.parse().unwrap())
}

/// Wires through a router, for this kind of steering.
fn through(router: &Netns, kind: Kind) -> Wire {
    let wire = Wire::through(router);
    if kind == Kind::Xdp {
        // AF_XDP cannot tell a checksum that was left out from damage.
        router.enter(|| ["ours", "peer"].map(|name| link::set_tx_checksum_offload(name, false).unwrap()));
    }
    wire
}

fn narrowed(kind: Kind, ipv6: bool) {
    let router = Netns::new("router");
    let wire = through(&router, kind);
    World::enter_on(&wire, kind, MoverConfig::default(), None, |world| {
        let mut line = world.line(Load::Both, ipv6);
        line.go_on(world, 50_000);
        line.handoff(world);
        line.go_on(world, BYTES);
        assert_eq!((errors(world), route_mtu(world, ipv6)), (0, None), "nothing is too big yet");
        router.run(&format!("ip link set peer mtu {NARROW}"));
        world.wire.peer.run(&format!("ip link set wire mtu {NARROW}"));
        line.go_on(world, BYTES);
        let told = errors(world);
        assert!(told > 0, "the router says nothing");
        assert_eq!(route_mtu(world, ipv6), None, "the kernel has sent nothing that was too big");
        line.restore(world);
        assert_eq!(route_mtu(world, ipv6), Some(NARROW));
        line.go_on(world, BYTES);
        // And away again: the engine need not discover what the kernel knows.
        line.handoff(world);
        line.go_on(world, BYTES);
        assert!(matches!(line.at, At::Engine(_)));
        assert_eq!(errors(world), told);
        line.finish(world);
        assert_eq!(world.resets(), 0, "{kind:?}, IPv6 {ipv6}");
    });
}

/// An unreachable destination does not end a connection (RFC 9293 §3.9.2.2), in the engine as in
/// the kernel.
fn unreachable_for_a_while(kind: Kind, ipv6: bool) {
    let router = Netns::new("router");
    let wire = through(&router, kind);
    World::enter_on(&wire, kind, MoverConfig::default(), None, |world| {
        let mut line = world.line(Load::Both, ipv6);
        line.handoff(world);
        line.go_on(world, 50_000);
        let [_, there] = Wire::addresses(ipv6);
        router.run(&format!("ip route replace unreachable {there}"));
        turns_until(&mut line, world, |world| errors(world) > 0);
        router.run(&format!("ip route replace {there} dev peer"));
        line.go_on(world, 50_000);
        line.restore(world);
        line.go_on(world, 50_000);
        line.finish(world);
        assert_eq!(world.resets(), 0, "{kind:?}, IPv6 {ipv6}");
    });
}

#[track_caller]
fn turns_until(line: &mut Line, world: &mut World<'_>, mut done: impl FnMut(&mut World<'_>) -> bool) {
    let deadline = std::time::Instant::now() + crate::world::common::LONG;
    while !done(world) {
        line.turns(world, 1);
        assert!(std::time::Instant::now() < deadline, "the expected state is not reached");
    }
}

macro_rules! each {
    ($($name:ident: $case:ident;)*) => {$(
        #[test]
        fn $name() {
            need_root!();
            need_program!("clang");
            for (kind, ipv6) in [(Kind::Tc, false), (Kind::Tc, true), (Kind::Xdp, false), (Kind::Xdp, true)] {
                $case(kind, ipv6);
            }
        }
    )*};
}

each! {
    a_connection_that_is_away_learns_what_its_path_carries: narrowed;
    a_connection_that_is_away_outlives_an_unreachable_peer: unreachable_for_a_while;
}
