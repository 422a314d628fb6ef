//! A connection moves from one engine to another on the same port, with bytes in flight, unsent and
//! unread.

use crate::ramp_from;
use baton_consumer::adoption::Brought;
use baton_consumer::consumer::{Conn, Consumer, SocketEvent};
use baton_consumer::memory::Memory;
use baton_engine::engine::Engine;
use baton_engine::event::ConnId;
use baton_engine::frame_io::FrameIo;
use baton_engine::region::EngineRegion;
use baton_engine::streamer::{Adopt, ConsumerId, Moved, SuspendError, Suspended};
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use baton_tcp::options::SocketOption;
use baton_tcp::state::State;
use baton_tcp::time::{Duration, Instant};
use std::io::ErrorKind;

const BUFFER: u32 = 64 << 10;
const PROGRAM: ConsumerId = ConsumerId(0);

/// Builds the adoption of a suspended connection with this token.
fn wishes<'a>(token: u64, suspended: &'a Suspended, options: &'a [SocketOption]) -> Adopt<'a> {
    let Suspended { tuple, ref snapshot, ip, .. } = *suspended;
    Adopt { consumer: PROGRAM, token, tuple, snapshot, ip, via: None, options }
}

fn config(address: &str) -> HostConfig {
    let mut config = HostConfig::new(address.parse().unwrap());
    config.consumer.stream_buffer = BUFFER;
    config.engine.tcp.time_wait = Duration::from_millis(100);
    config
}

/// An engine and its consumer.
struct Side {
    engine: Engine,
    consumer: Consumer,
}

impl Side {
    fn new(config: &HostConfig, port: &MemoryPort) -> Side {
        let (region, _) = Memory::Heap.region(config.consumer.layout()).unwrap();
        let mut engine = Engine::new(&config.engine, port.capabilities());
        engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
        Side { engine, consumer: Consumer::new(&config.consumer, region) }
    }
}

/// A peer, and two engines of which `at` has the port.
struct World {
    peer: Host<MemoryPort>,
    port: MemoryPort,
    sides: [Side; 2],
    at: usize,
    now: u64,
}

impl World {
    /// Opens a connection: the peer's end, and ours on the first engine.
    fn open() -> (World, Conn, Conn) {
        World::open_by(|_| {})
    }

    /// The same, with a change to what all three are configured with.
    fn open_by(change: impl Fn(&mut HostConfig)) -> (World, Conn, Conn) {
        let (ours, theirs) = MemoryPort::pair(MemoryOptions::default());
        let config = |address| {
            let mut config = config(address);
            change(&mut config);
            config
        };
        let side = || Side::new(&config("10.0.0.1/24"), &ours);
        let sides = [side(), side()];
        let mut world =
            World { peer: Host::new(&config("10.0.0.2/24"), theirs).unwrap(), port: ours, sides, at: 0, now: 0 };
        world.sides[0].consumer.listen("10.0.0.1:7".parse().unwrap(), 4).unwrap();
        world.steps(2);
        world.peer.connect("10.0.0.1:7".parse().unwrap(), None).unwrap();
        world.steps(50);
        let theirs = std::iter::from_fn(|| world.peer.next_event()).find_map(|event| match event {
            SocketEvent::Opening { conn, .. } => Some(conn),
            _ => None,
        });
        let ours = std::iter::from_fn(|| world.sides[0].consumer.next_event()).find_map(|event| match event {
            SocketEvent::Accepted { conn, .. } => Some(conn),
            _ => None,
        });
        (world, theirs.expect("a connection"), ours.expect("a connection"))
    }

    fn turn(&mut self, time: u64) {
        self.now += time;
        let side = &mut self.sides[self.at];
        side.engine.poll(Instant(self.now), &mut self.port, || 0).unwrap();
        side.consumer.poll(Instant(self.now));
    }

    fn steps(&mut self, count: u32) {
        for _ in 0..count {
            self.turn(50_000);
            self.peer.poll(Instant(self.now)).unwrap();
        }
    }

    fn conn_id(&mut self, conn: Conn) -> ConnId {
        self.sides[self.at].engine.streamer().connection(PROGRAM, conn.0).expect("an open connection")
    }

    fn moved(&mut self) -> Moved {
        for _ in 0..4 {
            if let Some(moved) = self.sides[self.at].engine.streamer().poll_moved() {
                return moved;
            }
            self.turn(1_000);
        }
        panic!("no connection moved");
    }

