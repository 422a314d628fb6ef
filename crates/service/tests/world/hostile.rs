//! A program that writes garbage into the memory that it shares with the engine.

use crate::common::kernels::wait_for;
use crate::common::{At, Role, World};
use crate::outlive::kill;
use baton_client::Place;
use baton_ipc::channel::Channel;
use baton_ipc::message::{Incoming, Reply, Request, Selector};
use baton_ipc::version::HELLO;
use baton_testkit::{need_program, need_root};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The length of the rings and queue pairs at the start of a region, where garbage is written.
const WORDS: u64 = 512 << 10;

/// A program that does not use the library, with one connection in the engine.
struct Hostile {
    channel: Channel,
    memory: Vec<OwnedFd>,
    random: fastrand::Rng,
}

impl Hostile {
    fn new(world: &World<'_>, seed: u64) -> Hostile {
        let random = fastrand::Rng::with_seed(seed);
        let mut hostile = Hostile { channel: world.channel(), memory: Vec::new(), random };
        hostile.say(&HELLO, Vec::new());
        hostile
    }

    fn say(&mut self, request: &Request, fds: Vec<OwnedFd>) {
        let _ = self.channel.send(request.to_bytes(), fds);
    }

    /// Hands a connection over and ignores it from then on.
    fn adopt(&mut self, socket: OwnedFd) {
        self.say(&Request::Adopt { seq: 1 }, vec![socket]);
        self.take_in();
    }

    /// Takes a connection in that is brought, and returns its number.
    fn take_in(&mut self) -> u64 {
        let id = self.hear(|reply| match reply {
            Reply::Bring { incoming: Incoming { id, .. } } => Some(id),
            _ => None,
        });
        self.say(&Request::Brought { id, taken: true }, Vec::new());
        id
    }

    /// Hears replies until `pick` finds the right one.
    fn hear<T>(&mut self, pick: impl Fn(Reply) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            match self.channel.receive() {
                Ok(Some(parcel)) => match Reply::from_bytes(&parcel.bytes) {
                    Some(Reply::Region { .. }) => self.memory = parcel.fds,
                    Some(reply) => {
                        if let Some(picked) = pick(reply) {
                            return picked;
                        }
                    }
                    None => panic!("{parcel:?}"),
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
                other => panic!("{other:?}"),
            }
            assert!(begun.elapsed() < Duration::from_secs(5));
        }
    }

    fn scribble(&mut self, times: u32) {
        for _ in 0..times {
            let at = self.random.u64(..WORDS);
            let word = if self.random.bool() { self.random.u64(..16) } else { self.random.u64(..) };
            rustix::io::pwrite(&self.memory[0], &word.to_ne_bytes(), at & !7).unwrap();
        }
        rustix::io::write(&self.memory[1], &1u64.to_ne_bytes()).unwrap();
        // A program may only steal its own engine's wake-ups.
        let _ = rustix::io::read(&self.memory[1], &mut [0; 8]);
    }
}

#[test]
fn garbage_in_its_memory_costs_a_program_its_own_connections_only() {
    need_root!();
    need_program!("clang");
    World::with_line(|world, _, mut line| {
        let engine = Pid::from_raw(world.engine as i32).unwrap();
        let mut peers = Vec::new();
        for seed in 1..=20 {
            let mut hostile = Hostile::new(world, seed);
            let (ours, peer) = world.wire.connect(false);
            hostile.adopt(ours.into());
            peers.push(peer);
            for _ in 0..50 {
                hostile.scribble(200);
                line.turn(10_000);
                let _ = std::io::Write::write(&mut peers.last().unwrap(), b"something to receive");
            }
            test_kill_process(engine).expect("the engine lives");
            line.go_on(20_000);
            if seed % 5 == 0 {
                hostile.say(&Request::Restore { id: seed + 1 }, Vec::new());
                line.go_on(1_000);
            }
            // The program ends, and what it left is read from its memory.
            drop(hostile);
            line.go_on(20_000);
        }
        // The way home of other connections does not depend on it either.
        let mut hostile = Hostile::new(world, 77);
        let (ours, _peer) = world.wire.connect(false);
        hostile.adopt(ours.into());
        hostile.scribble(20_000);
        kill_process(engine, Signal::KILL).unwrap();
        let killed = Instant::now();
        while line.place() != Place::Kernel {
            line.turn(10_000);
            assert!(killed.elapsed() < Duration::from_secs(1));
        }
        line.go_on(100_000);
        assert!(matches!(line.at, At::Service(_)));
        line.finish();
    });
}

