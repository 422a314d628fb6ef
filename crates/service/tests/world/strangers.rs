//! Programs that send any message, send any descriptor, and do not read.

use crate::common::kernels::wait_for;
use crate::common::{Line, World};
use baton_client::{Place, Service};
use baton_ipc::channel::{Channel, Parcel};
use baton_ipc::message::{Incoming, Reply, Request, Selector};
use baton_ipc::queues::write_queues;
use baton_ipc::version::HELLO;
use baton_testkit::{need_program, need_root};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::set_thread_uid;
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;

pub(crate) fn greet(world: &World<'_>) -> Channel {
    let mut channel = world.channel();
    say(&mut channel, &HELLO, Vec::new());
    channel
}

pub(crate) fn say(channel: &mut Channel, request: &Request, fds: Vec<OwnedFd>) {
    let _ = channel.send(request.to_bytes(), fds);
}

/// The next message; `None` at the end.
#[track_caller]
pub(crate) fn next(channel: &mut Channel) -> Option<(Reply, Vec<OwnedFd>)> {
    let begun = Instant::now();
    loop {
        let _ = channel.flush();
        match channel.receive() {
            Ok(Some(Parcel { bytes, fds })) => return Some((Reply::from_bytes(&bytes).expect("a reply"), fds)),
            Ok(None) => return None,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "the broker sends nothing");
    }
}

