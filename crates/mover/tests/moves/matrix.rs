//! Live connections between two kernels move to the engine and back under every load: every byte
//! arrives once and in order, and nobody sends a reset.
//!
//! loads × {handed off, handed off and restored, 200 moves} × {IPv4, IPv6} × {tc, xdp}. The peer is
//! the kernel of another network namespace.

use crate::world::{LOADS, Load, World};
use baton_kernel::steer::Kind;
use baton_testkit::{need_program, need_root};

/// The number of moves of a connection that goes back and forth.
const MOVES: u32 = 200;
/// The number of bytes that arrive between two moves.
const BYTES: u64 = 10_000;

fn each_load(kind: Kind, case: fn(&mut World<'_>, Load, bool)) {
    World::enter(kind, |world| {
        for ipv6 in [false, true] {
            for load in LOADS {
                case(world, load, ipv6);
                assert_eq!(world.resets(), 0, "{kind:?} {load:?}, IPv6 {ipv6}");
            }
        }
    });
}

fn handed_off(world: &mut World<'_>, load: Load, ipv6: bool) {
    moved(world, load, ipv6, false);
}

fn restored(world: &mut World<'_>, load: Load, ipv6: bool) {
    moved(world, load, ipv6, true);
}

/// Moves the connection there and, if `back`, home. The second half of the load runs where it ends
/// up.
fn moved(world: &mut World<'_>, load: Load, ipv6: bool, back: bool) {
    let mut line = world.line(load, ipv6);
    line.turns(world, 20);
    line.handoff(world);
    line.turns(world, 50);
    if back {
        line.restore(world);
        line.turns(world, 20);
    }
    line.halfway(world);
    line.turns(world, 20);
    line.was_under_load(world);
    line.finish(world);
}

fn to_and_fro(world: &mut World<'_>, load: Load, ipv6: bool) {
    let mut line = world.line(load, ipv6);
    for round in 0..MOVES / 2 {
        if round == MOVES / 4 {
            line.halfway(world);
        }
        line.go_on(world, BYTES);
        line.turns(world, round % 7);
        line.handoff(world);
        line.go_on(world, BYTES);
        line.turns(world, round % 11);
        line.restore(world);
    }
    line.was_under_load(world);
    line.finish(world);
}

macro_rules! matrix {
    ($($name:ident: $kind:ident $case:ident;)*) => {$(
        #[test]
        fn $name() {
            need_root!();
            need_program!("clang");
            each_load(Kind::$kind, $case);
        }
    )*};
}

matrix! {
    tc_handed_off: Tc handed_off;
    tc_restored: Tc restored;
    tc_to_and_fro: Tc to_and_fro;
    xdp_handed_off: Xdp handed_off;
    xdp_restored: Xdp restored;
    xdp_to_and_fro: Xdp to_and_fro;
}
