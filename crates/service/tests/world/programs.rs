//! Programs that die, and programs of other users.

use crate::common::kernels::Ramp;
use crate::common::{World, programs_part};
use baton_client::{Place, Service};
use baton_testkit::{Running, need_program, need_root, wait_for};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;

/// Not a test: the tests start this as a program. Its standard input is the socket that it hands
/// over. It writes a number of bytes, reports the outcome, and waits for its end.
#[test]
fn the_programs_process() {
    let Some((len, socket, fd)) = programs_part() else { return };
    let outcome = Service::connect(socket).map_err(|error| format!("{:?}", error.kind())).and_then(|service| {
        let mut stream = service.adopt(fd).map_err(|refused| refused.code)?;
        stream.write_all(&Ramp::bytes(0, len as usize)).unwrap();
        Ok((service, stream))
    });
    let word = outcome.as_ref().err().map_or("adopted", String::as_str);
    println!("\noutcome {word}");
    std::thread::sleep(Duration::from_secs(60));
}

/// Starts a program. Returns it with the outcome that it reports.
pub fn program(world: &World<'_>, socket: OwnedFd, user: Option<u32>, len: usize) -> (Running, String) {
    let (running, mut lines) = world.program("programs::the_programs_process", socket, len as u64, &|command| {
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
    });
    let word = lines.find_map(|line| Some(line.strip_prefix("outcome ")?.to_owned()));
    (running, word.expect("the program reports the outcome"))
}

#[test]
fn a_killed_programs_peer_gets_all_that_was_written_and_the_end() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        for len in [0, 10, 100_000] {
            let (ours, mut peer) = world.pair();
            let (mut running, word) = program(world, ours, None, len);
            assert_eq!(word, "adopted");
            running.child().kill().unwrap();
            let killed = Instant::now();
            let mut read = Vec::new();
            peer.read_to_end(&mut read).unwrap();
            assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
            assert!(read == Ramp::bytes(0, len), "{} of {len} bytes", read.len());
            // Nobody reads it.
            peer.shutdown(Shutdown::Write).unwrap();
        }
    });
}

#[test]
fn a_killed_programs_peer_is_reset_if_something_was_not_read() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let (ours, mut peer) = world.pair();
        let (mut running, word) = program(world, ours, None, 5);
        assert_eq!(word, "adopted");
        peer.write_all(b"never read").unwrap();
        peer.read_exact(&mut [0; 5]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        running.child().kill().unwrap();
        let killed = Instant::now();
        let error = peer.read(&mut [0; 9]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
    });
}

#[test]
fn other_users_stay_outside_and_others_sockets_stay_where_they_are() {
    need_root!();
    need_program!("clang");
    for (mode, users, outcome) in
        [(0o600, vec![], "PermissionDenied"), (0o666, vec![], "PermissionDenied"), (0o666, vec![NOBODY], "not-yours")]
    {
        let configure =
            |config: &mut baton_service::broker::Config| (config.mode, config.users) = (mode, users.clone());
        World::enter_with(configure, |world| {
            // A socket of root's, in a process of the user nobody.
            let (ours, mut peer) = world.pair();
            let own = ours.try_clone().unwrap();
            let (running, word) = program(world, ours, Some(NOBODY), 5);
            assert_eq!(word, outcome, "{mode:o}");
            drop(running);
            // The socket is unchanged.
            TcpStream::from(own).write_all(b"alive").unwrap();
            let mut read = [0; 5];
            peer.read_exact(&mut read).unwrap();
            assert_eq!(&read, b"alive");
        });
    }
}

#[test]
fn descendants_of_a_process_are_served_whoever_they_are() {
    need_root!();
    need_program!("clang");
    let mut other = Running::start(Command::new("sleep").arg("600"));
    let no_parent = other.child().id();
    for (ancestor, outcome) in [(std::process::id(), "not-yours"), (no_parent, "PermissionDenied")] {
        let configure =
            |config: &mut baton_service::broker::Config| (config.mode, config.descendants_of) = (0o666, Some(ancestor));
        World::enter_with(configure, |world| {
            let (ours, _peer) = world.pair();
            let (_running, word) = program(world, ours, Some(NOBODY), 5);
            assert_eq!(word, outcome);
        });
    }
}

#[test]
fn the_service_ends_with_the_process_whose_descendants_it_serves() {
    need_root!();
    need_program!("clang");
    let mut ancestor = Running::start(Command::new("sleep").arg("600"));
    let pid = ancestor.child().id();
    let configure = |config: &mut baton_service::broker::Config| config.descendants_of = Some(pid);
    World::enter_with(configure, |world| {
        let service = world.service();
        let mut line = world.line(false);
        line.adopt(&service);
        line.turn(30_000);
        drop(ancestor);
        wait_for("the service's end", || !world.socket.exists());
        line.go_on(200_000);
        assert_eq!(line.place(), Place::Kernel);
        line.finish();
    });
}

#[test]
fn several_threads_may_wait_for_one_stream() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let (ours, mut peer) = world.pair();
        let stream = world.service().adopt(ours).unwrap_or_else(|refused| panic!("{refused}"));
        stream.set_read_timeout(Some(Duration::from_secs(30)));
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut byte = [0];
                        (&stream).read_exact(&mut byte).unwrap();
                        byte[0]
                    })
                })
                .collect();
            let askers: Vec<_> = (0..2).map(|_| scope.spawn(|| stream.tcp_info().unwrap())).collect();
            assert!(askers.into_iter().all(|asker| !asker.join().unwrap().is_empty()));
            for byte in [1, 2] {
                // Both are probably waiting by then.
                std::thread::sleep(Duration::from_millis(20));
                peer.write_all(&[byte]).unwrap();
            }
            let read: u8 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
            assert_eq!(read, 3);
        });
    });
}
