//! Connections whose both ends are on the service's machine: joined, carried through memory, and home again.

use crate::common::World;
use crate::common::kernels::wait_for;
use crate::ready::Count;
use baton_client::{Place, Service, Stream};
use baton_ipc::message::Selector;
use baton_service::broker::PairUsers;
use baton_testkit::{need_program, need_root};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// Both ends of a connection over an address of this machine.
pub fn ends(world: &World<'_>, address: &str) -> [TcpStream; 2] {
    world.wire.ours.enter(|| {
        let listener = TcpListener::bind(address).unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [ours, listener.accept().unwrap().0]
    })
}

/// Runs `f` with a service that joins both ends of connections.
pub fn enter(f: impl FnOnce(&World<'_>)) {
    World::enter_with(|config| config.pair = PairUsers::Same, f);
}

/// Hands both ends over, each to the service of its program, and waits until they are a pair.
pub fn join(services: [&Service; 2], ends: [TcpStream; 2]) -> [Stream; 2] {
    let [one, other] = ends;
    let streams = [services[0].adopt(one.into()).unwrap(), services[1].adopt(other.into()).unwrap()];
    wait_for("both ends are joined", || streams.iter().all(|stream| stream.place() == Place::Pair));
    streams
}

pub fn talk(streams: &mut [Stream; 2]) {
    for (at, text) in [(0, b"there"), (1, b"again"), (0, b"third")] {
        streams[at].write_all(text).unwrap();
        let mut got = [0; 5];
        streams[1 - at].read_exact(&mut got).unwrap();
        assert_eq!(&got, text);
    }
}

pub fn home(service: &Service, streams: &[Stream; 2]) {
    let moved = service.bring_home(Selector::All).unwrap();
    assert_eq!(moved.failed, 0);
    wait_for("both are home", || streams.iter().all(|stream| stream.place() == Place::Kernel));
}

#[test]
fn both_ends_are_joined_and_come_home_and_lose_nothing() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let ends = ends(world, address);
            (&ends[0]).write_all(b"before").unwrap();
            let mut streams = join([&one, &other], ends);
            let mut got = [0; 6];
            streams[1].read_exact(&mut got).unwrap();
            assert_eq!(&got, b"before");
            talk(&mut streams);
            // Bytes that are unread on the way home are read after it.
            streams[0].write_all(b"unread").unwrap();
            home(&one, &streams);
            streams[1].read_exact(&mut got).unwrap();
            assert_eq!(&got, b"unread");
            talk(&mut streams);
            let moved = one.handoff(Selector::All).unwrap();
            assert_eq!((moved.count, moved.failed), (2, 0));
            wait_for("both are joined again", || streams.iter().all(|stream| stream.place() == Place::Pair));
            talk(&mut streams);
            let [first, second] = streams;
            drop(first);
            let mut second = second;
            assert_eq!(second.read(&mut got).unwrap(), 0);
            drop(second);
            wait_for("nothing is left", || one.list().unwrap().is_empty());
        }
    });
}

#[test]
fn a_thread_looks_for_bytes_by_itself_while_nobody_else_waits() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let mut streams = join([&one, &other], ends(world, "127.0.0.1:0"));
        let mut got = [0; 5];
        let lookout = streams[0].look_out().unwrap();
        assert!(!lookout.is_over());
        streams[1].write_all(b"bytes").unwrap();
        assert!(lookout.is_over());
        streams[0].read_exact(&mut got).unwrap();
        assert!(!lookout.is_over());
        // A watch that begins meanwhile is told.
        let woken = Arc::new(Count::default());
        let watch = streams[0].watch(woken.clone().into());
        assert!(!streams[0].readiness().readable);
        assert!(streams[0].look_out().is_none(), "the watch has to be told");
        let before = woken.0.load(Ordering::SeqCst);
        streams[1].write_all(b"again").unwrap();
        wait_for("the watch is told", || woken.0.load(Ordering::SeqCst) > before);
        streams[0].unwatch(watch);
        streams[0].read_exact(&mut got).unwrap();
        let lookout = streams[0].look_out().unwrap();
        assert!(!lookout.is_over());
        home(&one, &streams);
        assert!(lookout.is_over(), "the connection has left the pair");
        assert!(streams[0].look_out().is_none());
        assert_eq!(one.handoff(Selector::All).unwrap().failed, 0);
        wait_for("both are joined again", || streams.iter().all(|stream| stream.place() == Place::Pair));
        let lookout = streams[0].look_out().unwrap();
        let [_first, second] = streams;
        drop(second);
        wait_for("the end is seen", || lookout.is_over());
    });
}

