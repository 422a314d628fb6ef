//! The rule `predict`: short connections stay, and of the long ones those that gain most have the few
//! places.

use crate::common::World;
use baton_client::{Place, Service, Stream, Told};
use baton_policy::Reason;
use baton_policy::places::Prices;
use baton_policy::rules::Rule;
use baton_testkit::{need_program, need_root, wait_for};
use rustix::net::sockopt::set_tcp_nodelay;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

/// A move pays for more than 20 packets.
const PRICES: Prices = Prices { saving_ns: 1_000, move_ns: 20_000 };
/// The service that all connections are to.
const PORT: u16 = 700;
const PLACES: u32 = 2;

fn told(sends: u64, seconds: u64) -> Told {
    Told { accepted: Some(false), age_us: Some(seconds * 1_000_000), sends: Some(sends) }
}

/// A connection to the service, and the peer's end.
fn connect(world: &World<'_>, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let ours = world.wire.ours.enter(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    set_tcp_nodelay(&ours, true).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Sends bytes one by one, each once the one before has arrived.
fn send_each(mut ours: impl Write, peer: &mut TcpStream, count: u8) {
    for byte in 0..count {
        ours.write_all(&[byte]).unwrap();
        let mut got = [0];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(got, [byte], "a byte is lost or repeated");
    }
}

/// Why a connection stays in the kernel now.
#[track_caller]
fn stays(service: &Service, ours: &TcpStream, told: Told) -> String {
    let refused = service.adopt_told(ours.try_clone().unwrap().into(), told);
    refused.err().expect("it stays").to_string()
}

#[track_caller]
fn moves(service: &Service, ours: TcpStream, told: Told) -> Stream {
    service.adopt_told(ours.into(), told).unwrap_or_else(|refused| panic!("{refused}"))
}

fn gave_way(service: &Service) -> usize {
    let code = Reason::GaveWay.code();
    service.list().unwrap().iter().filter(|entry| entry.place == "kernel" && entry.why == code).count()
}

fn enter(f: impl FnOnce(&World<'_>, &TcpListener)) {
    World::enter_with(
        |config| {
            config.policy.otherwise = Rule::Predict(Some(PRICES));
            config.tuning.connections = PLACES;
        },
        |world| {
            let listener = world.wire.peer.enter(|| TcpListener::bind(("10.66.0.2", PORT)).unwrap());
            f(world, &listener);
        },
    );
}

#[test]
fn connections_like_those_that_ended_soon_stay() {
    need_root!();
    need_program!("clang");
    enter(|world, listener| {
        let service = world.service();
        // Nothing is known yet: one that has sent 40 packets is expected to send as many more.
        let (known, _peer) = connect(world, listener);
        drop(moves(&service, known, told(40, 1)));
        for _ in 0..60 {
            let (ours, mut peer) = connect(world, listener);
            send_each(&ours, &mut peer, 45);
        }
        let (ours, mut peer) = connect(world, listener);
        send_each(&ours, &mut peer, 40);
        wait_for("the ends of short connections", || {
            let why = stays(&service, &ours, told(40, 1));
            let ended = why.split("from ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
            ended.is_some_and(|ended| ended >= 60) && why.contains("a move does not pay")
        });
        // It outlives them all.
        let stream = moves(&service, ours, told(400, 1));
        assert_eq!(stream.place(), Place::Engine);
        send_each(&stream, &mut peer, 9);
    });
}

#[test]
fn the_few_places_go_to_those_that_gain_most() {
    need_root!();
    need_program!("clang");
    enter(|world, listener| {
        let service = world.service();
        // Two packets a second each.
        let mut slow: Vec<_> = (0..PLACES)
            .map(|_| {
                let (ours, peer) = connect(world, listener);
                (moves(&service, ours, told(200, 100)), peer)
            })
            .collect();
        // No more than those that are there: nobody gives way.
        let (alike, _alike_peer) = connect(world, listener);
        assert!(stays(&service, &alike, told(200, 100)).contains("as many connections as it may have"));
        sleep(Duration::from_millis(600));
        assert_eq!((gave_way(&service), service.list().unwrap().len()), (0, 2));

        let (fast, mut fast_peer) = connect(world, listener);
        assert!(stays(&service, &fast, told(5_000, 1)).contains("as many connections as it may have"));
        wait_for("a slow connection gives way", || gave_way(&service) == 1);
        // Its place is kept.
        assert!(stays(&service, &alike, told(200, 100)).contains("as many connections as it may have"));
        let fast = moves(&service, fast, told(5_000, 1));
        assert_eq!(fast.place(), Place::Engine);
        send_each(&fast, &mut fast_peer, 100);
        for (stream, peer) in &mut slow {
            send_each(&*stream, peer, 20);
        }
        assert_eq!(slow.iter().filter(|(stream, _)| stream.place() == Place::Kernel).count(), 1);

        // Once there is a place again, it returns. The peer closes first, so no TIME-WAIT has the place.
        drop(fast_peer);
        assert_eq!((&fast).read(&mut [0]).unwrap(), 0);
        drop(fast);
        wait_for("the connection returns", || {
            service.look();
            slow.iter().all(|(stream, _)| stream.place() == Place::Engine)
        });
        for (mut stream, mut peer) in slow {
            send_each(&stream, &mut peer, 20);
            stream.set_nonblocking(true);
            assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    });
}
