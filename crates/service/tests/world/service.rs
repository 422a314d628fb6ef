//! Connections that move through a service of several processes.

use crate::common::kernels::{LONG, Ramp, wait_for};
use crate::common::{At, Line, World};
use baton_client::{Place, Service};
use baton_ipc::channel::Channel;
use baton_ipc::message::{Incoming, Reply, Request, Selector};
use baton_ipc::version::{HELLO, NEWEST};
use baton_kernel::steer::Kind;
use baton_testkit::{need_program, need_root};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{ErrorKind, Read};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_connection_goes_to_the_engine_and_back() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        there_and_back(kind);
    }
}

fn there_and_back(kind: Kind) {
    World::enter_with(
        |config| config.interfaces[0].kind = kind,
        |world| {
            let service = world.service();
            let resets = world.wire.resets();
            for ipv6 in [false, true] {
                let mut line = world.line(ipv6);
                line.go_on(100_000);
                for _ in 0..5 {
                    line.adopt(&service);
                    assert_eq!(line.place(), Place::Engine);
                    line.go_on(500_000);
                    line.restore();
                    line.go_on(100_000);
                }
                line.finish();
            }
            assert_eq!(world.wire.resets(), resets);
        },
    );
}

/// The engine gives the place of a connection that has ended to the next one, before its program
/// has closed it. A request about the first must not move the second.
#[test]
fn what_is_asked_of_a_connection_that_ended_does_not_happen_to_who_has_its_place() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let ended: Vec<Line> = (0..4).map(|_| end_in_the_engine(world, &service)).collect();
        let of_ended: Vec<_> = service.list().unwrap().iter().map(|entry| entry.tuple).collect();
        assert_eq!(of_ended.len(), ended.len());
        let mut others: Vec<Line> = (0..8).map(|_| world.line(false)).collect();
        others.iter_mut().for_each(|line| line.adopt(&service));
        for tuple in of_ended {
            service.bring_home(Selector::Tuple(tuple)).unwrap();
        }
        for line in &mut others {
            line.go_on(300_000);
            assert_eq!(line.place(), Place::Engine);
        }
        others.into_iter().for_each(Line::finish);
    });
}

#[test]
fn what_the_kernel_cannot_take_waits_in_the_engine() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let (service, mut line) = (&world.service(), world.line(true));
        line.adopt(service);
        line.go_on(100_000);
        world.wire.ours.run("ip route del fd66::/64 dev wire");
        for _ in 0..3 {
            assert_eq!(service.bring_home(Selector::All).unwrap().failed, 1);
            line.turn(30_000);
            let At::Service(stream) = std::mem::replace(&mut line.at, At::Moving) else { panic!("no stream") };
            let (stream, error) = stream.restore().expect_err("the kernel has no such route");
            assert!(error.to_string().contains("does not take the connection back"), "{error}");
            line.at = At::Service(stream);
        }
        wait_for("silence, as in the kernel", || {
            let before = (line.out.read, line.back.read);
            for _ in 0..5 {
                line.turn(30_000);
                sleep(Duration::from_millis(100));
            }
            (line.out.read, line.back.read) == before
        });
        world.wire.ours.run("ip route add fd66::/64 dev wire");
        line.go_on(100_000);
        assert_eq!(service.bring_home(Selector::All).unwrap().failed, 0);
        line.go_on(100_000);
        line.finish();
    });
}

