//! Deaths beside pairs: of a program, whose peer sees what the kernel would have shown, and of the service's
//! processes, which pairs do without.

use crate::common::kernels::{Ramp, wait_for};
use crate::common::{PAIRS, Role, World};
use crate::pairs::{ends, enter, home, join, talk};
use crate::programs::program;
use baton_client::{Place, Service, Stream};
use baton_ipc::message::Selector;
use baton_journal::Numbered;
use baton_service::broker::PairUsers;
use baton_testkit::{Running, need_program, need_root};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Our end of a pair, whose other end a program has, which writes so many bytes.
fn beside_program(world: &World<'_>, service: &Service, len: usize) -> (Stream, Running) {
    let [ours, theirs] = ends(world, "127.0.0.1:0");
    let stream = service.adopt(ours.into()).unwrap();
    let (running, word) = program(world, theirs.into(), None, len);
    assert_eq!(word, "adopted");
    wait_for("both ends are joined", || stream.place() == Place::Pair);
    (stream, running)
}

#[test]
fn a_killed_programs_other_end_reads_all_that_was_written_and_the_end() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let service = world.service();
        for (len, unread) in [(0, false), (10, false), (200_000, false), (10, true)] {
            let (mut stream, mut running) = beside_program(world, &service, len);
            if unread {
                stream.write_all(b"nobody reads it").unwrap();
            }
            running.child().kill().unwrap();
            let killed = Instant::now();
            let mut read = Vec::new();
            let end = stream.read_to_end(&mut read);
            assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
            assert!(read == Ramp::bytes(0, len), "{} of {len} bytes", read.len());
            // As in the kernel, a program that leaves bytes unread resets the connection.
            assert_eq!(end.err().map(|error| error.kind()), unread.then_some(ErrorKind::ConnectionReset));
            drop(stream);
            wait_for("nothing is left", || service.list().unwrap().is_empty());
        }
    });
}

#[test]
fn an_end_that_is_taken_back_after_a_reset_shows_it() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let service = world.service();
        let (mut stream, mut running) = beside_program(world, &service, 10);
        stream.write_all(b"nobody reads it").unwrap();
        running.child().kill().unwrap();
        // The program itself has not looked at its end since.
        let is_gone = |told: &Numbered| told.event.text.starts_with("disconnected");
        wait_for("the program's end", || service.events(0, u16::MAX).unwrap().0.iter().any(is_gone));
        // As in the kernel: first the bytes that were written, then the reset, which nobody has seen yet.
        let Err((mut stream, _)) = stream.restore() else { panic!("its other end has gone") };
        let mut read = Vec::new();
        let end = stream.read_to_end(&mut read);
        assert_eq!(read, Ramp::bytes(0, 10));
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_pair_goes_on_while_broker_and_guardian_are_killed() {
    need_root!();
    need_program!("clang");
    World::enter_guarded_at(PAIRS, |world| {
        let (one, other) = (world.service(), world.service());
        let mut streams = join([&one, &other], ends(world, "127.0.0.1:0"));
        for role in [Role::Broker, Role::Guardian, Role::Broker] {
            let pid = world.process(role);
            kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
            talk(&mut streams);
            world.process_but(role, Some(pid));
            talk(&mut streams);
        }
        wait_for("the broker knows both ends", || one.list().is_ok_and(|entries| entries.len() == 2));
        home(&one, &streams);
        talk(&mut streams);
        assert_eq!(one.handoff(Selector::All).unwrap().failed, 0);
        wait_for("both are joined again", || streams.iter().all(|stream| stream.place() == Place::Pair));
        talk(&mut streams);
    });
}

#[test]
fn a_service_that_joins_nobody_leaves_both_ends_in_the_kernel() {
    need_root!();
    need_program!("clang");
    World::enter_with(
        |config| config.pair = PairUsers::Never,
        |world| {
            let service = world.service();
            let [ours, _theirs] = ends(world, "127.0.0.1:0");
            let refused = service.adopt(ours.into()).err().map(|refused| refused.code);
            assert_eq!(refused.as_deref(), Some("not-steerable"));
        },
    );
}
