//! Points of time of watched connections, over an in-memory wire: every layer is there, nothing counts
//! twice, and a layer that is slow is the one that the table names.

use crate::host::Pair;
use baton_consumer::clock;
use baton_consumer::consumer::{Conn, SocketEvent};
use baton_consumer::memory::{SharedWatch, WatchReader};
use baton_engine::frame_io::{
    Arrival, Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta,
};
use baton_engine::streamer::WatchError;
use baton_latency::{Direction, Layer, SLOTS, Table, WatchMemory};
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use baton_socket::stack::{Stack, Threads};
use baton_tcp::time::Instant;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

/// How long a slow layer takes: many times what the others take together, also on a busy machine.
const SLOW: Duration = Duration::from_millis(20);
const MESSAGES: u64 = 10;

/// Sends `count` messages of `size` bytes from `a` to `b`, one after the other.
fn send<P: FrameIo>(pair: &mut Pair<P>, conns: (Conn, Conn), count: u64, size: usize, before: &Before) {
    let (mut buf, message) = (vec![0; size], vec![7; size]);
    for _ in 0..count {
        assert_eq!(pair.a.write(conns.0, &message).unwrap(), size);
        let mut got = 0;
        while got < size {
            (before.first_poll)();
            pair.poll_a();
            (before.second_poll)();
            pair.poll_b();
            (before.read)();
            while let Ok(more @ 1..) = pair.b.read(conns.1, &mut buf) {
                got += more;
            }
        }
        // The acknowledgment goes back.
        pair.step();
    }
}

/// Calls before the sender's poll, the receiver's, and the read.
struct Before {
    first_poll: fn(),
    second_poll: fn(),
    read: fn(),
}

const NOTHING: Before = Before { first_poll: || {}, second_poll: || {}, read: || {} };

/// A pair with spans of its client and its server.
fn watched<P: FrameIo>(mut pair: Pair<P>) -> (Pair<P>, (Conn, Conn), [Arc<WatchMemory>; 2]) {
    let conns = pair.connect();
    let memories = [WatchMemory::heap(), WatchMemory::heap()];
    pair.a.watch(memories[0].clone());
    pair.b.watch(memories[1].clone());
    pair.a.watch_connection(conns.0).unwrap();
    pair.b.watch_connection(conns.1).unwrap();
    (pair, conns, memories)
}

fn between(table: &Table, direction: Direction) -> f64 {
    table.rows(direction).iter().find(|row| row.name == "between").expect("a row").share
}

/// The row with the largest share, `between` included, but no row that no sum counts.
fn slowest(table: &Table, direction: Direction) -> &'static str {
    let aside = [Layer::SegmentCopy.name(), Layer::DecideBeside.name(), "whole"];
    let rows = table.rows(direction).into_iter().filter(|row| !aside.contains(&row.name));
    rows.max_by(|a, b| a.share.total_cmp(&b.share)).expect("rows").name
}

#[test]
fn every_message_is_in_every_layer_once_and_no_time_counts_twice() {
    for size in [64, 1000, 20_000] {
        let (mut pair, conns, [sender, receiver]) = watched(stamped());
        send(&mut pair, conns, 300, size, &NOTHING);
        assert_eq!((sender.missed(), receiver.missed()), (0, 0), "{size} bytes");

        let table = sender.all();
        let of = |layers: &[Layer]| layers.iter().map(|layer| table.layer(*layer).sum).sum::<u64>();
        for layer in Layer::ALL.into_iter().filter(|layer| layer.direction() == Direction::Transmit) {
            assert_eq!(table.layer(layer).count, 300, "{} of {size} bytes", layer.name());
        }
        let parts = [Layer::Write, Layer::SendQueue, Layer::Segment, Layer::Output, Layer::SendDevice];
        assert!(of(&parts) <= table.layer(Layer::Transmit).sum, "{size} bytes");
        assert!(table.layer(Layer::SegmentCopy).sum < table.layer(Layer::Segment).sum);
        assert!(table.rows(Direction::Receive).is_empty());

        let table = receiver.all();
        let of = |layers: &[Layer]| layers.iter().map(|layer| table.layer(*layer).sum).sum::<u64>();
        let runs = table.layer(Layer::Receive).count;
        assert!((300..=300 * 15).contains(&runs), "{runs} of {size} bytes");
        let stack = [Layer::ReceiveDevice, Layer::Parse, Layer::Lookup, Layer::Place, Layer::Tell];
        for layer in stack.into_iter().chain([Layer::WakeUp, Layer::Read, Layer::Stack]) {
            assert_eq!(table.layer(layer).count, runs, "{} of {size} bytes", layer.name());
        }
        // The first bytes wait for a buffer, by order of the TCE.
        let decided = [Layer::Decide, Layer::DecideBeside].map(|layer| table.layer(layer).count);
        assert!(decided[0] >= 1 && decided[0] + decided[1] == runs, "{decided:?} of {runs}");
        assert!(of(&stack) + of(&[Layer::Decide]) <= table.layer(Layer::Stack).sum);
        // The two halves of the way meet.
        let halves = of(&[Layer::Stack, Layer::WakeUp, Layer::Read]) as f64;
        let whole = table.layer(Layer::Receive).sum as f64;
        assert!((halves / whole - 1.0).abs() < 0.02, "{halves} of {whole} ns");
        assert!((0.0..1.0).contains(&between(&table, Direction::Receive)));
    }
}

