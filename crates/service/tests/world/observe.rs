//! Observers of where the time of messages goes, of connections in engines.

use crate::common::kernels::wait_for;
use crate::common::{Line, Role, World};
use crate::outlive::kill;
use crate::strangers::{greet, next, say};
use baton_client::{Observed, Place, Service, Sighting, Stream};
use baton_ipc::channel::Channel;
use baton_ipc::message::{Incoming, Reply, Request, Selector};
use baton_latency::{Direction, Layer, SLOTS, Table};
use baton_testkit::{need_program, need_root};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use rustix::thread::set_thread_uid;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;

/// An observer, and what it has heard.
pub struct Observer {
    service: Service,
    begun: Vec<Observed>,
    ended: Vec<u32>,
    all_ended: bool,
}

impl Observer {
    fn new(world: &World<'_>, which: Selector, pid: Option<u32>, count: u64) -> Observer {
        let service = world.service();
        assert_eq!(service.observe(which, pid).unwrap(), count);
        Observer { service, begun: Vec::new(), ended: Vec::new(), all_ended: false }
    }

    pub fn all(world: &World<'_>, count: u64) -> Observer {
        Observer::new(world, Selector::All, None, count)
    }

    fn hear(&mut self) {
        for sighting in self.service.sightings() {
            match sighting {
                Sighting::Begun(observed) => self.begun.push(observed),
                Sighting::Ended(region) => self.ended.push(region),
                Sighting::AllEnded => self.all_ended = true,
            }
        }
    }

    /// The memory that came last, once so many have come.
    #[track_caller]
    pub fn memory(&mut self, count: usize) -> &Observed {
        wait_for("a memory", || {
            self.hear();
            self.begun.len() >= count
        });
        assert_eq!(self.begun.len(), count);
        self.begun.last().unwrap()
    }
}

/// The connection that is the only one there.
#[track_caller]
pub fn only(observed: &Observed) -> Table {
    let connections = observed.memory.connections();
    assert_eq!(connections.len(), 1, "{connections:?}");
    connections[0].table.clone()
}

pub fn messages(table: &Table) -> [u64; 2] {
    Direction::ALL.map(|way| table.layer(Layer::whole(way)).count)
}

/// Goes on until messages were seen on both ways.
#[track_caller]
fn until_seen(line: &mut Line, observed: &Observed) {
    let begun = Instant::now();
    while observed.memory.connections().first().is_none_or(|it| messages(&it.table).contains(&0)) {
        line.go_on(5_000);
        assert!(begun.elapsed() < Duration::from_secs(20), "no message is seen: {:?}", observed.memory.connections());
    }
}

/// The layers of each way and what lies between them are the whole, within a fiftieth.
#[track_caller]
fn adds_up(table: &Table) {
    for way in Direction::ALL {
        let whole = table.layer(Layer::whole(way));
        let parts = Layer::ALL.into_iter().filter(|layer| layer.direction() == way && layer.is_part());
        let sum: u64 = parts.map(|layer| table.layer(layer).sum).sum();
        assert!(whole.count > 0 && sum > 0);
        assert!(sum as f64 <= whole.sum as f64 * 1.02, "{}: {sum} of {}", way.name(), whole.sum);
    }
}

/// The times can still be read.
#[track_caller]
fn stays(observed: &Observed) {
    let seen = messages(&only(observed));
    assert!(!seen.contains(&0), "{seen:?}");
}

/// Goes on until nothing is stamped any more.
#[track_caller]
fn until_still(line: &mut Line, observed: &Observed) {
    let begun = Instant::now();
    let mut before = observed.memory.all();
    loop {
        line.go_on(50_000);
        let now = observed.memory.all();
        if now == before {
            return;
        }
        before = now;
        assert!(begun.elapsed() < Duration::from_secs(20), "it is stamped on");
    }
}