/// A connection in our namespace to itself, which does not use the wire.
fn local(world: &World<'_>) -> (TcpStream, TcpStream) {
    world.wire.ours.enter(|| {
        let listener = TcpListener::bind("10.66.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    })
}

/// A descriptor of each kind that is not a connection that can move.
fn strange(world: &World<'_>) -> Vec<(&'static str, OwnedFd)> {
    let inside = |make: fn() -> OwnedFd| world.wire.ours.enter(make);
    let opened = |path: &str| open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    let pair = |kind| socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap().0;
    vec![
        ("a file", opened("/proc/self/exe")),
        ("a directory", opened("/")),
        ("a device", opened("/dev/zero")),
        ("a pipe", pipe),
        ("a unix stream", pair(SocketType::STREAM)),
        ("a unix socket of messages", pair(SocketType::SEQPACKET)),
        ("a datagram socket", inside(|| UdpSocket::bind("10.66.0.1:0").unwrap().into())),
        ("a listener", inside(|| TcpListener::bind("10.66.0.1:0").unwrap().into())),
        ("an epoll", epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()),
        ("an eventfd", eventfd(0, EventfdFlags::CLOEXEC).unwrap()),
        ("memory", memfd_create("stranger", MemfdFlags::CLOEXEC).unwrap()),
        ("a connection to itself", local(world).0.into()),
    ]
}

#[test]
fn descriptors_of_other_kinds_stay_what_they_are() {
    need_root!();
    need_program!("clang");
    World::with_line(|world, _, mut line| {
        let mut channel = greet(world);
        assert!(matches!(next(&mut channel), Some((Reply::Welcome { .. }, _))));
        for (seq, (what, fd)) in strange(world).into_iter().enumerate() {
            let seq = seq as u64 + 1;
            say(&mut channel, &Request::Adopt { seq }, vec![fd]);
            match next(&mut channel) {
                Some((Reply::Stays { seq: of, .. }, _)) if of == seq => {}
                other => panic!("{what}: {other:?}"),
            }
            line.go_on(3_000);
        }
        // The files of another program's region are not connections either, and only one of many
        // descriptors in a message counts.
        let many: Vec<OwnedFd> = strange(world).into_iter().map(|(_, fd)| fd).collect();
        say(&mut channel, &Request::Adopt { seq: 99 }, many);
        assert!(matches!(next(&mut channel), Some((Reply::Stays { seq: 99, .. }, _))));
        line.go_on(10_000);
        line.finish();
    });
}

#[test]
fn only_memory_is_read_from() {
    need_root!();
    need_program!("clang");
    World::with_line(|world, service, mut line| {
        for (what, fd) in strange(world).into_iter().filter(|(what, _)| *what != "memory") {
            let mut channel = greet(world);
            // The program has a connection, and is asked which bytes it holds of it.
            let (ours, _peer) = world.wire.connect(false);
            let id = hand_over(&mut channel, ours.into());
            in_engine(service, id);
            say(&mut channel, &Request::Restore { id }, Vec::new());
            loop {
                match next(&mut channel) {
                    Some((Reply::Stand { .. }, _)) => break,
                    Some(_) => {}
                    None => panic!("cut off"),
                }
            }
            say(&mut channel, &Request::LeftBehind { id, unread: 100, unsent: 100 }, vec![fd]);
            match next(&mut channel) {
                Some((Reply::Refused { .. }, _)) => {}
                other => panic!("{what}: {other:?}"),
            }
            line.go_on(3_000);
        }
        line.finish();
    });
}

/// Waits until the engine has the connection.
pub(crate) fn in_engine(service: &Service, id: u64) {
    wait_for("the engine", || service.list().unwrap().iter().any(|entry| entry.id == id && entry.place == "engine"));
}

/// Hands a connection over, and reports that it was taken in. Returns its number.
#[track_caller]
fn hand_over(channel: &mut Channel, socket: OwnedFd) -> u64 {
    say(channel, &Request::Adopt { seq: 7 }, vec![socket]);
    loop {
        match next(channel) {
            Some((Reply::Bring { incoming: Incoming { id, .. } }, _)) => {
                say(channel, &Request::Brought { id, taken: true }, Vec::new());
                return id;
            }
            Some((Reply::Welcome { .. } | Reply::Region { .. }, _)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_socket_that_lingers_does_not_hold_the_service_up() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let mut channel = greet(world);
        let mut peers = Vec::new();
        for seq in 1..=3 {
            let (mut ours, peer) = local(world);
            peers.push(peer);
            ours.set_nonblocking(true).unwrap();
            while ours.write(&[7; 1 << 16]).is_ok_and(|count| count > 0) {}
            set_socket_linger(&ours, Some(Duration::from_secs(15))).unwrap();
            // The message contains its last descriptor.
            say(&mut channel, &Request::Adopt { seq }, vec![ours.into()]);
        }
        let begun = Instant::now();
        for _ in 0..10 {
            service.list().unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_user_whose_descriptors_close_slowly_is_heard_later_and_one_whose_do_not_is_cut_off() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        // Closing waits until the peer has read everything, but for at most this long.
        let lingering = |time| {
            let (mut ours, peer) = local(world);
            ours.set_nonblocking(true).unwrap();
            while ours.write(&[7; 1 << 16]).is_ok_and(|count| count > 0) {}
            set_socket_linger(&ours, Some(time)).unwrap();
            (OwnedFd::from(ours), peer)
        };
        let send = |channel: &mut Channel, time, peers: &mut Vec<TcpStream>| {
            let (first, peer) = lingering(Duration::from_secs(time));
            peers.push(peer);
            say(channel, &Request::Adopt { seq: 0 }, vec![first]);
            (1..600).for_each(|seq| say(channel, &Request::Adopt { seq }, vec![world_file()]));
        };
        let (mut peers, mut slow) = (Vec::new(), greet(world));
        assert!(matches!(next(&mut slow), Some((Reply::Welcome { .. }, _))));
        send(&mut slow, 1, &mut peers);
        for expected in 0..600 {
            match next(&mut slow) {
                Some((Reply::Stays { seq, .. }, _)) => assert_eq!(seq, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
        let (mut never, mut stayed) = (greet(world), 0);
        assert!(matches!(next(&mut never), Some((Reply::Welcome { .. }, _))));
        loop {
            if stayed % 600 == 0 {
                // A process that another test is about to start briefly has every descriptor. A
                // descriptor that it closes last is closed here at once, and has to be sent again.
                assert!(stayed < 6000, "the program is served all the time");
                send(&mut never, 60, &mut peers);
            }
            match next(&mut never) {
                Some((Reply::Refused { text }, _)) => {
                    assert_eq!(text, "descriptors that this user sent earlier cannot be closed");
                    break;
                }
                Some(_) => stayed += 1,
                None => panic!("cut off without a reason"),
            }
        }
        // The program may do everything else.
        assert!(service.list().unwrap().is_empty());
    });
}

/// The memory that this process uses, in bytes. The broker is one of its threads.
fn resident() -> u64 {
    let words = std::fs::read_to_string("/proc/self/statm").unwrap();
    words.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn floods_do_not_keep_others_waiting_nor_fill_the_memory() {
    need_root!();
    need_program!("clang");
    World::with_line(|world, service, mut line| {
        line.go_on(100_000);
        let before = resident();
        let mut flooders: Vec<Channel> = (0..4).map(|_| greet(world)).collect();
        let mut cut_off = 0;
        for round in 0..200 {
            for (number, channel) in flooders.iter_mut().enumerate() {
                for _ in 0..100 {
                    let request = match number {
                        0 => Request::List { ask: 1 },
                        1 => Request::Handoff { ask: 1, which: Selector::Port(1) },
                        2 => Request::Adopt { seq: 1 },
                        _ => Request::Restore { id: 1 },
                    };
                    let fds = if number == 2 { vec![world_file()] } else { Vec::new() };
                    // Nobody reads the answers.
                    if channel.send(request.to_bytes(), fds).is_err() {
                        cut_off += 1;
                        break;
                    }
                }
            }
            if round % 20 == 0 {
                assert_eq!(service.list().unwrap().len(), 1);
                line.go_on(1_000);
            }
        }
        assert!(cut_off > 0, "a program that does not read is cut off in the end");
        drop(flooders);
        let grown = resident().saturating_sub(before);
        assert!(grown < 64 << 20, "{grown} bytes more than before");
        line.go_on(100_000);
        line.finish();
    });
}

fn world_file() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

#[test]
fn a_program_that_does_not_answer_is_not_waited_for() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        // This program never reports that it took the connection in, so the connection is in the
        // kernel again.
        let mut mute = greet(world);
        let (ours, _peer) = world.wire.connect(false);
        let own = ours.try_clone().unwrap();
        say(&mut mute, &Request::Adopt { seq: 3 }, vec![ours.into()]);
        // This program never reports that nobody uses the descriptor.
        let mut deaf = greet(world);
        let (other, _other_peer) = world.wire.connect(false);
        let id = hand_over(&mut deaf, other.into());
        in_engine(&service, id);
        assert!(service.bring_home(Selector::All).unwrap().count >= 1);
        let tally = service.handoff(Selector::All).unwrap();
        assert_eq!((tally.count, tally.failed), (1, 1));
        let stays = loop {
            match next(&mut mute) {
                Some((Reply::Stays { seq, code, .. }, _)) => break (seq, code),
                Some(_) => {}
                None => panic!("cut off"),
            }
        };
        assert_eq!(stays, (3, "program-silent".to_owned()));
        (&own).write_all(b"an ordinary socket").unwrap();
    });
}

/// Sends requests of all kinds about anything, with anything.
fn babble(channel: &mut Channel, random: &mut fastrand::Rng, ids: &[u64]) -> bool {
    let id = if random.bool() { ids[random.usize(..ids.len())] } else { random.u64(..100) };
    let (unread, unsent) = (random.u32(..) >> random.u32(..32), random.u32(..) >> random.u32(..32));
    let which = if random.bool() { Selector::All } else { Selector::Port(random.u16(..)) };
    let request = match random.u32(..14) {
        0 => Request::Adopt { seq: random.u64(..4) },
        1 => Request::Brought { id, taken: random.bool() },
        2 => Request::Ready { id, free: random.bool() },
        3 => Request::Restore { id },
        4 => Request::LeftBehind { id, unread, unsent },
        5 => Request::PutBack { id, unread, unsent },
        6 => Request::Close { id },
        7 => Request::List { ask: 1 },
        8 => Request::Handoff { ask: 1, which },
        9 => Request::Home { ask: 1, which },
        10 => Request::Info { id },
        11 => HELLO,
        12 if random.u32(..20) == 0 => Request::Stop { ask: 1 },
        _ => Request::Restore { id },
    };
    let mut bytes = request.to_bytes();
    if random.u32(..30) == 0 {
        bytes.truncate(random.usize(..bytes.len()) + 1);
    }
    let fds = match random.u32(..8) {
        0 => vec![world_file()],
        1 => write_queues(&[1; 1000], &[2; 1000]).unwrap().into_iter().collect(),
        2 => vec![channel.as_fd().try_clone_to_owned().unwrap()],
        _ => Vec::new(),
    };
    channel.send(bytes, fds).is_ok()
}

#[test]
fn another_user_who_says_anything_learns_nothing_and_harms_nobody() {
    need_root!();
    need_program!("clang");
    World::enter_with(
        |config| (config.mode, config.users) = (0o666, vec![NOBODY]),
        |world| {
            let service = world.service();
            let mut lines: Vec<_> = (0..3).map(|n| world.line(n % 2 == 0)).collect();
            lines.iter_mut().for_each(|line| line.adopt(&service));
            let entries = service.list().unwrap();
            let ids: Vec<u64> = entries.iter().map(|entry| entry.id).collect();
            let listener = world.wire.peer.enter(|| TcpListener::bind("10.66.0.2:0").unwrap());
            let address = listener.local_addr().unwrap();
            let (mut own_ids, mut peers) = (0, Vec::new());
            for seed in 1..=25 {
                // A socket belongs to the user who creates it.
                let (mut channel, socket) = world.wire.ours.enter(|| {
                    set_thread_uid(rustix::process::Uid::from_raw(NOBODY)).unwrap();
                    (greet(world), TcpStream::connect(address).unwrap())
                });
                peers.push(listener.accept().unwrap());
                // Another user's socket is not taken.
                let (roots, _peer) = world.wire.connect(false);
                say(&mut channel, &Request::Adopt { seq: 1 }, vec![roots.into()]);
                let own = hand_over_after_refusal(&mut channel, socket.into());
                own_ids += u64::from(!ids.contains(&own));
                let mut random = fastrand::Rng::with_seed(seed);
                while random.u32(..400) > 0 && babble(&mut channel, &mut random, &ids) {
                    while let Ok(Some(Parcel { bytes, .. })) = channel.receive() {
                        learns_nothing(&Reply::from_bytes(&bytes).expect("a reply"), &ids);
                    }
                }
                lines.iter_mut().for_each(|line| line.go_on(3_000));
            }
            assert_eq!(own_ids, 25);
            let after = service.list().unwrap();
            for id in &ids {
                let entry = after.iter().find(|entry| entry.id == *id).expect("the connection is listed");
                assert_eq!((entry.place.as_str(), entry.moves), ("engine", 1), "nobody moved it");
            }
            assert!(lines.iter().all(|line| line.place() == Place::Engine));
            lines.into_iter().for_each(Line::finish);
        },
    );
}

/// Checks that a reply reveals nothing about other programs' connections.
fn learns_nothing(reply: &Reply, others: &[u64]) {
    let about = match reply {
        Reply::Entry { entry } => entry.id,
        Reply::Bring { incoming: Incoming { id, .. } }
        | Reply::Prepare { id }
        | Reply::Stand { id, .. }
        | Reply::Home { id, .. }
        | Reply::Gone { id, .. }
        | Reply::Info { id, .. }
        | Reply::Stays { id, .. } => *id,
        _ => return,
    };
    assert!(!others.contains(&about), "{reply:?}");
}

/// Like [`hand_over`], after requests that have to be refused.
#[track_caller]
fn hand_over_after_refusal(channel: &mut Channel, socket: OwnedFd) -> u64 {
    loop {
        match next(channel) {
            Some((Reply::Stays { code, .. }, _)) => {
                assert_eq!(code, "not-yours");
                return hand_over(channel, socket);
            }
            Some((Reply::Welcome { .. }, _)) => {}
            other => panic!("{other:?}"),
        }
    }
}