#[test]
fn a_slow_layer_is_the_one_that_the_table_names() {
    let nothing = || {};
    let slow = || sleep(SLOW);
    let cases = [
        ("send-queue", Direction::Transmit, Before { first_poll: slow, ..NOTHING }),
        ("receive-device", Direction::Receive, Before { second_poll: slow, ..NOTHING }),
        ("wake-up", Direction::Receive, Before { read: slow, first_poll: nothing, ..NOTHING }),
    ];
    for (name, direction, before) in cases {
        let (mut pair, conns, [sender, receiver]) = watched(stamped());
        send(&mut pair, conns, MESSAGES, 500, &before);
        let table = if direction == Direction::Transmit { sender.all() } else { receiver.all() };
        assert_eq!(slowest(&table, direction), name);
        let whole = table.layer(Layer::whole(direction)).sum;
        assert!(whole >= MESSAGES * SLOW.as_nanos() as u64, "{whole} ns");
    }
}

/// A port on one end of a wire that is slow where it is told to be, and that stamps what arrives as a network
/// card would: when it was put on the wire.
struct Device {
    port: MemoryPort,
    commit: Duration,
    flush: Duration,
    committed: bool,
    /// When each frame was sent that is on its way here, and to the other end.
    here: Stamps,
    there: Stamps,
}

type Stamps = Arc<Mutex<VecDeque<Arrival>>>;

impl Device {
    fn pair(options: MemoryOptions) -> (Device, Device) {
        let (a, b) = MemoryPort::pair(options);
        let (to_a, to_b) = (Stamps::default(), Stamps::default());
        let device = |port, here: &Stamps, there: &Stamps| Device {
            port,
            commit: Duration::ZERO,
            flush: Duration::ZERO,
            committed: false,
            here: here.clone(),
            there: there.clone(),
        };
        (device(a, &to_a, &to_b), device(b, &to_b, &to_a))
    }
}

/// Adds to each frame when it arrived.
struct Stamping<'s, S> {
    sink: &'s mut S,
    stamps: &'s Stamps,
}

impl<S: FrameSink> FrameSink for Stamping<'_, S> {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        let mut stamps = self.stamps.lock().unwrap();
        let stamped: Vec<_> = frames
            .iter()
            .map(|frame| RxFrame { meta: RxMeta { arrived: stamps.pop_front().unwrap(), ..frame.meta }, ..*frame })
            .collect();
        self.sink.burst(&stamped);
    }
}

impl FrameIo for Device {
    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        self.port.receive(limit, &mut Stamping { sink, stamps: &self.here })
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        self.port.slot(len)
    }

    fn commit(&mut self, len: usize, meta: TxMeta) {
        sleep(self.commit);
        self.committed = true;
        self.there.lock().unwrap().push_back(Arrival::at(clock::monotonic()));
        self.port.commit(len, meta);
    }

    fn gather(&mut self, header: &[u8], payload: &[PayloadPart], meta: TxMeta) -> bool {
        self.port.gather(header, payload, meta)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if std::mem::take(&mut self.committed) {
            sleep(self.flush);
        }
        self.port.flush()
    }
}

/// A pair of hosts whose devices stamp what arrives.
fn stamped() -> Pair<Device> {
    let (a, b) = Device::pair(MemoryOptions::default());
    Pair::over(a, b)
}

#[test]
fn a_throttled_device_is_named_where_it_holds_a_message_up() {
    for (name, commit, flush) in [("output", SLOW, Duration::ZERO), ("send-device", Duration::ZERO, SLOW)] {
        let (mut pair, conns, [sender, _]) = watched(stamped());
        (pair.a.port().commit, pair.a.port().flush) = (commit, flush);
        send(&mut pair, conns, MESSAGES, 500, &NOTHING);
        assert_eq!(slowest(&sender.all(), Direction::Transmit), name);
    }
}

