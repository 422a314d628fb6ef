//! Connections move over a VLAN device, which is steered like any other interface: its frames carry
//! no tag. If this kernel has no such devices, another one is booted.

use crate::world::common::Wire;
use crate::world::{Load, World};
use baton_kernel::steer::Kind;
use baton_mover::MoverConfig;
use baton_port::link;
use baton_testkit::{Netns, need_program, need_root, output, skip, vm};

const NAME: &str = "vlan::connections_move_over_a_vlan";
/// Each module comes after those that it needs.
const MODULES: [&str; 9] = ["llc", "stp", "garp", "mrp", "8021q", "veth", "tun", "inet_diag", "tcp_diag"];
const LOADS: [Load; 4] = [Load::Idle, Load::In, Load::Out, Load::Both];
/// The number of moves of each connection, back and forth.
const MOVES: u32 = 5;

fn has_vlans() -> bool {
    let scratch = Netns::new("scratch");
    let add = ["link", "add", "link", "lo", "name", "vlan7", "type", "vlan", "id", "7"];
    output(scratch.command("ip").args(add)).status.success()
}

fn move_over_a_vlan(kind: Kind) {
    let wire = Wire::over_vlan();
    if kind == Kind::Xdp {
        // AF_XDP cannot tell a checksum that was left out from damage.
        wire.peer.enter(|| link::set_tx_checksum_offload("beneath", false).unwrap());
        wire.peer.enter(|| link::set_tx_checksum_offload("wire", false).unwrap());
    }
    World::enter_on(&wire, kind, MoverConfig::default(), None, |world| {
        for ipv6 in [false, true] {
            for load in LOADS {
                let mut line = world.line(load, ipv6);
                for _ in 0..MOVES {
                    line.go_on(world, 20_000);
                    line.handoff(world);
                    line.go_on(world, 20_000);
                    line.restore(world);
                }
                line.finish(world);
                println!("{kind:?}, {load:?}, IPv6 {ipv6}: {MOVES} times back and forth");
            }
        }
        let counters = world.mover.kernel().steering(wire.index()).unwrap().counters().unwrap();
        assert!(counters.hit > 0 && counters.foreign == 0, "{counters:?}");
        assert_eq!(world.resets(), 0);
    });
}

#[test]
fn connections_move_over_a_vlan() {
    if vm::is_guest() {
        vm::enter();
        return [Kind::Tc, Kind::Xdp].into_iter().for_each(move_over_a_vlan);
    }
    need_root!();
    need_program!("clang");
    if has_vlans() {
        return [Kind::Tc, Kind::Xdp].into_iter().for_each(move_over_a_vlan);
    }
    match vm::Kernel::find(env!("CARGO_TARGET_TMPDIR")) {
        Ok(kernel) => println!("{}", vm::run(&kernel, &MODULES, &["ip"], NAME)),
        Err(why) => skip!("this kernel has no VLAN devices, and another one {why}"),
    }
}
