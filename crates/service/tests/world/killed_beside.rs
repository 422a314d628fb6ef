//! An engine or a broker is killed while the interface is down. The kernel has no route for the
//! connections left behind, which are kept and tried again.

use crate::beside::{EACH, address, both, both_stand_still, each, go_on_and_finish};
use crate::common::{Line, Role, World};
use baton_testkit::{need_program, need_root};
use rustix::process::{Pid, Signal, kill_process};

/// Kills a process while the interface is down, and checks that the connection continues
/// afterwards.
fn killed_while_down(world: &World<'_>, ipv6: bool, mut line: Line, mut kernels: Line, kill: impl Fn()) {
    let (ours, resets) = (&world.wire.ours, world.wire.resets());
    ours.run("ip link set wire down");
    kill();
    both_stand_still(&mut line, &mut kernels);
    ours.run("ip link set wire up");
    if ipv6 {
        ours.run(&format!("ip addr replace {} dev wire nodad", address(ipv6)));
    }
    go_on_and_finish(line, kernels);
    assert_eq!(world.wire.resets(), resets);
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn an_engine_is_killed_while_its_interface_is_down() {
    need_root!();
    need_program!("clang");
    each(&EACH, |world, ipv6, line, kernels| {
        killed_while_down(world, ipv6, line, kernels, || kill(world.engine));
    });
}

#[test]
fn a_programs_engine_is_buried_while_its_interface_is_down() {
    need_root!();
    need_program!("clang");
    for ipv6 in [false, true] {
        World::enter_guarded(|world| {
            let (mut line, mut kernels) = (world.line(ipv6), world.line(ipv6));
            line.adopt(&world.direct());
            both(&mut line, &mut kernels, 100_000);
            killed_while_down(world, ipv6, line, kernels, || {
                let pid = world.process(Role::Broker);
                kill(pid);
                world.process_but(Role::Broker, Some(pid));
                world.service();
            });
        });
    }
}

#[test]
fn brokers_are_killed_while_the_interface_is_down() {
    need_root!();
    need_program!("clang");
    for ipv6 in [false, true] {
        World::enter_guarded(|world| {
            let (mut line, mut kernels) = (world.line(ipv6), world.line(ipv6));
            line.adopt(&world.service());
            both(&mut line, &mut kernels, 100_000);
            killed_while_down(world, ipv6, line, kernels, || {
                // The second broker inherits what was left to the first.
                for _ in 0..2 {
                    let pid = world.process(Role::Broker);
                    kill(pid);
                    world.process_but(Role::Broker, Some(pid));
                    world.service();
                }
            });
        });
    }
}