#[test]
fn what_a_program_never_takes_in_comes_home_and_ends_with_it() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let adopted = |seed| {
            let (ours, mut peer) = world.wire.connect(false);
            std::io::Write::write_all(&mut peer, b"not read").unwrap();
            std::thread::sleep(Duration::from_millis(50));
            let mut hostile = Hostile::new(world, seed);
            hostile.adopt(ours.into());
            wait_for("the engine", || service.list().unwrap().iter().any(|entry| entry.place == "engine"));
            (hostile, peer)
        };
        let (hostile, _peer) = adopted(1);
        let tally = service.bring_home(Selector::All).unwrap();
        assert_eq!((tally.count, tally.failed), (1, 0));
        assert_eq!(service.list().unwrap()[0].place, "kernel");
        drop(hostile);
        let (hostile, mut peer) = adopted(2);
        drop(hostile);
        let gone = Instant::now();
        let error = loop {
            match std::io::Read::read(&mut peer, &mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => break read.unwrap_err(),
            }
            assert!(gone.elapsed() < Duration::from_secs(1), "the peer does not learn of the end");
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn what_the_kernel_cannot_take_from_a_program_that_ended_it_takes_later() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let (ours, mut peer) = world.wire.connect(true);
        let mut hostile = Hostile::new(world, 3);
        hostile.adopt(ours.into());
        wait_for("the engine", || service.list().unwrap().iter().any(|entry| entry.place == "engine"));
        world.wire.ours.run("ip route del fd66::/64 dev wire");
        assert_eq!(service.bring_home(Selector::All).unwrap().failed, 1);
        drop(hostile);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(service.list().unwrap().len(), 1, "the kernel has no such route");
        world.wire.ours.run("ip route add fd66::/64 dev wire");
        wait_for("the end", || service.list().unwrap().is_empty());
        wait_for("its peer's end", || std::io::Read::read(&mut peer, &mut [0]).is_ok_and(|len| len == 0));
    });
}

/// A program that answered `Prepare` is told by the next broker that its connection stays, and uses it. The
/// next broker must not take the old answer for one to a `Prepare` of its own.
#[test]
fn an_answer_to_a_dead_broker_moves_nothing() {
    need_root!();
    need_program!("clang");
    World::enter_guarded(|world| {
        let service = world.service();
        let (ours, mut peer) = world.wire.connect(false);
        let mut used = ours.try_clone().unwrap();
        let mut program = Hostile::new(world, 4);
        program.say(&Request::Adopt { seq: 1 }, vec![ours.into()]);
        let id = program.take_in();
        wait_for("the engine", || service.list().unwrap().iter().any(|entry| entry.place == "engine"));
        kill(world, Role::Broker);
        program.hear(|reply| (reply == Reply::Restarted {}).then_some(()));
        wait_for("the kernel", || service.list().is_ok_and(|all| all.iter().any(|entry| entry.place == "kernel")));
        std::thread::scope(|scope| {
            scope.spawn(|| service.handoff(Selector::All).unwrap());
            program.hear(|reply| (reply == Reply::Prepare { id }).then_some(()));
            program.say(&Request::Ready { id, free: true }, Vec::new());
            for _ in 0..100 {
                std::io::Write::write_all(&mut peer, b"x").unwrap();
                let read = std::io::Read::read(&mut used, &mut [0; 8]);
                assert!(!read.is_err_and(|error| error.kind() != ErrorKind::WouldBlock), "nobody may capture it");
                std::thread::sleep(Duration::from_millis(1));
            }
            program.say(&Request::Has { id }, Vec::new());
            program.say(&Request::Ready { id, free: true }, Vec::new());
            assert_eq!(program.take_in(), id);
        });
        wait_for("the engine", || service.list().unwrap().iter().any(|entry| entry.place == "engine"));
    });
}