fn watched(connect: fn(&World<'_>) -> Service, inside: bool) {
    World::enter(|world| {
        let mut early = Observer::all(world, 0);
        let mut line = world.line(false);
        let service = connect(world);
        line.adopt(&service);
        until_seen(&mut line, early.memory(1));
        let observed = early.memory(1);
        assert!(observed.fresh && observed.calls);
        assert_eq!((observed.program.pid, observed.engine.contains('/')), (std::process::id(), inside));
        assert!(!observed.name.is_empty());
        // Messages that the program has not read yet have only the engine's part.
        line.come_to_rest();
        adds_up(&only(observed));
        // The steering notes when frames arrive from the beginning.
        let [arrived, all] = [Layer::ReceiveDevice, Layer::Stack].map(|layer| only(observed).layer(layer).count);
        assert!(arrived > 0 && arrived + all / 100 + 1 >= all, "{arrived} of {all}");
        let seen = &observed.memory.connections()[0];
        assert!(seen.live && seen.remote == line.peer.local_addr().unwrap());

        // Another shares the memory, and it goes on while one of both is there.
        let port = line.peer.local_addr().unwrap().port();
        let mut late = Observer::new(world, Selector::Port(port), Some(std::process::id()), 1);
        assert!(!late.memory(1).fresh);
        let region = late.begun[0].region;
        assert_eq!(region, early.begun[0].region);
        let other = Observer::new(world, Selector::All, Some(1), 0);
        let memory = early.begun.pop().unwrap();
        drop(early);
        let before = messages(&only(&late.begun[0]));
        line.go_on(200_000);
        let begun = Instant::now();
        while messages(&only(&late.begun[0])).iter().zip(before).any(|(now, before)| *now <= before) {
            line.go_on(5_000);
            assert!(begun.elapsed() < Duration::from_secs(20), "watching has ended with one of two observers");
        }
        // Without any, nothing is stamped, and what was seen can be read.
        drop((late, other));
        until_still(&mut line, &memory);
        stays(&memory);
        let again = Observer::all(world, 1).memory(1).fresh;
        assert!(again, "it begins anew");
        line.finish();
    });
}

#[test]
fn messages_in_a_services_engine_have_times_while_somebody_observes() {
    need_root!();
    need_program!("clang");
    watched(|world| world.service(), false);
}

#[test]
fn messages_in_a_programs_own_engine_have_times_too() {
    need_root!();
    need_program!("clang");
    watched(|world| world.direct(), true);
}

#[test]
fn the_times_outlive_engine_program_and_broker() {
    need_root!();
    need_program!("clang");
    World::enter_guarded(|world| {
        let service = world.service();
        let mut line = world.line(false);
        line.adopt(&service);
        let mut observer = Observer::all(world, 1);
        until_seen(&mut line, observer.memory(1));
        let region = observer.begun[0].region;

        kill(world, Role::Broker);
        wait_for("word of it", || {
            observer.hear();
            observer.all_ended
        });
        stays(&observer.begun[0]);
        // The next one is asked by the library.
        let begun = Instant::now();
        let mut until = |place| {
            while line.place() != place {
                if place == Place::Engine {
                    let _ = service.handoff(Selector::All);
                }
                line.turn(3_000);
                assert!(begun.elapsed() < Duration::from_secs(20), "it does not move");
            }
        };
        until(Place::Kernel);
        until(Place::Engine);
        until_seen(&mut line, observer.memory(2));
        assert_ne!(observer.begun[1].region, region);
        assert!(observer.begun[1].fresh);

        // It leaves the engine: its times stay, and its slot is free.
        line.restore();
        let left = &observer.begun[1].memory;
        wait_for("its slot", || left.connections().iter().all(|it| !it.live));
        stays(&observer.begun[1]);

        // The program goes.
        let region = observer.begun[1].region;
        drop(line);
        drop(service);
        wait_for("word of it", || {
            observer.hear();
            observer.ended.contains(&region)
        });
        stays(&observer.begun[1]);
    });
}

#[test]
fn a_killed_engine_leaves_its_times() {
    need_root!();
    need_program!("clang");
    World::with_line(|world, _, mut line| {
        let mut observer = Observer::all(world, 1);
        until_seen(&mut line, observer.memory(1));
        kill_process(Pid::from_raw(world.engine as i32).unwrap(), Signal::KILL).unwrap();
        wait_for("word of it", || {
            observer.hear();
            !observer.ended.is_empty()
        });
        assert_eq!(observer.ended, [observer.begun[0].region]);
        stays(&observer.begun[0]);
        line.go_on(100_000);
        line.finish();
    });
}

/// A connection in the engine whose peer echoes.
pub fn call(world: &World<'_>, service: &Service) -> (Stream, TcpStream) {
    let (ours, peer) = world.wire.connect(false);
    peer.set_nonblocking(false).unwrap();
    (service.adopt(ours.into()).unwrap_or_else(|refused| panic!("{refused}")), peer)
}

#[test]
fn more_connections_than_slots_are_counted() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let mut calls: Vec<_> = (0..SLOTS + 10).map(|_| call(world, &service)).collect();
        let mut observer = Observer::all(world, 1);
        let memory = &observer.memory(1).memory;
        wait_for("all slots", || memory.left_out() == 10);
        let mut late = call(world, &service);
        wait_for("the late one", || memory.left_out() == 11);
        for (stream, peer) in calls.iter_mut().chain([&mut late]) {
            stream.write_all(&[7; 100]).unwrap();
            peer.read_exact(&mut [0; 100]).unwrap();
        }
        wait_for("a message of each", || {
            let seen = memory.connections();
            assert!(seen.len() <= SLOTS);
            seen.iter().filter(|it| messages(&it.table)[0] == 1).count() == SLOTS
        });
    });
}