/// A connection that its peer resets in the engine, and that its program still has.
fn end_in_the_engine(world: &World<'_>, service: &Service) -> Line {
    let mut line = world.line(false);
    line.adopt(service);
    let peer = std::mem::replace(&mut line.peer, world.line(false).peer);
    set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
    drop(peer);
    let At::Service(stream) = &line.at else { unreachable!("it was adopted") };
    wait_for("the reset", || (&*stream).read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    line
}

#[test]
fn a_connection_whose_peer_comes_in_by_another_interface_goes_home() {
    need_root!();
    need_program!("clang");
    for ipv6 in [false, true] {
        World::enter(|world| {
            let service = world.service();
            let resets = world.wire.resets();
            let mut line = world.line(ipv6);
            line.adopt(&service);
            line.go_on(100_000);
            world.wire.reroute_peer();
            let begun = Instant::now();
            while line.place() != Place::Kernel {
                line.turn(30_000);
                assert!(begun.elapsed() < LONG, "the connection stands still in the engine");
            }
            let entries = service.list().unwrap();
            assert!(entries.iter().all(|entry| entry.why == "bypassed"), "{entries:?}");
            line.go_on(500_000);
            line.finish();
            assert_eq!(world.wire.resets(), resets);
        });
    }
}

#[test]
fn when_the_engine_is_killed_connections_go_on_in_the_kernel() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let resets = world.wire.resets();
        let mut lines: Vec<_> = (0..10).map(|n| world.line(n % 2 == 0)).collect();
        for line in &mut lines {
            line.adopt(&service);
        }
        for _ in 0..20 {
            lines.iter_mut().for_each(|line| line.turn(30_000));
        }
        kill(world.engine);
        let killed = Instant::now();
        while lines.iter().any(|line| line.place() != Place::Kernel) {
            lines.iter_mut().for_each(|line| line.turn(30_000));
            assert!(killed.elapsed() < Duration::from_secs(1), "the connections are not in the kernel after a second");
        }
        lines.iter_mut().for_each(|line| line.go_on(200_000));
        // There is a new engine, and the connections move to it.
        let begun = Instant::now();
        loop {
            // The engine may be there when the first are requested, or only later.
            let home = lines.iter().filter(|line| line.place() == Place::Kernel).count();
            let tally = service.handoff(Selector::All).unwrap();
            assert_eq!(tally.count, home as u64);
            lines.iter_mut().for_each(|line| line.turn(30_000));
            if lines.iter().all(|line| line.place() == Place::Engine) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "{tally:?}");
        }
        lines.iter_mut().for_each(|line| line.go_on(200_000));
        lines.into_iter().for_each(Line::finish);
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn a_stop_brings_everything_home() {
    need_root!();
    need_program!("clang");
    let mut lines = Vec::new();
    let mut service = None;
    World::enter(|world| {
        let connected = world.service();
        for n in 0..8 {
            let mut line = world.line(n % 2 == 0);
            line.adopt(&connected);
            line.turn(30_000);
            lines.push(line);
        }
        let tally = connected.stop().unwrap();
        assert_eq!((tally.count, tally.failed), (8, 0));
        for line in &mut lines {
            assert_eq!(line.place(), Place::Kernel);
            line.go_on(200_000);
        }
        lines.drain(..).for_each(Line::finish);
        service = Some(connected);
    });
}

#[test]
fn an_engine_that_stands_still_counts_as_dead() {
    need_root!();
    need_program!("clang");
    World::enter_with(
        |config| config.patience = Duration::from_secs(2),
        |world| {
            let service = world.service();
            let mut lines: Vec<_> = (0..4).map(|n| world.line(n % 2 == 0)).collect();
            lines.iter_mut().for_each(|line| line.adopt(&service));
            lines.iter_mut().for_each(|line| line.go_on(100_000));
            kill_process(Pid::from_raw(world.engine as i32).unwrap(), Signal::STOP).unwrap();
            lines.iter_mut().for_each(|line| line.go_on(1_000_000));
            let entries = service.list().unwrap();
            assert!(
                entries.iter().all(|entry| (&*entry.place, &*entry.why) == ("kernel", "engine-hung")),
                "{entries:?}"
            );
            wait_for("another engine", || service.handoff(Selector::All).unwrap().failed == 0);
            lines.iter_mut().for_each(|line| line.go_on(100_000));
            assert!(lines.iter().all(|line| line.place() == Place::Engine));
            lines.into_iter().for_each(Line::finish);
        },
    );
}

#[test]
fn an_upgrade_loses_nothing() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let mut lines: Vec<_> = (0..8).map(|n| world.line(n % 2 == 0)).collect();
        lines.iter_mut().for_each(|line| line.adopt(&service));
        let resets = world.wire.resets();
        for _ in 0..3 {
            lines.iter_mut().for_each(|line| line.go_on(100_000));
            let tally = service.upgrade().unwrap();
            assert_eq!((tally.count, tally.failed), (8, 0), "{tally:?}");
            assert!(tally.pause_us > 0);
            for line in &mut lines {
                assert_eq!(line.place(), Place::Engine);
                line.go_on(100_000);
            }
        }
        let entries = service.list().unwrap();
        assert_eq!(entries.len(), 8);
        assert!(entries.iter().all(|entry| entry.place == "engine" && entry.moves == 7), "{entries:?}");
        lines.into_iter().for_each(Line::finish);
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn what_was_brought_for_an_engine_that_died_is_not_given_to_the_next() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let resets = world.wire.resets();
        let mut channel = world.channel();
        channel.send(HELLO.to_bytes(), Vec::new()).unwrap();
        let (ours, peer) = world.wire.connect(false);
        let first = brought(&mut channel, ours.try_clone().unwrap().into());
        kill(world.engine);
        // The next engine gets this program's memory too, once it has one of its connections.
        let (second, _second_peer) = world.wire.connect(false);
        brought(&mut channel, second.into());
        channel.send(Request::Brought { id: first, taken: true }.to_bytes(), Vec::new()).unwrap();
        wait_for("its way home", || {
            service.list().unwrap().iter().any(|entry| entry.id == first && entry.place == "kernel")
        });
        let mut ramp = Ramp::default();
        wait_for("bytes", || {
            ramp.write(&peer, 1000);
            ramp.read(&ours).expect("the stream has not ended") > 0
        });
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn a_wish_to_have_it_back_that_is_quicker_than_the_engines_word_is_not_forgotten() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let mut channel = world.channel();
        channel.send(HELLO.to_bytes(), Vec::new()).unwrap();
        let (ours, peer) = world.wire.connect(false);
        Ramp::default().write(&peer, 1000);
        let id = brought(&mut channel, ours.into());
        for request in [Request::Brought { id, taken: true }, Request::Restore { id }] {
            channel.send(request.to_bytes(), Vec::new()).unwrap();
        }
        wait_for("its way home", || service.list().unwrap().iter().all(|entry| entry.place == "kernel"));
    });
}

