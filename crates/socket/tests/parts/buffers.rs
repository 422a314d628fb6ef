//! Buffers of idle connections return to the pool and are taken again when data moves; fast streams
//! have larger ones.

use crate::ramp;
use baton_consumer::consumer::{Conn, Consumer, IDLE_LOOK, SocketEvent};
use baton_engine::engine::Engine;
use baton_port::faulty::{Faults, Faulty};
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use baton_tcp::time::{Duration, Instant};
use std::io::ErrorKind;

/// Size of a small buffer in bytes.
const SMALL: usize = 8 << 10;
const LARGE: usize = 64 << 10;

/// Number of connections that can have large buffers in both directions.
const LARGE_PAIRS: usize = 2;

/// A host whose engine runs twice for each time its consumer polls. So an action of the test
/// happens after an answer was given, and the engine sees it before the consumer sees that answer.
struct End {
    engine: Engine,
    port: Faulty<MemoryPort>,
    consumer: Consumer,
}

/// Two hosts, and a clock that advances in steps.
struct World {
    ends: [End; 2],
    now: u64,
    step: Duration,
}

/// A connection: its number at either end, and the progress of each direction.
struct Talk {
    conns: [Conn; 2],
    written: [u64; 2],
    read: [u64; 2],
}

impl World {
    fn new(faults: Option<Faults>, connections: u32, step: Duration) -> World {
        let (a, b) = MemoryPort::pair(MemoryOptions::default());
        let host = |number: u8, port| {
            let mut config = HostConfig::new(format!("10.0.0.{number}/24").parse().unwrap());
            config.consumer.stream_buffer = SMALL as u32;
            config.consumer.large_buffer = LARGE as u32;
            config.consumer.large_buffers = 2 * LARGE_PAIRS as u32;
            config.consumer.stream_buffers = 2 * connections + 2;
            config.consumer.connections = connections + 1;
            config.engine.tcp.time_wait = Duration::from_millis(1);
            let host =
                Host::new(&config, Faulty::new(port, faults.map(|faults| Faults { seed: number.into(), ..faults })))
                    .unwrap();
            let (engine, port, consumer) = host.into_parts();
            End { engine, port, consumer }
        };
        World { ends: [host(1, a), host(2, b)], now: 0, step }
    }

    fn step(&mut self) {
        self.now += self.step.0;
        for end in &mut self.ends {
            end.engine.poll(Instant(self.now), &mut end.port, || 0).unwrap();
            end.consumer.poll(Instant(self.now));
            end.engine.poll(Instant(self.now), &mut end.port, || 0).unwrap();
            assert_eq!(end.engine.streamer().counters().hostile_consumer, 0);
        }
    }

    /// Opens `count` connections from the first end to the second.
    fn connect(&mut self, count: usize) -> Vec<Talk> {
        self.ends[1].consumer.listen("10.0.0.2:7".parse().unwrap(), 4096).unwrap();
        self.step();
        let (mut asked, mut opened, mut accepted) = (0, Vec::new(), Vec::new());
        for _ in 0..100_000 {
            if asked < count && self.ends[0].consumer.connect("10.0.0.2:7".parse().unwrap(), None).is_ok() {
                asked += 1;
            }
            self.step();
            while let Some(event) = self.ends[0].consumer.next_event() {
                if let SocketEvent::Opening { conn, .. } = event {
                    opened.push(conn);
                }
            }
            while let Some(event) = self.ends[1].consumer.next_event() {
                if let SocketEvent::Accepted { conn, .. } = event {
                    accepted.push(conn);
                }
            }
            if accepted.len() == count {
                return self.pair_up(opened, accepted);
            }
        }
        panic!("{} of {count} connections", accepted.len());
    }

    fn pair_up(&self, opened: Vec<Conn>, accepted: Vec<Conn>) -> Vec<Talk> {
        let port = |conn: &Conn| self.ends[0].consumer.identity(*conn).unwrap().local_port;
        let mut opened: Vec<_> = opened.into_iter().map(|conn| (port(&conn), conn)).collect();
        opened.sort_unstable();
        let talk = |server: Conn| {
            let port = self.ends[1].consumer.identity(server).unwrap().remote_port;
            let at = opened.binary_search_by_key(&port, |(port, _)| *port).unwrap();
            Talk { conns: [opened[at].1, server], written: [0; 2], read: [0; 2] }
        };
        accepted.into_iter().map(talk).collect()
    }