    /// Suspends our end on the engine that has the port.
    fn suspend(&mut self, conn: Conn) -> Suspended {
        let id = self.conn_id(conn);
        let streamer = self.sides[self.at].engine.streamer();
        let name = streamer.name(id).unwrap();
        streamer.suspend(id, &name).unwrap();
        match self.moved() {
            Moved::Suspended(suspended) => *suspended,
            // A leftover of the previous move to this engine.
            Moved::Adopted { .. } => match self.moved() {
                Moved::Suspended(suspended) => *suspended,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// Moves the port and our end to the other engine. With `late`, the queued bytes arrive after
    /// the engine's announcement.
    fn change_sides(&mut self, conn: Conn, late: bool) -> Conn {
        let suspended = self.suspend(conn);
        let here = &mut self.sides[self.at];
        let send = here.engine.streamer().read_send_queue(&suspended);
        let shut = suspended.snapshot.has_our_fin();
        here.engine.streamer().let_go(Instant(self.now), suspended.conn, &suspended.tuple).unwrap();
        self.turn(1_000);
        let here = &mut self.sides[self.at];
        assert!(here.consumer.stream(conn).unwrap().is_moved());
        let refused = here.consumer.write(conn, b"x").map_err(|error| error.kind());
        assert!(matches!(refused, Err(ErrorKind::NotConnected | ErrorKind::BrokenPipe)), "{refused:?}");
        let left = here.consumer.leave(conn).expect("the connection has moved");
        assert_eq!(left.unsent, [], "the engine had all bytes at the suspension");
        assert_eq!(left.unread.len(), suspended.snapshot.unread_bytes() as usize);
        self.at = 1 - self.at;
        let now = Instant(self.now);
        let there = &mut self.sides[self.at];
        // Drain events of an earlier stay.
        while there.consumer.next_event().is_some() {}
        let adoption = there.consumer.expect_adoption();
        let adopt = wishes(adoption.0, &suspended, &suspended.options);
        there.engine.streamer().adopt(now, &adopt).unwrap();
        let brought = Brought { send, unread: left.unread, shut };
        if !late {
            there.consumer.bring(adoption, brought.clone(), 0).unwrap();
        }
        self.turn(1_000);
        let there = &mut self.sides[self.at];
        if late {
            assert!(there.consumer.next_event().is_none(), "it is not adopted before its bytes are here");
            there.consumer.bring(adoption, brought, 0).unwrap();
        }
        match there.consumer.next_event() {
            Some(SocketEvent::Adopted { conn, .. }) => conn,
            other => panic!("{other:?}"),
        }
    }

    fn ours(&mut self) -> &mut Consumer {
        &mut self.sides[self.at].consumer
    }
}

#[test]
fn every_byte_arrives_once_on_the_other_engine() {
    for (late, unsummed) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut world, theirs, mut ours) = World::open_by(|config| config.engine.tcp.unsummed = unsummed);
        let (mut sent, mut read, mut peer_sent, mut peer_read) = (0u64, 0u64, 0u64, 0u64);
        let mut buf = [0; 9_000];
        // A peer that goes without checksums needs timeouts to learn of the first move, and a move takes
        // from it what arrived beyond a gap.
        let (rounds, often) = if unsummed { (600, 40) } else { (200u64, 2) };
        for round in 0..rounds {
            let data = ramp_from(sent, 7_000);
            sent += world.ours().write(ours, &data).unwrap_or(0) as u64;
            let data = ramp_from(peer_sent, 5_000);
            peer_sent += world.peer.write(theirs, &data).unwrap_or(0) as u64;
            // The number of steps varies, so some rounds leave bytes in flight and some leave
            // unread bytes.
            world.steps((round % 4) as u32);
            world.now += 5_000_000;
            if round % 3 != 0 {
                let count = world.ours().read(ours, &mut buf[..3_000]).unwrap_or(0);
                assert_eq!(buf[..count], ramp_from(read, count));
                read += count as u64;
            }
            let count = world.peer.read(theirs, &mut buf).unwrap_or(0);
            assert_eq!(buf[..count], ramp_from(peer_read, count));
            peer_read += count as u64;
            if round % often == 0 {
                ours = world.change_sides(ours, late);
            }
        }
        world.ours().shutdown(ours).unwrap();
        world.peer.shutdown(theirs).unwrap();
        for round in 0..4_000 {
            world.steps(1);
            while let Ok(count @ 1..) = world.ours().read(ours, &mut buf) {
                assert_eq!(buf[..count], ramp_from(read, count));
                read += count as u64;
            }
            while let Ok(count @ 1..) = world.peer.read(theirs, &mut buf) {
                assert_eq!(buf[..count], ramp_from(peer_read, count));
                peer_read += count as u64;
            }
            // The FIN of each side moves too.
            if round == 3 && world.ours().stream(ours).is_some_and(|stream| !stream.is_closed()) {
                ours = world.change_sides(ours, late);
                let refused = world.ours().write(ours, b"x").map_err(|error| error.kind());
                assert_eq!(refused, Err(ErrorKind::BrokenPipe), "our side has shut down");
            }
        }
        assert!(sent > 300_000 && peer_sent > 300_000, "{sent}, {peer_sent}");
        assert_eq!((peer_read, read), (sent, peer_sent));
        assert!(
            world.ours().stream(ours).unwrap().peer_finished() && world.peer.stream(theirs).unwrap().peer_finished()
        );
    }
}

/// A connection that went without checksums (LA §4.2) goes with them after a move, as it would in the
/// kernel. Its peer finds out, even if the peer alone has something to say: what it sends without
/// is refused, and its second timeout brings them back.
#[test]
fn a_peer_that_left_checksums_out_returns_to_them_after_a_move() {
    for we_speak in [false, true] {
        let (mut world, theirs, ours) = World::open_by(|config| config.engine.tcp.unsummed = true);
        world.peer.write(theirs, &ramp_from(0, 1_000)).unwrap();
        world.steps(10);
        let mut buf = [0; 20_000];
        assert_eq!(world.ours().read(ours, &mut buf).unwrap(), 1_000);
        let ours = world.change_sides(ours, false);
        if we_speak {
            // Its first segment waits for the peer's link address, so it takes a timeout.
            world.ours().write(ours, b"hello").unwrap();
            for _ in 0..100 {
                world.now += 5_000_000;
                world.steps(1);
            }
            assert_eq!(world.peer.read(theirs, &mut buf).unwrap(), 5);
        }
        world.peer.write(theirs, &ramp_from(1_000, 10_000)).unwrap();
        for _ in 0..500 {
            world.now += 5_000_000;
            world.steps(1);
        }
        assert_eq!(world.ours().read(ours, &mut buf).unwrap(), 10_000);
        assert_eq!(buf[..10_000], ramp_from(1_000, 10_000));
        let refused = world.sides[1].engine.streamer().counters().drop_unsummed;
        assert_eq!(refused > 0, !we_speak, "{refused} refused");
    }
}

/// Data that was parked before the consumer supplied the queued bytes is placed once the consumer
/// posts its buffers.
#[test]
fn data_that_arrives_before_the_queues_of_an_adopted_connection_is_reported() {
    let (mut world, theirs, ours) = World::open();
    // The peer has not acknowledged these bytes, so the connection brings them along.
    world.ours().write(ours, &ramp_from(0, 100)).unwrap();
    world.turn(1_000);
    let suspended = world.suspend(ours);
    let here = &mut world.sides[0];
    let send = here.engine.streamer().read_send_queue(&suspended);
    assert_eq!((send.len(), suspended.snapshot.unread_bytes()), (100, 0));
    here.engine.streamer().let_go(Instant(world.now), suspended.conn, &suspended.tuple).unwrap();
    world.turn(1_000);
    world.at = 1;
    let there = &mut world.sides[1];
    let adoption = there.consumer.expect_adoption();
    let adopt = wishes(adoption.0, &suspended, &suspended.options);
    there.engine.streamer().adopt(Instant(world.now), &adopt).unwrap();
    world.turn(1_000);
    world.peer.write(theirs, &ramp_from(0, 50)).unwrap();
    world.steps(10);
    let there = &mut world.sides[1];
    there.consumer.bring(adoption, Brought { send, unread: Vec::new(), shut: false }, 0).unwrap();
    world.steps(10);
    let ours = std::iter::from_fn(|| world.ours().next_event()).find_map(|event| match event {
        SocketEvent::Adopted { conn, .. } => Some(conn),
        _ => None,
    });
    let ours = ours.expect("the adopted connection");
    assert_eq!(world.ours().stream(ours).unwrap().readable(), 50);
    assert_eq!(world.peer.stream(theirs).unwrap().unacknowledged(), 0);
}

/// A connection that has ended may have left its place to another one.
#[test]
fn an_order_for_another_tuple_has_no_effect() {
    let (mut world, _, ours) = World::open();
    let id = world.conn_id(ours);
    let now = Instant(world.now);
    let streamer = world.sides[0].engine.streamer();
    let name = streamer.name(id).unwrap();
    let other = baton_wire::addr::Tuple { remote_port: name.remote_port ^ 1, ..name };
    assert_eq!(streamer.suspend(id, &other), Err(SuspendError::NotOpen));
    assert_eq!(streamer.suspend_unfilled(id, &other), Err(SuspendError::NotOpen));
    assert!(!streamer.reroute(now, id, &other, name.remote));
    let suspended = world.suspend(ours);
    let streamer = world.sides[0].engine.streamer();
    assert_eq!(streamer.resume(id, &other), Err(SuspendError::NotOpen));
    assert_eq!(streamer.let_go(now, id, &other), Err(SuspendError::NotOpen));
    streamer.resume(id, &suspended.tuple).unwrap();
}

#[test]
fn a_suspended_connection_is_silent_and_continues_when_resumed() {
    let (mut world, theirs, ours) = World::open();
    world.ours().write(ours, &ramp_from(0, 1_000)).unwrap();
    let suspended = world.suspend(ours);
    assert_eq!((suspended.tail_pos, suspended.snapshot.state), (1_000, State::Established));
    world.peer.write(theirs, &ramp_from(0, 2_000)).unwrap();
    world.ours().write(ours, &ramp_from(1_000, 500)).unwrap();
    world.ours().shutdown(ours).unwrap();
    // Longer than any timer of a live connection.
    for _ in 0..100 {
        world.turn(50_000_000);
    }
    let streamer = world.sides[0].engine.streamer();
    assert_eq!(streamer.counters().tx_payload_bytes, 0);
    assert_eq!(streamer.suspend(suspended.conn, &suspended.tuple), Err(SuspendError::NotOpen));
    streamer.resume(suspended.conn, &suspended.tuple).unwrap();
    world.steps(100);
    let mut buf = [0; 4_000];
    assert_eq!(world.peer.read(theirs, &mut buf).unwrap(), 1_500);
    assert_eq!(buf[..1_500], ramp_from(0, 1_500));
    assert!(world.peer.stream(theirs).unwrap().peer_finished(), "a request made while suspended is carried out");
    assert_eq!(world.ours().read(ours, &mut buf).unwrap(), 2_000, "data that arrived while suspended was kept");
    assert_eq!(buf[..2_000], ramp_from(0, 2_000));
}

#[test]
fn bytes_written_after_the_suspension_are_left_behind() {
    let (mut world, _, ours) = World::open();
    world.ours().write(ours, &ramp_from(0, 100)).unwrap();
    let suspended = world.suspend(ours);
    world.ours().write(ours, &ramp_from(100, 50)).unwrap();
    let now = Instant(world.now);
    world.sides[0].engine.streamer().let_go(now, suspended.conn, &suspended.tuple).unwrap();
    world.turn(1_000);
    let left = world.ours().leave(ours).expect("the connection has moved");
    assert_eq!((left.unsent, left.unread), (ramp_from(100, 50), Vec::new()));
    // The queue pair is given back.
    world.steps(4);
    assert!(world.ours().stream(ours).is_none());
}

#[test]
fn remains_of_a_closed_connection_are_reported_when_its_queue_pair_goes_back() {
    let (mut world, _, ours) = World::open();
    world.ours().write(ours, &ramp_from(0, 100)).unwrap();
    let suspended = world.suspend(ours);
    world.ours().write(ours, &ramp_from(100, 50)).unwrap();
    world.ours().shutdown(ours).unwrap();
    world.ours().close(ours);
    let now = Instant(world.now);
    let tail_pos = suspended.tail_pos;
    world.sides[0].engine.streamer().let_go(now, suspended.conn, &suspended.tuple).unwrap();
    let parted = (0..4).find_map(|_| {
        world.turn(1_000);
        std::iter::from_fn(|| world.ours().next_event()).find_map(|event| match event {
            SocketEvent::Parted { conn, remains } if conn == ours => Some(remains),
            _ => None,
        })
    });
    let left = parted.expect("the bytes were not reported before").beyond(tail_pos);
    assert_eq!((left.unsent, left.unread, left.shut), (ramp_from(100, 50), Vec::new(), true));
}

#[test]
fn frames_of_a_name_that_went_away_are_not_answered() {
    let (mut world, theirs, ours) = World::open();
    let suspended = world.suspend(ours);
    let now = Instant(world.now);
    world.sides[0].engine.streamer().let_go(now, suspended.conn, &suspended.tuple).unwrap();
    world.peer.write(theirs, b"anybody there?").unwrap();
    world.steps(40);
    let streamer = world.sides[0].engine.streamer();
    assert!(streamer.counters().drop_moving > 0);
    assert!(!world.peer.stream(theirs).unwrap().is_closed(), "the wrong stack must not send a reset");
    // After `unhold`, the tuple is treated like any other.
    world.sides[0].engine.streamer().unhold(&suspended.tuple);
    for _ in 0..100 {
        world.now += 50_000_000;
        world.steps(1);
    }
    assert!(world.peer.stream(theirs).unwrap().is_closed());
}

#[test]
fn frames_kept_before_an_adoption_are_taken_after_it() {
    let (mut world, theirs, ours) = World::open();
    let suspended = world.suspend(ours);
    // The second engine already has the port when data arrives.
    world.at = 1;
    assert!(world.sides[1].engine.streamer().hold(suspended.tuple));
    world.peer.write(theirs, &ramp_from(0, 3_000)).unwrap();
    world.steps(4);
    assert!(world.sides[1].engine.streamer().counters().held_frames > 0);
    let adoption = world.ours().expect_adoption();
    world.ours().bring(adoption, Brought::default(), 0).unwrap();
    let options = [SocketOption::NoDelay(true)];
    let adopt = wishes(adoption.0, &suspended, &options);
    let now = Instant(world.now);
    world.sides[1].engine.streamer().adopt(now, &adopt).unwrap();
    for _ in 0..4 {
        world.turn(1_000);
    }
    let Some(SocketEvent::Adopted { conn, .. }) = world.ours().next_event() else { panic!("not adopted") };
    // The peer sends no further frame.
    let mut buf = [0; 4_000];
    assert_eq!(world.ours().read(conn, &mut buf).unwrap(), 3_000);
    assert_eq!(buf[..3_000], ramp_from(0, 3_000));
}

#[test]
fn adoptions_that_cannot_be() {
    use baton_engine::streamer::AdoptError;
    let (mut world, _, ours) = World::open();
    let suspended = world.suspend(ours);
    let now = Instant(world.now);
    let adopt = wishes(1, &suspended, &[]);
    let here = world.sides[0].engine.streamer();
    assert_eq!(here.adopt(now, &adopt), Err(AdoptError::NameInUse), "the connection is leaving");
    let there = world.sides[1].engine.streamer();
    let elsewhere =
        baton_wire::addr::Tuple { local: "10.9.9.9".parse::<std::net::IpAddr>().unwrap().into(), ..suspended.tuple };
    assert_eq!(there.adopt(now, &Adopt { tuple: elsewhere, ..adopt.clone() }), Err(AdoptError::NoRoute));
    assert_eq!(there.adopt(now, &Adopt { consumer: ConsumerId(9), ..adopt.clone() }), Err(AdoptError::NoQueuePair));
    let mut broken = suspended.snapshot.clone();
    broken.right_edge = broken.rcv_nxt - 1;
    assert!(matches!(
        there.adopt(now, &Adopt { snapshot: &broken, ..adopt.clone() }),
        Err(AdoptError::Inconsistent(_))
    ));
    let many = [SocketOption::NoDelay(true); 9];
    assert_eq!(there.adopt(now, &Adopt { options: &many, ..adopt.clone() }), Err(AdoptError::Options));
    let mut consumer = Consumer::new(&config("10.0.0.1/24").consumer, {
        let (region, _) = Memory::Heap.region(config("10.0.0.1/24").consumer.layout()).unwrap();
        region
    });
    let adoption = consumer.expect_adoption();
    let long = Brought { send: vec![0; consumer.brings_at_most() as usize + 1], ..Brought::default() };
    assert_eq!(consumer.bring(adoption, long, 0).map_err(|error| error.kind()), Err(ErrorKind::InvalidInput));
    consumer.forget_adoption(adoption);
    assert_eq!(consumer.bring(adoption, Brought::default(), 0).map_err(|e| e.kind()), Err(ErrorKind::NotFound));
}