/// Hands a socket over, once there is an engine, up to the point at which its program is to take it
/// in. Returns the connection's number.
#[track_caller]
fn brought(channel: &mut Channel, socket: std::os::fd::OwnedFd) -> u64 {
    let begun = Instant::now();
    let ask = |channel: &mut Channel| {
        let fds = vec![socket.try_clone().unwrap()];
        channel.send(Request::Adopt { seq: 1 }.to_bytes(), fds).unwrap();
    };
    ask(channel);
    loop {
        assert!(begun.elapsed() < Duration::from_secs(10), "the connection is not brought");
        match channel.receive().map(|parcel| Reply::from_bytes(&parcel.expect("the service answers").bytes)) {
            Ok(Some(Reply::Bring { incoming: Incoming { id, .. } })) => return id,
            Ok(Some(Reply::Stays { code, .. })) if code == "no-engine" => {
                std::thread::sleep(Duration::from_millis(20));
                ask(channel);
            }
            Ok(Some(Reply::Welcome { .. } | Reply::Region { .. } | Reply::Dead { .. })) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            other => panic!("{other:?}"),
        }
    }
}

/// The last message of the broker before it closes the channel.
#[track_caller]
fn last_word(channel: &Channel) -> Option<Reply> {
    let (begun, mut last) = (Instant::now(), None);
    loop {
        match channel.receive() {
            Ok(Some(parcel)) => last = Reply::from_bytes(&parcel.bytes),
            Ok(None) => return last,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return last,
            Err(error) => panic!("{error}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "the broker does not close the channel");
    }
}

#[test]
fn a_program_that_makes_no_sense_is_cut_off_and_others_are_not() {
    need_root!();
    need_program!("clang");
    World::with_line(|world, service, mut line| {
        let hello = HELLO.to_bytes();
        let messages: [&[&[u8]]; 6] = [
            &[&[0xff; 40]],
            &[&Request::List { ask: 1 }.to_bytes()],
            &[&Request::Hello { oldest: 77, newest: 99 }.to_bytes()],
            &[&hello, &[2, 1, 2]],
            &[&hello, &Request::Adopt { seq: 1 }.to_bytes()],
            &[&hello, &[9; 4000]],
        ];
        // One that speaks newer versions as well is welcome.
        let mut newer = world.channel();
        newer.send(Request::Hello { oldest: 1, newest: 99 }.to_bytes(), Vec::new()).unwrap();
        let welcome = Reply::Welcome { version: NEWEST };
        wait_for(
            "the welcome",
            || matches!(newer.receive(), Ok(Some(parcel)) if Reply::from_bytes(&parcel.bytes) == Some(welcome.clone())),
        );
        for said in messages {
            let mut channel = world.channel();
            for message in said {
                channel.send(message.to_vec(), Vec::new()).unwrap();
            }
            assert!(matches!(last_word(&channel), Some(Reply::Refused { .. })), "{said:?}");
            line.go_on(10_000);
        }
        // Something that is not a socket, or not a connection, stays; another program's connection
        // is not touched.
        let entries = service.list().unwrap();
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        let mut channel = world.channel();
        channel.send(hello, Vec::new()).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        channel.send(Request::Adopt { seq: 5 }.to_bytes(), vec![file.into()]).unwrap();
        for id in [entry.id, 0, u64::MAX] {
            for request in [
                Request::Close { id },
                Request::Restore { id },
                Request::Brought { id, taken: true },
                Request::LeftBehind { id, unread: 7, unsent: 7 },
                Request::Ready { id, free: true },
            ] {
                channel.send(request.to_bytes(), Vec::new()).unwrap();
            }
        }
        let begun = Instant::now();
        let answer = loop {
            match channel.receive() {
                Ok(Some(parcel)) => match Reply::from_bytes(&parcel.bytes) {
                    Some(Reply::Stays { seq, code, .. }) => break (seq, code),
                    Some(Reply::Welcome { .. }) => {}
                    other => panic!("{other:?}"),
                },
                _ => assert!(begun.elapsed() < Duration::from_secs(5)),
            }
        };
        assert_eq!(answer, (5, "not-tcp".to_owned()));
        line.go_on(100_000);
        assert_eq!(line.place(), Place::Engine);
        line.restore();
        line.go_on(10_000);
        line.finish();
    });
}