/// Writes so many bytes at one end and reads them at the other, while the service moves both ends home and to each
/// other again and again.
pub fn cross(service: &Service, [mut writer, mut reader]: [Stream; 2], bytes: usize) {
    let piece: Vec<u8> = (0..1_000_003u32).map(|at| (at % 251) as u8).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = bytes;
            while left > 0 {
                let from = (bytes - left) % piece.len();
                let count = (piece.len() - from).min(left);
                left -= writer.write(&piece[from..from + count]).unwrap();
            }
            writer.shutdown().unwrap();
        });
        let read = scope.spawn(|| {
            let (mut at, mut buf) = (0, vec![0; 70_001]);
            loop {
                let count = reader.read(&mut buf).unwrap();
                if count == 0 {
                    break at;
                }
                for byte in &buf[..count] {
                    assert_eq!(*byte, piece[at % piece.len()], "at {at}");
                    at += 1;
                }
            }
        });
        let mut moves = 0;
        while !read.is_finished() {
            service.bring_home(Selector::All).unwrap();
            service.handoff(Selector::All).unwrap();
            moves += 1;
        }
        assert_eq!(read.join().unwrap(), bytes);
        assert!(moves > 3, "{moves} moves");
    });
}

#[test]
fn a_stream_crosses_many_moves_whole() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        cross(&one, join([&one, &other], ends(world, "127.0.0.1:0")), 64 << 20);
    });
}

#[test]
fn an_end_that_closes_is_seen_as_the_kernel_shows_it() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        // Half-closed: the other direction goes on.
        let [mut first, mut second] = join([&one, &other], ends(world, "127.0.0.1:0"));
        first.write_all(b"last").unwrap();
        first.shutdown().unwrap();
        let mut got = Vec::new();
        second.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"last");
        second.write_all(b"rest").unwrap();
        drop(second);
        got.clear();
        first.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"rest");
        drop(first);
        // Closed with unread bytes: a reset.
        let [mut first, second] = join([&one, &other], ends(world, "127.0.0.1:0"));
        first.write_all(b"unread").unwrap();
        drop(second);
        assert_eq!(first.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(first.write(&[0]).unwrap_err().kind(), ErrorKind::BrokenPipe);
        drop(first);
        // Written to a peer that has closed: the bytes are lost, and a reset follows.
        let [mut first, second] = join([&one, &other], ends(world, "127.0.0.1:0"));
        drop(second);
        first.write_all(b"lost").unwrap();
        assert_eq!(first.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        drop(first);
        wait_for("nothing is left", || one.list().unwrap().is_empty());
    });
}

#[test]
fn a_connection_whose_other_end_does_not_come_is_given_back() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let service = world.service();
        let [ours, mut theirs] = ends(world, "127.0.0.1:0");
        let mut stream = service.adopt(ours.into()).unwrap();
        stream.write_all(b"waits").unwrap();
        let mut got = [0; 5];
        theirs.read_exact(&mut got).unwrap();
        assert_eq!((&got, stream.place()), (b"waits", Place::Kernel));
        wait_for("it is given back", || stream.is_given_back());
        let mut socket = TcpStream::from(stream.take_back().unwrap());
        theirs.write_all(b"plain").unwrap();
        socket.read_exact(&mut got).unwrap();
        thread::sleep(Duration::from_millis(1));
        assert!(service.list().unwrap().is_empty());
    });
}

#[test]
fn a_rule_that_acts_on_its_packets_brings_a_pair_home_and_keeps_it_there() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let ends = ends(world, "127.0.0.1:0");
        let port = ends[1].local_addr().unwrap().port();
        let mut streams = join([&one, &other], ends);
        talk(&mut streams);
        let rule = format!("tcp dport {port} limit rate 100000/second accept;");
        let hook = "type filter hook input priority 0;";
        world.wire.ours.run(&format!("nft table inet t {{ chain c {{ {hook} {rule} }}; }}"));
        wait_for("both are home", || streams.iter().all(|stream| stream.place() == Place::Kernel));
        talk(&mut streams);
        assert_eq!(one.handoff(Selector::All).unwrap().failed, 2);
        talk(&mut streams);
        assert!(streams.iter().all(|stream| stream.place() == Place::Kernel));
        // Without the rule they are joined again.
        world.wire.ours.run("nft delete table inet t");
        wait_for("both are joined", || {
            let _ = one.handoff(Selector::All);
            streams.iter().all(|stream| stream.place() == Place::Pair)
        });
        talk(&mut streams);
    });
}