#[test]
fn a_full_wire_is_waited_for_in_the_send_queue() {
    let (mut pair, conns, [sender, _]) = watched(Pair::new(MemoryOptions::default().frames(2)));
    let (mut buf, message) = (vec![0; 10_000], vec![7; 10_000]);
    for _ in 0..MESSAGES {
        pair.a.write(conns.0, &message).unwrap();
        pair.poll_a();
        // The wire holds two of the seven segments.
        sleep(SLOW);
        let mut got = 0;
        while got < message.len() {
            pair.step();
            while let Ok(more @ 1..) = pair.b.read(conns.1, &mut buf) {
                got += more;
            }
        }
        pair.step();
    }
    let table = sender.all();
    assert_eq!(table.layer(Layer::Transmit).count, MESSAGES);
    assert_eq!(slowest(&table, Direction::Transmit), "send-queue");
}

#[test]
fn nothing_is_recorded_of_what_is_not_watched() {
    let mut pair = Pair::new(MemoryOptions::default());
    let conns = pair.connect();
    let memory = WatchMemory::heap();
    assert_eq!(pair.a.watch_connection(conns.0), Err(WatchError::NoMemory));
    pair.a.watch(memory.clone());
    assert_eq!(pair.a.watch_connection(Conn(77)), Err(WatchError::NoConnection));
    let empty = Table::default();
    send(&mut pair, conns, 20, 100, &NOTHING);
    assert_eq!((memory.all(), memory.changes()), (empty, 0));

    pair.a.watch_connection(conns.0).unwrap();
    send(&mut pair, conns, 20, 100, &NOTHING);
    let seen = memory.all();
    assert_eq!(seen.layer(Layer::Transmit).count, 20);
    pair.a.engine().streamer().unwatch_connection(baton_engine::streamer::ConsumerId(0), conns.0.0);
    send(&mut pair, conns, 20, 100, &NOTHING);
    assert_eq!(memory.all(), seen);
    pair.a.watch_connection(conns.0).unwrap();
    pair.a.unwatch();
    send(&mut pair, conns, 20, 100, &NOTHING);
    assert_eq!(memory.all(), seen);
    assert!(memory.slots().iter().all(|slot| slot.queue_pair().is_none()));
}