    /// Writes as much of `len` bytes as fits at one end.
    fn write(&mut self, talk: &mut Talk, from: usize, len: u64) {
        let at = talk.written[from];
        let data: Vec<u8> = (at..at + len).map(ramp).collect();
        match self.ends[from].consumer.write(talk.conns[from], &data) {
            Ok(count) => talk.written[from] += count as u64,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    /// Reads all available bytes at one end. Returns true at the end of the stream.
    fn read(&mut self, talk: &mut Talk, at: usize) -> bool {
        let mut buf = [0; 3000];
        loop {
            match self.ends[at].consumer.read(talk.conns[at], &mut buf) {
                Ok(0) => return true,
                Ok(count) => {
                    for byte in &buf[..count] {
                        assert_eq!(*byte, ramp(talk.read[at]), "at {}", talk.read[at]);
                        talk.read[at] += 1;
                    }
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    return false;
                }
            }
        }
    }

    /// Runs until every written byte has been read at both ends of every connection. Reads only
    /// connections reported as ready, because reading others would take buffers.
    fn settle(&mut self, talks: &mut [Talk]) {
        for _ in 0..1_000_000 {
            self.step();
            for at in 0..2 {
                for talk in talks.iter_mut().filter(|talk| talk.read[at] != talk.written[1 - at]) {
                    self.read(talk, at);
                }
                while self.ends[at].consumer.next_event().is_some() {}
            }
            if talks.iter().all(|talk| (talk.read[0], talk.read[1]) == (talk.written[1], talk.written[0])) {
                return;
            }
        }
        panic!("bytes are missing");
    }

    /// Lets time pass without any activity.
    fn idle(&mut self, span: Duration) {
        for _ in 0..span.0.div_ceil(self.step.0) {
            self.step();
        }
    }

    /// Writes and reads in both directions of all connections, for `steps` steps.
    fn bustle(&mut self, talks: &mut [Talk], steps: usize) {
        for _ in 0..steps {
            for talk in talks.iter_mut() {
                for at in 0..2 {
                    self.write(talk, at, LARGE as u64);
                    self.read(talk, at);
                }
            }
            self.step();
        }
    }

    /// Number of connections with large send buffers at both ends, once all bytes are read and
    /// acknowledged.
    fn large(&mut self, talks: &mut [Talk]) -> usize {
        // For one lap, a connection that changes from a small to a large buffer uses both.
        for _ in 0..2 * LARGE / 1000 {
            self.settle(talks);
            self.idle(Duration::from_millis(50));
            let mut passing = false;
            for talk in talks.iter_mut() {
                for at in 0..2 {
                    if ![SMALL, LARGE].contains(&self.ends[at].consumer.writable(talk.conns[at])) {
                        self.write(talk, at, 1000);
                        passing = true;
                    }
                }
            }
            if !passing {
                break;
            }
        }
        let is_large = |talk: &&Talk| {
            (0..2).all(|at| {
                let room = self.ends[at].consumer.writable(talk.conns[at]);
                assert!(room == SMALL || room == LARGE, "{room}");
                room == LARGE
            })
        };
        talks.iter().filter(is_large).count()
    }

    fn in_use(&self) -> [usize; 2] {
        [0, 1].map(|at| self.ends[at].consumer.buffers_in_use())
    }
}

#[test]
fn a_thousand_idle_connections_hold_no_buffer_and_go_on() {
    const COUNT: usize = 1000;
    let mut world = World::new(None, COUNT as u32, Duration::from_micros(200));
    let mut talks = world.connect(COUNT);
    // Not a multiple of the buffer's size, so rings are given back and taken in the middle.
    for round in 0..4 {
        for talk in &mut talks {
            world.write(talk, 0, 3001);
            world.write(talk, 1, 1777);
        }
        let busy = world.in_use();
        assert!(busy[0] >= COUNT && busy[1] >= COUNT, "{busy:?} in round {round}");
        world.settle(&mut talks);
        world.idle(Duration(3 * IDLE_LOOK.0));
        assert_eq!(world.in_use(), [0, 0], "in round {round}");
    }
    assert!(talks.iter().all(|talk| talk.read == [4 * 1777, 4 * 3001]));
}

#[test]
fn bytes_written_while_a_request_is_pending_arrive() {
    let mut world = World::new(None, 1, Duration::from_millis(2));
    let mut talks = world.connect(1);
    let most = 2 * IDLE_LOOK.0 / world.step.0 + 10;
    for pause in 0..most {
        world.idle(Duration(pause * world.step.0));
        world.write(&mut talks[0], 0, 1 + pause * 13);
        world.write(&mut talks[0], 1, 1 + pause * 7);
        world.settle(&mut talks);
    }
}

#[test]
fn bytes_written_and_closed_while_a_request_is_pending_arrive() {
    let step = Duration::from_millis(2);
    let most = 2 * IDLE_LOOK.0 / step.0 + 10;
    for pause in (IDLE_LOOK.0 / step.0 / 2)..most {
        let mut world = World::new(None, 1, step);
        let mut talk = world.connect(1).remove(0);
        world.write(&mut talk, 0, 100);
        world.settle(std::slice::from_mut(&mut talk));
        world.idle(Duration(pause * step.0));
        world.write(&mut talk, 0, 5000);
        if pause % 2 == 0 {
            world.ends[0].consumer.close(talk.conns[0]);
        } else {
            world.ends[0].consumer.shutdown(talk.conns[0]).unwrap();
        }
        let ended = (0..1000).any(|_| {
            world.step();
            world.read(&mut talk, 1)
        });
        assert!(ended && talk.read[1] == 5100, "{} bytes after a pause of {pause}", talk.read[1]);
    }
}

#[test]
fn a_buffer_that_the_engine_did_not_see_before_it_was_asked_for_is_seen_after() {
    let mut world = World::new(None, 1, Duration::from_millis(1));
    let mut talk = world.connect(1).remove(0);
    world.write(&mut talk, 0, 500);
    // The data is parked. The consumer is told and posts a buffer. Then the engine stands still
    // while two checks find nothing.
    while world.in_use()[1] == 0 {
        world.now += world.step.0;
        for end in &mut world.ends {
            end.engine.poll(Instant(world.now), &mut end.port, || 0).unwrap();
            end.consumer.poll(Instant(world.now));
        }
    }
    for _ in 0..3 {
        world.now += IDLE_LOOK.0;
        world.ends[1].consumer.poll(Instant(world.now));
    }
    world.idle(Duration::from_millis(50));
    let stream = world.ends[1].consumer.stream(talk.conns[1]).unwrap();
    assert_eq!(stream.readable(), 500);
}

#[test]
fn bytes_that_were_not_read_stay_and_keep_their_buffer() {
    let mut world = World::new(None, 1, Duration::from_millis(1));
    let mut talk = world.connect(1).remove(0);
    world.write(&mut talk, 0, 500);
    world.idle(Duration(4 * IDLE_LOOK.0));
    assert_eq!(world.in_use(), [0, 1]);
    world.settle(std::slice::from_mut(&mut talk));
    world.idle(Duration(3 * IDLE_LOOK.0));
    assert_eq!(world.in_use(), [0, 0]);
}

#[test]
fn pauses_and_losses_change_no_byte() {
    for seed in 0..6 {
        let faults = Faults { loss: 0.05, reorder: 0.05, dup: 0.02, ..Faults::default() };
        let mut world = World::new(Some(faults), 8, Duration::from_millis(1));
        let mut talks = world.connect(8);
        let mut dice = fastrand::Rng::with_seed(seed);
        for _ in 0..40 {
            for talk in &mut talks {
                if dice.bool() {
                    world.write(talk, dice.usize(..2), dice.u64(1..=9000));
                }
            }
            world.idle(Duration::from_millis(dice.u64(..450)));
            if dice.bool() {
                world.settle(&mut talks);
            }
        }
        world.settle(&mut talks);
        world.idle(Duration::from_secs(3));
        assert_eq!(world.in_use(), [0, 0], "seed {seed}");
    }
}

/// Number of steps in which two rounds of checks pass.
const TWO_LOOKS: usize = 2 * (IDLE_LOOK.0 / 1_000_000) as usize + 2;

#[test]
fn a_fast_stream_has_a_large_buffer_until_it_is_idle() {
    let mut world = World::new(None, 1, Duration::from_millis(1));
    let mut talks = world.connect(1);
    for _ in 0..3 {
        world.bustle(&mut talks, 3);
        assert_eq!(world.large(&mut talks), 0, "it is not yet known to be fast");
        world.bustle(&mut talks, TWO_LOOKS);
        assert_eq!(world.large(&mut talks), 1);
        // The window grows too, except for a part that is too small for an update.
        world.write(&mut talks[0], 0, LARGE as u64);
        world.idle(Duration::from_millis(30));
        let readable = world.ends[1].consumer.stream(talks[0].conns[1]).unwrap().readable();
        assert!(readable >= LARGE - LARGE / 8, "{readable}");
        world.settle(&mut talks);
        world.idle(Duration(3 * IDLE_LOOK.0));
        assert_eq!((world.in_use(), world.large(&mut talks)), ([0, 0], 0));
    }
}

#[test]
fn a_slow_stream_keeps_its_small_buffer() {
    let mut world = World::new(None, 1, Duration::from_millis(1));
    let mut talks = world.connect(1);
    for _ in 0..60 {
        // One and a half laps between two checks.
        for _ in 0..4 {
            world.write(&mut talks[0], 0, 3000);
            world.settle(&mut talks);
            world.idle(Duration(IDLE_LOOK.0 / 4));
        }
        assert_eq!(world.large(&mut talks), 0);
    }
}

#[test]
fn a_stream_without_a_large_buffer_keeps_its_small_one() {
    for faults in [None, Some(Faults { loss: 0.02, reorder: 0.05, dup: 0.02, ..Faults::default() })] {
        let mut world = World::new(faults, 6, Duration::from_millis(1));
        let mut talks = world.connect(6);
        for _ in 0..4 {
            world.bustle(&mut talks, 3 * TWO_LOOKS);
            let large = world.large(&mut talks);
            assert!(large <= 2 * LARGE_PAIRS, "{large} with {faults:?}");
            world.idle(Duration::from_secs(3));
            assert_eq!(world.in_use(), [0, 0]);
        }
    }
}

/// Held-back bytes leave with the bytes that follow, for all positions of laps and ring sizes.
#[test]
fn held_back_bytes_leave_with_the_next_ones() {
    let mut world = World::new(None, 1, Duration::from_micros(200));
    let mut talks = world.connect(1);
    let conn = talks[0].conns[0];
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..400 {
        let before = talks[0].written[0];
        for _ in 0..random.usize(1..6) {
            let at = talks[0].written[0];
            let data: Vec<u8> = (at..at + random.u64(1..3000)).map(ramp).collect();
            match world.ends[0].consumer.write_more(conn, &data) {
                Ok(count) => talks[0].written[0] += count as u64,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        world.idle(Duration::from_millis(2));
        world.read(&mut talks[0], 1);
        assert_eq!(talks[0].read[1], before, "round {round}: held-back bytes must not be sent");
        if random.bool() {
            world.write(&mut talks[0], 0, 1);
        }
        // A write that finds no space does not tell the engine.
        world.ends[0].consumer.push(conn);
        world.settle(&mut talks);
        if round == 100 {
            world.bustle(&mut talks, 2000);
            world.settle(&mut talks);
        }
    }
    // The end of the stream follows the held-back bytes.
    world.ends[0].consumer.write_more(conn, &[ramp(talks[0].written[0])]).unwrap();
    talks[0].written[0] += 1;
    world.ends[0].consumer.shutdown(conn).unwrap();
    world.settle(&mut talks);
    world.idle(Duration::from_millis(50));
    assert!(world.read(&mut talks[0], 1));
}
