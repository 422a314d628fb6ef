//! Engines that are killed again and again under load from many connections.

mod common;

use baton_socket::service::Place;
use baton_socket::service::message::Selector;
use baton_testkit::{need_program, need_root};
use common::{Line, World, be_the_engine};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::time::{Duration, Instant};

/// Not a test: what the others start as an engine.
#[test]
fn the_engines_process() {
    be_the_engine();
}

/// Children of this process.
fn children() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children.flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).collect()
}

#[test]
fn no_byte_is_lost_or_doubled_however_often_the_engine_dies() {
    need_root!();
    need_program!("clang");
    let (connections, kills) = (100, 10);
    World::enter(
        |_| {},
        |world| {
            let service = world.service();
            let resets = world.wire.resets();
            let mut lines: Vec<_> = (0..connections).map(|n| world.line(n % 2 == 0)).collect();
            lines.iter_mut().for_each(|line| line.adopt(&service));
            let mut longest = Duration::ZERO;
            for kill in 0..kills {
                // Somewhere in the middle of everything.
                let turns = (kill * 7919) % 31;
                for at in 0..turns * 37 {
                    lines[at % connections].turn(3_000);
                }
                let engines = children();
                let [engine] = engines[..] else { panic!("{engines:?}") };
                kill_process(Pid::from_raw(engine as i32).unwrap(), Signal::KILL).unwrap();
                let killed = Instant::now();
                while lines.iter().any(|line| line.place() != Place::Kernel) {
                    std::thread::sleep(Duration::from_millis(1));
                    assert!(killed.elapsed() < Duration::from_secs(1), "they are not in the kernel after a second");
                }
                longest = longest.max(killed.elapsed());
                lines.iter_mut().for_each(|line| line.turn(3_000));
                // And away again, with the next engine.
                let begun = Instant::now();
                while lines.iter().any(|line| line.place() != Place::Engine) {
                    let tally = service.handoff(Selector::All).unwrap();
                    lines.iter_mut().for_each(|line| line.turn(3_000));
                    assert!(begun.elapsed() < Duration::from_secs(10), "{tally:?}");
                }
            }
            lines.iter_mut().for_each(|line| line.go_on(10_000));
            lines.into_iter().for_each(Line::finish);
            assert_eq!(world.wire.resets(), resets);
            println!("{connections} connections, {kills} deaths: all in the kernel after {longest:?} at most");
        },
    );
}