#[test]
fn a_reader_sees_each_connection_also_after_its_end() {
    let shared = SharedWatch::create().unwrap();
    let reader = WatchReader::open(&shared.as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert!(reader.connections().is_empty());
    let mut pair = Pair::new(MemoryOptions::default());
    pair.b.watch(shared.memory().clone());
    pair.b.watch_all().unwrap();
    for round in 1..=3 {
        let conns = if round == 1 { pair.connect() } else { pair.open() };
        assert_eq!(reader.connections().len() as u64, round - 1, "all are watched together so far");
        pair.b.watch_connection(conns.1).unwrap();
        send(&mut pair, conns, 5 * round, 100, &NOTHING);
        let seen = reader.connections();
        let live: Vec<_> = seen.iter().filter(|connection| connection.live).collect();
        assert_eq!((seen.len() as u64, live.len()), (round, 1));
        assert_eq!(live[0].local, "10.0.0.2:7".parse().unwrap());
        assert_eq!(live[0].remote.ip(), "10.0.0.1".parse::<std::net::IpAddr>().unwrap());
        assert_eq!(live[0].table.layer(Layer::Receive).count, 5 * round);
        pair.a.close(conns.0);
        pair.b.close(conns.1);
        (0..100).for_each(|_| pair.step());
        assert!(reader.connections().iter().all(|connection| !connection.live));
    }
    assert_eq!(reader.all().layer(Layer::Receive).count, 5 + 10 + 15);
    assert_eq!(reader.missed(), 0);
}

#[test]
fn no_more_connections_are_watched_than_there_are_slots() {
    let mut pair = Pair::new(MemoryOptions::default());
    let memory = WatchMemory::heap();
    pair.b.watch(memory.clone());
    pair.b.watch_all().unwrap();
    let first = pair.connect();
    let rest: Vec<_> = (0..SLOTS).map(|_| pair.open()).collect();
    let last = rest[SLOTS - 1];
    assert_eq!(pair.b.watch_connection(last.1), Err(WatchError::Full));
    send(&mut pair, last, 5, 100, &NOTHING);
    assert_eq!(memory.all().layer(Layer::Receive).count, 0);
    pair.a.close(first.0);
    pair.b.close(first.1);
    (0..100).for_each(|_| pair.step());
    pair.b.watch_connection(last.1).unwrap();
    send(&mut pair, last, 5, 100, &NOTHING);
    assert_eq!(memory.all().layer(Layer::Receive).count, 5);
}

/// The times that both ways' layers were counted, which all have the same number; `Decide` aside, which only some
/// messages pass, and `Answer`.
fn counted(table: &Table, direction: Direction) -> u64 {
    let whole = table.layer(Layer::whole(direction)).count;
    let of_way = |layer: &Layer| layer.direction() == direction;
    for layer in Layer::ALL.into_iter().filter(of_way) {
        if !matches!(layer, Layer::Decide | Layer::DecideBeside | Layer::ReceiveDevice | Layer::Answer) {
            assert_eq!(table.layer(layer).count, whole, "{}", layer.name());
        }
    }
    whole
}

#[test]
fn one_message_in_so_many_stands_for_the_others() {
    const ONE_IN: u32 = 8;
    let mut pair = Pair::new(MemoryOptions::default());
    let [sender, receiver] = [WatchMemory::heap(), WatchMemory::heap()];
    pair.a.watch(sender.clone());
    pair.b.watch(receiver.clone());
    pair.a.watch_some(ONE_IN).unwrap();
    pair.b.watch_some(ONE_IN).unwrap();
    let (together, alone) = (pair.connect(), pair.open());
    pair.b.watch_connection(alone.1).unwrap();
    let both = |pair: &mut Pair<MemoryPort>| {
        for _ in 0..40 {
            send(pair, together, 50, 100, &NOTHING);
            send(pair, alone, 50, 100, &NOTHING);
        }
    };
    both(&mut pair);
    assert_eq!((sender.missed(), receiver.missed()), (0, 0));
    let near = |count: u64, exact: u64| count.abs_diff(exact) < exact / 6 && count.is_multiple_of(ONE_IN.into());
    let sent = counted(&sender.all(), Direction::Transmit);
    assert!(near(sent, 4000), "{sent} for 4000");
    // The one with spans of its own has every message in them, and in those of all.
    let slots = receiver.slots().iter().filter(|slot| slot.is_alone()).collect::<Vec<_>>();
    assert_eq!(slots.len(), 1);
    assert_eq!(counted(&slots[0].table(), Direction::Receive), 2000);
    let received = counted(&receiver.all(), Direction::Receive);
    assert!(near(received - 2000, 2000), "{received} for 4000");

    // Every message again, of connections that are open as well.
    pair.a.watch_all().unwrap();
    pair.b.watch_all().unwrap();
    let before = [sender.all(), receiver.all()];
    both(&mut pair);
    assert_eq!(sender.all().layer(Layer::Transmit).count - before[0].layer(Layer::Transmit).count, 4000);
    assert_eq!(receiver.all().layer(Layer::Receive).count - before[1].layer(Layer::Receive).count, 4000);
    assert_eq!((sender.missed(), receiver.missed()), (0, 0));
}

#[test]
fn a_program_that_breaks_the_rings_spoils_its_own_spans_only() {
    let (mut pair, conns, [sender, receiver]) = watched(Pair::new(MemoryOptions::default()));
    let stamps = |end, first, last| baton_latency::Stamps { end, first, last };
    for slot in [sender.slot(0).unwrap(), receiver.slot(0).unwrap()] {
        for end in [0, 1, u64::MAX, 5_000] {
            slot.sent.put(&stamps(end, u64::MAX, 0));
            slot.told.put(&stamps(end, u64::MAX, 0));
        }
    }
    send(&mut pair, conns, 50, 1000, &NOTHING);
    assert_eq!(pair.b.stream(conns.1).unwrap().received_total(), 50_000);
}

#[test]
fn threads_that_sleep_and_wake_are_in_the_spans_of_a_stack() {
    for threads in [Threads::One, Threads::Two] {
        let (a, b) = MemoryPort::wakeable_pair(MemoryOptions::default()).unwrap();
        let memories = [WatchMemory::heap(), WatchMemory::heap()];
        let stack = |address: &str, port, memory: &Arc<WatchMemory>| {
            let mut config = HostConfig::new(address.parse().unwrap());
            config.watch = Some(memory.clone());
            Stack::spawn(&config, port, threads).unwrap()
        };
        let (a, b) = (stack("10.0.0.1/24", a, &memories[0]), stack("10.0.0.2/24", b, &memories[1]));
        let listener = b.listen("10.0.0.2:7".parse().unwrap()).unwrap();
        let (accepted, is_accepted) = std::sync::mpsc::channel();
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            accepted.send(()).unwrap();
            let mut buf = [0; 64];
            while stream.read_exact(&mut buf).is_ok() {
                stream.write_all(&buf).unwrap();
            }
        });
        let mut stream = a.connect("10.0.0.2:7".parse().unwrap()).unwrap();
        // Bytes that come with the end of the handshake come before the connection is watched.
        is_accepted.recv().unwrap();
        for _ in 0..200 {
            stream.write_all(&[1; 64]).unwrap();
            stream.read_exact(&mut [0; 64]).unwrap();
        }
        drop(stream);
        echo.join().unwrap();
        for memory in memories {
            let table = memory.all();
            assert_eq!(memory.missed(), 0);
            for layer in [Layer::Transmit, Layer::SendQueue, Layer::Receive, Layer::WakeUp, Layer::Stack] {
                assert_eq!(table.layer(layer).count, 200, "{} with {threads:?}", layer.name());
            }
            let decided = [Layer::Decide, Layer::DecideBeside].map(|layer| table.layer(layer).count);
            assert_eq!(decided.iter().sum::<u64>(), 200, "{threads:?}");
        }
    }
}

