//! Engines inside programs: in this process, and in programs that are killed or stopped.

use crate::common::kernels::{Ramp, wait_for};
use crate::common::{Line, Role, World, programs_part};
use baton_client::{Place, Service};
use baton_ipc::message::Selector;
use baton_ipc::placement::Placement;
use baton_ipc::version::HELLO;
use baton_testkit::{need_program, need_root, need_types, types};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// If this variable is set, a program reads.
const READS: &str = "BATON_TEST_READS";

/// Not a test: the tests start this as a program. Its standard input is the socket that it hands
/// over. It writes a number of bytes of a ramp, reports that, reads another ramp to its end, and
/// reports what it found.
#[test]
fn the_programs_process() {
    let Some((len, socket, fd)) = programs_part() else { return };
    let service = Service::connect_as(socket, Placement::Direct).unwrap();
    let mut stream = service.adopt(fd).unwrap_or_else(|refused| panic!("{refused}"));
    let mut written = 0;
    while written < len {
        let some = Ramp::bytes(written, 10_000.min((len - written) as usize));
        stream.write_all(&some).unwrap();
        written += some.len() as u64;
    }
    println!("\nwritten");
    if std::env::var_os(READS).is_some() {
        let mut read = Vec::new();
        stream.read_to_end(&mut read).unwrap();
        println!("\nread {} {}", read.len(), read == Ramp::bytes(0, read.len()));
    }
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn bytes_go_both_ways_through_an_engine_of_our_own() {
    need_root!();
    need_program!("clang");
    need_types!();
    World::enter(|world| {
        let (service, resets) = (world.direct(), world.wire.resets());
        assert_eq!(world.devices(), 1);
        let mut lines: Vec<_> = (0..4).map(|n| world.line(n % 2 == 0)).collect();
        lines.iter_mut().for_each(|line| line.adopt(&service));
        assert_eq!((world.devices(), service.devices().len()), (2, 1));
        lines.iter_mut().for_each(|line| line.go_on(3_000_000));
        assert!(lines.iter().all(|line| line.place() == Place::Engine));
        // Back and forth, requested by the program and by somebody else.
        for _ in 0..5 {
            lines[0].restore();
            lines[0].go_on(50_000);
            lines[0].adopt(&service);
            let tally = world.service().bring_home(Selector::All).unwrap();
            assert_eq!((tally.count, tally.failed), (4, 0));
            lines.iter_mut().for_each(|line| line.go_on(50_000));
            let tally = world.service().handoff(Selector::All).unwrap();
            assert_eq!((tally.count, tally.failed), (4, 0));
            lines.iter_mut().for_each(|line| line.go_on(50_000));
        }
        let tally = world.service().upgrade().unwrap();
        assert_eq!((tally.count, tally.failed), (4, 0));
        lines.iter_mut().for_each(|line| line.go_on(300_000));
        assert!(lines.iter().all(|line| line.place() == Place::Engine));
        // No engine here is left to wait for late segments.
        world.service().bring_home(Selector::All).unwrap();
        lines.into_iter().for_each(Line::finish);
        wait_for("the end of all", || world.service().list().unwrap().is_empty());
        drop(service);
        wait_for("the device's end", || world.devices() == 1);
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn where_the_guard_is_not_shown_sums_the_services_engine_serves() {
    need_root!();
    need_program!("clang");
    if !types::are_hidden("direct::where_the_guard_is_not_shown_sums_the_services_engine_serves") {
        return;
    }
    World::enter(|world| {
        let service = world.direct();
        let mut line = world.line(false);
        line.adopt(&service);
        line.go_on(300_000);
        assert_eq!((line.place(), world.devices(), service.devices().len()), (Place::Engine, 1, 0));
        line.finish();
    });
}

#[test]
fn a_call_that_blocks_is_answered() {
    need_root!();
    need_program!("clang");
    need_types!();
    World::enter(|world| {
        let (ours, mut peer) = world.pair();
        let mut stream = world.direct().adopt(ours).unwrap_or_else(|refused| panic!("{refused}"));
        let mut byte = [0];
        for n in 0..200 {
            stream.write_all(&[n]).unwrap();
            peer.read_exact(&mut byte).unwrap();
            peer.write_all(&byte).unwrap();
            stream.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [n]);
        }
        drop(stream);
        assert_eq!(peer.read(&mut byte).unwrap(), 0);
    });
}

#[test]
fn a_killed_programs_peer_gets_all_that_was_written_and_the_end() {
    need_root!();
    need_program!("clang");
    need_types!();
    World::enter(|world| {
        for len in [0, 10, 100_000] {
            let (ours, mut peer) = world.pair();
            let (mut running, mut said) = world.program("direct::the_programs_process", ours, len, &|_| {});
            assert!(said.any(|line| line == "written"));
            running.child().kill().unwrap();
            let mut read = Vec::new();
            peer.read_to_end(&mut read).unwrap();
            assert!(read == Ramp::bytes(0, len as usize), "{} of {len} bytes", read.len());
            wait_for("the device's end", || world.devices() == 1);
            wait_for("nothing to be left", || world.service().list().unwrap().is_empty());
        }
    });
}

#[test]
fn a_killed_programs_peer_is_reset_if_something_was_not_read() {
    need_root!();
    need_program!("clang");
    need_types!();
    World::enter(|world| {
        let (ours, mut peer) = world.pair();
        let (mut running, mut said) = world.program("direct::the_programs_process", ours, 5, &|_| {});
        assert!(said.any(|line| line == "written"));
        peer.write_all(b"never read").unwrap();
        peer.read_exact(&mut [0; 5]).unwrap();
        // Waits until the engine has acknowledged it.
        let unacknowledged = || world.wire.peer.run("ss -Htn state established").contains(" 10 ");
        wait_for("the acknowledgment", || !unacknowledged());
        running.child().kill().unwrap();
        assert_eq!(peer.read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        wait_for("the device's end", || world.devices() == 1);
    });
}

#[test]
fn a_program_killed_in_the_middle_of_a_transfer_leaves_nothing() {
    need_root!();
    need_program!("clang");
    need_types!();
    World::enter(|world| {
        let (ours, mut peer) = world.pair();
        let (mut running, _said) = world.program("direct::the_programs_process", ours, u64::MAX, &|_| {});
        let mut read = vec![0; 5_000_000];
        peer.read_exact(&mut read).unwrap();
        running.child().kill().unwrap();
        peer.read_to_end(&mut read).unwrap();
        // Everything that the program had written has arrived, up to the last whole byte.
        assert!(read == Ramp::bytes(0, read.len()), "{} bytes", read.len());
        wait_for("the device's end", || world.devices() == 1);
        wait_for("nothing to be left", || world.service().list().unwrap().is_empty());
        let husks = || world.wire.ours.run("ss -Htn state established");
        wait_for("the last of the socket", || husks().trim().is_empty());
    });
}

#[test]
fn a_program_that_is_stopped_has_its_connections_brought_home_and_no_byte_twice() {
    need_root!();
    need_program!("clang");
    need_types!();
    World::enter_with(
        |config| config.patience = Duration::from_secs(1),
        |world| {
            let (ours, mut peer) = world.pair();
            let reads = |command: &mut std::process::Command| {
                command.env(READS, "1");
            };
            let (mut running, mut said) = world.program("direct::the_programs_process", ours, 10, &reads);
            assert!(said.any(|line| line == "written"));
            peer.read_exact(&mut [0; 10]).unwrap();
            let mut sent = 0;
            let mut send = |peer: &mut TcpStream, len: usize| {
                peer.write_all(&Ramp::bytes(sent, len)).unwrap();
                sent += len as u64;
            };
            send(&mut peer, 300_000);
            running.signal(Signal::STOP);
            // Its engine is not told of this; the kernel receives it in the end.
            send(&mut peer, 30_000);
            let in_kernel = || world.service().list().unwrap().iter().all(|entry| entry.place == "kernel");
            wait_for("the way home", in_kernel);
            send(&mut peer, 30_000);
            running.signal(Signal::CONT);
            send(&mut peer, 300_000);
            drop(peer);
            let read = said.find(|line| line.starts_with("read ")).expect("it reads to the end");
            assert_eq!(read, "read 660000 true");
        },
    );
}

#[test]
fn a_brokers_death_costs_a_pause() {
    need_root!();
    need_program!("clang");
    need_types!();
    World::enter_guarded(|world| {
        let service = world.direct();
        let resets = world.wire.resets();
        let mut lines: Vec<_> = (0..10).map(|n| world.line(n % 2 == 0)).collect();
        lines.iter_mut().for_each(|line| line.adopt(&service));
        for _ in 0..3 {
            lines.iter_mut().for_each(|line| line.go_on(100_000));
            let pid = world.process(Role::Broker);
            kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
            world.process_but(Role::Broker, Some(pid));
            let begun = Instant::now();
            while lines.iter().any(|line| line.place() != Place::Kernel) {
                lines.iter_mut().for_each(|line| line.turn(3_000));
                assert!(begun.elapsed() < Duration::from_secs(20), "the connections do not come home");
            }
            lines.iter_mut().for_each(|line| line.go_on(20_000));
            let begun = Instant::now();
            while lines.iter().any(|line| line.place() != Place::Engine) {
                let tally = service.handoff(Selector::All);
                lines.iter_mut().for_each(|line| line.turn(3_000));
                assert!(begun.elapsed() < Duration::from_secs(20), "{tally:?}");
            }
        }
        lines.iter_mut().for_each(|line| line.go_on(100_000));
        // No engine here is left to wait for late segments.
        service.bring_home(Selector::All).unwrap();
        lines.into_iter().for_each(Line::finish);
        assert_eq!(world.wire.resets(), resets);
        wait_for("the end of all", || service.list().unwrap().is_empty());
    });
}

#[test]
fn a_program_that_never_begins_its_engine_keeps_its_socket() {
    need_root!();
    need_program!("clang");
    need_types!();
    use baton_ipc::message::{Reply, Request};
    World::enter(|world| {
        let (ours, mut peer) = world.pair();
        let mut channel = world.channel();
        let own = ours.try_clone().unwrap();
        for request in [HELLO, Request::Direct {}] {
            channel.send(request.to_bytes(), Vec::new()).unwrap();
        }
        channel.send(Request::Adopt { seq: 1 }.to_bytes(), vec![ours]).unwrap();
        // Nobody else is kept waiting.
        world.line(false).adopt(&world.service());
        let mut stays = false;
        wait_for("the answer", || {
            while let Ok(Some(parcel)) = channel.receive() {
                stays |= matches!(Reply::from_bytes(&parcel.bytes), Some(Reply::Stays { seq: 1, .. }));
            }
            stays
        });
        TcpStream::from(own).write_all(b"alive").unwrap();
        let mut read = [0; 5];
        peer.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"alive");
    });
}
