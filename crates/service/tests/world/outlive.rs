//! Brokers and guardians that are killed: each survives the other.

use crate::common::kernels::wait_for;
use crate::common::{At, Line, Role, World};
use baton_client::{Place, Service};
use baton_ipc::message::Selector;
use baton_testkit::{need_program, need_root, need_types};
use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Kills the process in a role, and waits for its successor.
pub fn kill(world: &World<'_>, role: Role) {
    let pid = world.process(role);
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    world.process_but(role, Some(pid));
}

/// Kills the broker, and waits until its successor has brought everything home. Until then the
/// engine continues.
fn kill_broker(world: &World<'_>, lines: &mut [Line]) {
    kill(world, Role::Broker);
    let killed = Instant::now();
    while lines.iter().any(|line| line.place() != Place::Kernel) {
        lines.iter_mut().for_each(|line| line.turn(3_000));
        assert!(killed.elapsed() < Duration::from_secs(5), "the connections do not come home");
    }
}

/// Moves all connections to the engine, with as many requests as it takes.
fn hand_off(service: &Service, lines: &mut [Line]) {
    let begun = Instant::now();
    while lines.iter().any(|line| line.place() != Place::Engine) {
        let tally = service.handoff(Selector::All);
        lines.iter_mut().for_each(|line| line.turn(3_000));
        assert!(begun.elapsed() < Duration::from_secs(10), "{tally:?}");
    }
}

#[test]
fn a_brokers_death_costs_a_pause() {
    need_root!();
    need_program!("clang");
    World::enter_guarded(|world| {
        let service = world.service();
        let resets = world.wire.resets();
        let mut lines: Vec<_> = (0..20).map(|n| world.line(n % 2 == 0)).collect();
        lines.iter_mut().for_each(|line| line.adopt(&service));
        for _ in 0..5 {
            lines.iter_mut().for_each(|line| line.go_on(20_000));
            kill_broker(world, &mut lines);
            lines.iter_mut().for_each(|line| line.go_on(20_000));
            hand_off(&service, &mut lines);
        }
        lines.iter_mut().for_each(|line| line.go_on(100_000));
        lines.into_iter().for_each(Line::finish);
        assert_eq!(world.wire.resets(), resets);
        wait_for("the end of all", || service.list().unwrap().is_empty());
    });
}

#[test]
fn a_guardians_death_costs_nothing() {
    need_root!();
    need_program!("clang");
    World::enter_guarded(|world| {
        let service = world.service();
        let resets = world.wire.resets();
        let mut lines: Vec<_> = (0..4).map(|n| world.line(n % 2 == 0)).collect();
        lines.iter_mut().for_each(|line| line.adopt(&service));
        for _ in 0..3 {
            kill(world, Role::Guardian);
            lines.iter_mut().for_each(|line| line.go_on(50_000));
            let moved = service.list().unwrap();
            assert!(moved.iter().all(|entry| entry.place == "engine"), "nothing should have moved: {moved:?}");
            // The new broker or guardian knows everything.
            kill_broker(world, &mut lines);
            lines.iter_mut().for_each(|line| line.go_on(50_000));
            hand_off(&service, &mut lines);
        }
        lines.into_iter().for_each(Line::finish);
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn a_broker_that_dies_during_moves_leaves_each_whole_on_one_side() {
    need_root!();
    need_program!("clang");
    dies_during_moves(|world| world.service());
}

/// The same with the engine inside the program, whose connections move by other messages.
#[test]
fn a_broker_that_dies_during_moves_leaves_each_whole_on_one_side_of_its_own_engine() {
    need_root!();
    need_program!("clang");
    need_types!();
    dies_during_moves(|world| world.direct());
}

fn dies_during_moves(connect: fn(&World<'_>) -> Service) {
    World::enter_guarded(|world| {
        let service = connect(world);
        let resets = world.wire.resets();
        let mut lines: Vec<_> = (0..40).map(|n| world.line(n % 2 == 0)).collect();
        let mut random = fastrand::Rng::with_seed(3);
        lines.iter_mut().for_each(|line| line.adopt(&service));
        for _ in 0..15 {
            let pid = world.process(Role::Broker);
            let after = Duration::from_micros(random.u64(0..20_000));
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    std::thread::sleep(after);
                    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
                });
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(25) {
                    // The broker may die before it answers.
                    let _ = service.bring_home(Selector::All);
                    let _ = service.handoff(Selector::All);
                    lines.iter_mut().for_each(|line| line.turn(3_000));
                }
            });
            lines.iter_mut().for_each(|line| line.go_on(3_000));
            hand_off(&service, &mut lines);
        }
        lines.iter_mut().for_each(|line| line.go_on(20_000));
        lines.into_iter().for_each(Line::finish);
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn an_adoption_that_a_broker_dies_over_leaves_a_socket_or_a_stream() {
    need_root!();
    need_program!("clang");
    dies_over_an_adoption(|world| world.service());
}

/// The same with the engine inside the program, whose connections move by other messages.
#[test]
fn an_adoption_that_a_broker_dies_over_leaves_a_socket_or_a_stream_of_its_own_engine() {
    need_root!();
    need_program!("clang");
    need_types!();
    dies_over_an_adoption(|world| world.direct());
}

fn dies_over_an_adoption(connect: fn(&World<'_>) -> Service) {
    World::enter_guarded(|world| {
        let service = connect(world);
        let resets = world.wire.resets();
        let mut random = fastrand::Rng::with_seed(5);
        let (mut adopted, mut refused) = (0, 0);
        // Few kills fall into an adoption, so it takes more rounds at times to see one refused.
        for round in 0..60 {
            if round >= 10 && refused > 0 {
                break;
            }
            let mut lines: Vec<_> = (0..30).map(|n| world.line(n % 2 == 0)).collect();
            lines.iter_mut().for_each(|line| line.turn(2_000));
            let pid = world.process(Role::Broker);
            let after = Duration::from_micros(random.u64(0..6_000));
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    std::thread::sleep(after);
                    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
                });
                for line in &mut lines {
                    let At::Kernel(stream) = std::mem::replace(&mut line.at, At::Moving) else { unreachable!() };
                    line.at = match service.adopt(OwnedFd::from(stream)) {
                        Ok(stream) => {
                            stream.set_nonblocking(true);
                            adopted += 1;
                            At::Service(stream)
                        }
                        Err(why) => {
                            refused += 1;
                            let fd = why.fd.unwrap_or_else(|| panic!("{}: {}", why.code, why.text));
                            At::Kernel(fd.into())
                        }
                    };
                }
            });
            lines.iter_mut().for_each(|line| line.go_on(20_000));
            lines.into_iter().for_each(Line::finish);
        }
        assert!(adopted > 0 && refused > 0, "{adopted} adopted, {refused} refused");
        assert_eq!(world.wire.resets(), resets);
    });
}
