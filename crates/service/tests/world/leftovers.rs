//! If the program wants a plain socket, the bytes that it holds of a connection whose engine died
//! go into the kernel.

use crate::common::kernels::{Ramp, wait_for};
use crate::common::{At, Line, World};
use baton_client::{Place, Service};
use baton_testkit::{need_program, need_root};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

/// The bytes that the peer sends and nobody reads.
const UNREAD: usize = 60_000;

/// A connection in the engine with unread bytes in both queues, closed by our side and by the peer
/// as requested.
fn filled(world: &World<'_>, service: &Service, ipv6: bool, [ours, peers]: [bool; 2]) -> Line {
    let mut line = world.line(ipv6);
    line.go_on(5_000);
    line.adopt(service);
    let At::Service(stream) = &line.at else { unreachable!("it was adopted") };
    loop {
        let bytes = Ramp::bytes(line.out.written, 30_000);
        match (&mut &*stream).write(&bytes) {
            Ok(count) => line.out.written += count as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    let unread = line.back.written - line.back.read;
    line.back.write(&line.peer, UNREAD - unread as usize);
    if ours {
        stream.shutdown().unwrap();
    }
    if peers {
        line.peer.shutdown(Shutdown::Write).unwrap();
    }
    line
}

fn kill_the_engine(world: &World<'_>, lines: &[Line]) {
    std::thread::sleep(Duration::from_millis(100));
    kill_process(Pid::from_raw(world.engine as i32).unwrap(), Signal::KILL).unwrap();
    wait_for("the way home", || lines.iter().all(|line| line.place() == Place::Kernel));
}

/// Ends both directions, unless they have ended, and checks that everything written arrives.
fn end(line: &mut Line) {
    // This fails on a connection that has ended already.
    let _ = match &line.at {
        At::Kernel(stream) => stream.shutdown(Shutdown::Write),
        At::Service(stream) => stream.shutdown(),
        At::Moving => unreachable!(),
    };
    let _ = line.peer.shutdown(Shutdown::Write);
    let mut ended = [false; 2];
    wait_for("the end", || {
        let [ours, peers] = line.read();
        ended = [ended[0] | ours, ended[1] | peers];
        ended == [true; 2]
    });
    assert_eq!((line.out.read, line.back.read), (line.out.written, line.back.written));
}

#[test]
fn a_plain_socket_has_all_that_its_program_held() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let resets = world.wire.resets();
        // One side has closed, or the other, or neither.
        let mut lines: Vec<_> =
            (0..6).map(|case| filled(world, &service, case % 2 == 0, [case / 2 == 1, case / 2 == 2])).collect();
        kill_the_engine(world, &lines);
        for line in &mut lines {
            line.restore();
            let At::Kernel(stream) = &line.at else { unreachable!("it was restored") };
            let unread = line.back.written - line.back.read;
            assert_eq!(ioctl_fionread(stream).unwrap(), unread);
        }
        lines.iter_mut().for_each(end);
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn what_both_sides_had_closed_arrives_whatever_dies() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let resets = world.wire.resets();
        let mut lines: Vec<_> = [false, true].map(|ipv6| filled(world, &service, ipv6, [true, true])).into();
        kill_the_engine(world, &lines);
        lines.iter_mut().for_each(end);
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn what_was_read_in_part_goes_back_in_part() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let mut lines = vec![filled(world, &service, false, [false; 2]), filled(world, &service, true, [false; 2])];
        kill_the_engine(world, &lines);
        // An engine that died soon after its start is not restarted at once.
        std::thread::sleep(Duration::from_millis(1500));
        for line in &mut lines {
            let At::Service(stream) = &line.at else { unreachable!("it is the service's") };
            let mut first = [0; 1000];
            (&mut &*stream).read_exact(&mut first).unwrap();
            assert_eq!(first[..], Ramp::bytes(line.back.read, first.len()));
            line.back.read += first.len() as u64;
            // The peer sends more, to the kernel.
            line.back.write(&line.peer, 5_000);
            std::thread::sleep(Duration::from_millis(20));
            line.restore();
            line.go_on(100_000);
            // The connection may move again.
            line.adopt(&service);
            line.go_on(100_000);
        }
        lines.into_iter().for_each(Line::finish);
    });
}

#[test]
fn without_a_service_what_was_received_has_to_be_read_first() {
    need_root!();
    need_program!("clang");
    let mut left = None;
    World::enter(|world| {
        let service = world.service();
        let lines = vec![filled(world, &service, false, [false; 2])];
        kill_the_engine(world, &lines);
        left = Some((lines, service));
    });
    let (mut lines, _service) = left.unwrap();
    let At::Service(stream) = std::mem::replace(&mut lines[0].at, At::Moving) else { unreachable!("it was adopted") };
    let (mut stream, error) = stream.restore().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
    // The stream is intact.
    let mut first = [0; 1000];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first[..], Ramp::bytes(lines[0].back.read, first.len()));
}