/// A message over TAP, whose other end is the kernel: as many as the kernel sent, and in the same layers.
#[test]
fn messages_of_the_kernel_over_a_tap_are_in_every_layer() {
    use baton_port::{Tap, TapOptions, link};
    use baton_testkit::{Netns, need_root};
    need_root!();
    for options in [TapOptions::new(), TapOptions::new().vnet_hdr(false)] {
        let netns = Netns::new("watched");
        let tap = netns.enter(|| {
            let tap = Tap::open("tap%d", options).unwrap();
            link::set_up(tap.name()).unwrap();
            tap
        });
        netns.run(&format!("ip addr add 10.77.0.1/24 dev {}", tap.name()));
        let mut config = HostConfig::new("10.77.0.2/24".parse().unwrap());
        let memory = WatchMemory::heap();
        config.watch = Some(memory.clone());
        let mut host = Host::new(&config, tap).unwrap();
        host.listen("10.77.0.2:7".parse().unwrap(), 4).unwrap();
        let (accepted, is_accepted) = std::sync::mpsc::channel();
        let rounds = std::thread::spawn(move || {
            netns.enter(move || {
                let mut stream = std::net::TcpStream::connect("10.77.0.2:7").unwrap();
                stream.set_nodelay(true).unwrap();
                // Bytes that come with the end of the handshake come before the connection is watched.
                is_accepted.recv().unwrap();
                let mut took = Duration::ZERO;
                for _ in 0..200 {
                    let started = std::time::Instant::now();
                    stream.write_all(&[1; 300]).unwrap();
                    stream.read_exact(&mut [0; 300]).unwrap();
                    took += started.elapsed();
                }
                took
            })
        });
        let started = std::time::Instant::now();
        let mut buf = [0; 300];
        while !rounds.is_finished() && started.elapsed() < Duration::from_secs(60) {
            host.poll(Instant(started.elapsed().as_nanos() as u64)).unwrap();
            while let Some(event) = host.next_event() {
                if matches!(event, SocketEvent::Accepted { .. }) {
                    accepted.send(()).unwrap();
                }
                let SocketEvent::Ready { conn } = event else { continue };
                while let Ok(count @ 1..) = host.read(conn, &mut buf) {
                    assert_eq!(host.write(conn, &buf[..count]).unwrap(), count);
                }
            }
        }
        let kernel = rounds.join().unwrap().as_nanos() as u64;
        let table = memory.all();
        assert_eq!((table.layer(Layer::Receive).count, memory.missed()), (200, 0));
        let sum = |layer| table.layer(layer).sum;
        let parts = [Layer::Parse, Layer::Lookup, Layer::Place, Layer::Decide, Layer::Tell];
        assert!(parts.into_iter().map(sum).sum::<u64>() <= sum(Layer::Stack));
        let halves = (sum(Layer::Stack) + sum(Layer::WakeUp) + sum(Layer::Read)) as f64;
        assert!((halves / sum(Layer::Receive) as f64 - 1.0).abs() < 0.02);
        // The kernel's round trips hold ours, but for the calls in which it overtakes us.
        let ours = sum(Layer::Receive) + sum(Layer::Transmit) - sum(Layer::Output) - sum(Layer::SendDevice);
        assert!(ours < kernel, "{ours} ns of {kernel}");
        assert_eq!(table.layer(Layer::Transmit).count, 200);
    }
}