#[test]
fn an_observer_gets_no_more_than_its_share() {
    need_root!();
    need_program!("clang");
    World::with_line(|world, _, mut line| {
        // It asks again and again, and does not read.
        let mut hostile = greet(world);
        for ask in 0..100_000 {
            let _ = hostile.send(
                Request::Observe { ask, which: Selector::All, pid: None, every: ask as u32 }.to_bytes(),
                Vec::new(),
            );
            if ask % 10_000 == 0 {
                line.go_on(20_000);
            }
        }
        line.go_on(20_000);
        let mut few = greet(world);
        assert!(matches!(next(&mut few), Some((Reply::Welcome { .. }, _))));
        say(&mut few, &Request::Observe { ask: 1, which: Selector::All, pid: Some(1), every: 1 }, Vec::new());
        assert_eq!(next(&mut few).unwrap().0, Reply::Done { ask: 1, count: 0, failed: 0, pause_us: 0 });
        say(&mut few, &Request::Observe { ask: 2, which: Selector::All, pid: None, every: 1 }, Vec::new());
        assert!(matches!(next(&mut few), Some((Reply::Failed { ask: 2, .. }, _))));
        drop((few, hostile));

        let mut observers = Vec::new();
        let refused = loop {
            let service = world.service();
            match service.observe(Selector::All, None) {
                Ok(_) => observers.push(service),
                Err(error) if observers.is_empty() => {
                    // The hostile one may not be gone yet.
                    assert!(error.to_string().contains("observe connections already"), "{error}");
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => break error,
            }
        };
        assert!(refused.to_string().contains("8 programs of this user observe"), "{refused}");
        assert!(observers.len() <= 8);
        observers.clear();
        line.finish();
    });
}

#[test]
fn others_programs_are_not_shown() {
    need_root!();
    need_program!("clang");
    World::enter_with(
        |config| (config.mode, config.users) = (0o666, vec![NOBODY]),
        |world| {
            let service = world.service();
            let mut line = world.line(false);
            line.adopt(&service);
            std::thread::scope(|scope| {
                let stranger = scope.spawn(|| {
                    set_thread_uid(rustix::process::Uid::from_raw(NOBODY)).unwrap();
                    let service = world.service();
                    (service.observe(Selector::All, None).unwrap(), service.sightings().len())
                });
                assert_eq!(stranger.join().unwrap(), (0, 0));
            });
            line.finish();
        },
    );
}

/// A program without the library that speaks this version of the protocol, with a connection in the engine,
/// and the files that came for an observer's sake.
fn without_library(world: &World<'_>, version: u32, expects: bool) -> (Channel, TcpStream, Vec<OwnedFd>) {
    let mut program = world.channel();
    say(&mut program, &Request::Hello { oldest: 1, newest: version }, Vec::new());
    let (ours, peer) = world.wire.connect(false);
    say(&mut program, &Request::Adopt { seq: 1 }, vec![ours.into()]);
    let (mut files, mut brought) = (Vec::new(), false);
    while !brought || (expects && files.is_empty()) {
        match next(&mut program) {
            Some((Reply::Bring { incoming: Incoming { id, .. } }, _)) => {
                say(&mut program, &Request::Brought { id, taken: true }, Vec::new());
                brought = true;
            }
            Some((Reply::Watch { .. }, fds)) => files.extend(fds),
            Some((Reply::Welcome { .. } | Reply::Region { .. } | Reply::Ruled { .. }, _)) => {}
            other => panic!("{other:?}"),
        }
    }
    (program, peer, files)
}

#[test]
fn a_program_that_is_older_is_not_asked_to_stamp() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let mut observer = Observer::all(world, 0);
        let (mut program, _peer, files) = without_library(world, 4, false);
        let observed = observer.memory(1);
        assert!(!observed.calls && files.is_empty());
        // It is told nothing that it does not know.
        say(&mut program, &Request::List { ask: 9 }, Vec::new());
        loop {
            match next(&mut program) {
                Some((Reply::Done { ask: 9, .. }, _)) => break,
                Some((Reply::Watch { .. }, _)) | None => panic!("it is told of observers, or cut off"),
                Some(_) => {}
            }
        }
    });
}

#[test]
fn garbage_in_the_memory_of_times_harms_nobody() {
    need_root!();
    need_program!("clang");
    World::with_line(|world, _, mut line| {
        let engine = Pid::from_raw(world.engine as i32).unwrap();
        let mut observer = Observer::all(world, 1);
        let (_program, mut peer, files) = without_library(world, 5, true);
        observer.memory(2);
        let len = rustix::fs::fstat(&files[0]).unwrap().st_size as u64;
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..50 {
            for _ in 0..2_000 {
                let word = if random.bool() { random.u64(..16) } else { random.u64(..) };
                // The header and the first slots are where most happens.
                let at = if random.bool() { random.u64(..len) } else { random.u64(..len / 100) };
                rustix::io::pwrite(&files[0], &word.to_ne_bytes(), at & !7).unwrap();
            }
            let _ = peer.write_all(&[round; 100]);
            line.turn(10_000);
            let observed = &observer.begun[1].memory;
            let mut all = observed.all();
            for it in observed.connections() {
                all.add(&it.table);
                it.slowest.iter().for_each(|slow| assert!(slow.between() <= slow.whole));
            }
            Direction::ALL.into_iter().for_each(|way| drop(all.rows(way)));
        }
        test_kill_process(engine).expect("the engine lives");
        // The memory of the other program has its own times only.
        until_seen(&mut line, &observer.begun[0]);
        line.come_to_rest();
        adds_up(&only(&observer.begun[0]));
        line.finish();
    });
}
