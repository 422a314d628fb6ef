//! What a service tells of itself, as `baton events` asks for it.

use crate::common::kernels::wait_for;
use crate::common::{Role, World};
use baton_client::{Place, Service};
use baton_journal::{Event, Kind, Level, PER_SECOND};
use baton_testkit::{need_program, need_root};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Instant;

/// All that it told so far.
fn events(service: &Service) -> Vec<Event> {
    let (events, last) = service.events(0, u16::MAX).unwrap();
    assert!(events.is_sorted_by(|a, b| a.number < b.number));
    assert_eq!(events.last().map(|event| event.number), Some(last));
    events.into_iter().map(|numbered| numbered.event).collect()
}

/// The last event of a kind and reason.
#[track_caller]
fn find(events: &[Event], kind: Kind, reason: &str) -> Event {
    let found = events.iter().rev().find(|event| event.kind == kind && event.reason == reason);
    found.unwrap_or_else(|| panic!("no {kind} for {reason}: {events:#?}")).clone()
}

#[test]
fn moves_refusals_and_a_dead_engine_are_told_with_their_reasons() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let mut line = world.line(false);
        line.adopt(&service);
        line.turn(1000);
        let (own, name) = (Some((std::process::id(), 0)), service.list().unwrap()[0].tuple);
        let told = events(&service);
        let moved = find(&told, Kind::MOVED, "handed-over");
        assert_eq!((moved.level, moved.tuple, moved.program), (Level::Debug, Some(name), own));
        assert!(moved.took_us.is_some_and(|us| us > 0), "{moved}");
        for (kind, text) in [
            (Kind::SERVICE, "serves wire at "),
            (Kind::STEERING, "wire is steered by tc"),
            (Kind::CONFIG, "rule fcfs"),
            (Kind::PROGRAM, " connected"),
            (Kind::ENGINE, "the engine of wire runs: process "),
        ] {
            let found = told.iter().any(|event| event.kind == kind && event.text.contains(text));
            assert!(found, "{kind} {text}: {told:#?}");
        }

        line.restore();
        let home = find(&events(&service), Kind::HOME, "asked-for");
        assert_eq!((home.tuple, home.program), (Some(name), own));

        let refused = service.adopt(std::fs::File::open("/dev/null").unwrap().into()).err().unwrap();
        let stays = find(&events(&service), Kind::STAYS, &refused.code);
        assert_eq!((refused.code.as_str(), stays.level, stays.program), ("not-tcp", Level::Debug, own));

        line.adopt(&service);
        kill_process(Pid::from_raw(world.engine.cast_signed()).unwrap(), Signal::KILL).unwrap();
        wait_for("the kernel", || line.place() == Place::Kernel);
        let told = events(&service);
        let died = find(&told, Kind::ENGINE, "engine-died");
        let text = format!("the engine of wire, process {}, has ended (signal: 9 (SIGKILL)); 1 ", world.engine);
        assert!(died.level == Level::Error && died.text.starts_with(&text), "{died}");
        let home = find(&told, Kind::HOME, "engine-died");
        assert_eq!((home.tuple, home.program), (Some(name), own));
        wait_for("another engine", || {
            let runs = |event: &&Event| event.kind == Kind::ENGINE && event.text.starts_with("the engine of wire runs");
            events(&service).iter().filter(runs).count() == 2
        });
        line.go_on(10_000);
        line.finish();
    });
}

#[test]
fn a_flood_of_refusals_is_told_as_a_number() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        const FLOOD: u64 = 1000;
        let (service, begun) = (world.service(), Instant::now());
        for _ in 0..FLOOD {
            let refused = service.adopt(std::fs::File::open("/dev/null").unwrap().into()).err().unwrap();
            assert_eq!(refused.code, "not-tcp");
        }
        // As many as may be told in each second that has begun.
        let most = (begun.elapsed().as_secs() + 2) * PER_SECOND;
        let of = |reason: &str| -> Vec<Event> {
            let is_it = |event: &Event| event.kind == Kind::STAYS && event.reason == reason;
            events(&service).into_iter().filter(is_it).collect()
        };
        wait_for("the number", || {
            let counts = of("suppressed").into_iter().map(|event| {
                let words = event.text.split(' ').next().unwrap().parse::<u64>();
                words.unwrap_or_else(|_| panic!("{event}"))
            });
            of("not-tcp").len() as u64 + counts.sum::<u64>() == FLOOD
        });
        assert!(of("not-tcp").len() as u64 <= most, "{} of at most {most}", of("not-tcp").len());
        // What was told before is there still.
        find(&events(&service), Kind::STEERING, "");
    });
}

#[test]
fn a_broker_that_takes_over_tells_that_another_died() {
    need_root!();
    need_program!("clang");
    World::enter_guarded(|world| {
        let service = world.service();
        let mut line = world.line(false);
        line.adopt(&service);
        let (_, before) = service.events(0, 1).unwrap();
        let broker = world.process(Role::Broker);
        kill_process(Pid::from_raw(broker.cast_signed()).unwrap(), Signal::KILL).unwrap();
        wait_for("the kernel", || line.place() == Place::Kernel);
        wait_for("the next broker", || service.events(0, 1).is_ok());
        let (events, last) = service.events(before, u16::MAX).unwrap();
        assert!(last > before, "numbers rise: {before}, then {last}");
        let told: Vec<Event> = events.into_iter().map(|numbered| numbered.event).collect();
        let died = find(&told, Kind::BROKER, "broker-died");
        assert!(died.text.contains(" and 1 connections are taken up"), "{died}");
        assert_eq!(find(&told, Kind::HOME, "broker-died").program, Some((std::process::id(), 0)));
        line.go_on(10_000);
        line.finish();
    });
}
