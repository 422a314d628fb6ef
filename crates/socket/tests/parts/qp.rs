//! Raw queue pairs: buffers are filled in place, in order and out of order.

use crate::ramp_from;
use baton_consumer::memory::Memory;
use baton_consumer::qp::{QpEvent, QueuePairs};
use baton_engine::engine::Engine;
use baton_engine::frame_io::{Capabilities, FrameIo, FrameSink, PayloadPart, PortError, TxMeta};
use baton_engine::region::{EngineRegion, Layout, PostError};
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::HostConfig;
use baton_tcp::time::Instant;

const LAYOUT: Layout = Layout { qps: 8, queue_depth: 8, requests: 16, data_bytes: 1 << 20 };

/// A port that drops the next frames of a given length on demand.
struct Lossy {
    port: MemoryPort,
    lose: usize,
    longer_than: usize,
}

impl FrameIo for Lossy {
    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }
    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        self.port.receive(limit, sink)
    }
    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        self.port.slot(len)
    }
    fn commit(&mut self, len: usize, meta: TxMeta) {
        if len > self.longer_than && self.lose > 0 {
            self.lose -= 1;
        } else {
            self.port.commit(len, meta);
        }
    }
    fn gather(&mut self, header: &[u8], payload: &[PayloadPart], meta: TxMeta) -> bool {
        self.port.gather(header, payload, meta)
    }
    fn flush(&mut self) -> Result<(), PortError> {
        self.port.flush()
    }
}

struct Side {
    engine: Engine,
    port: Lossy,
    qps: QueuePairs,
    events: Vec<QpEvent>,
}

impl Side {
    fn new(address: &str, port: MemoryPort) -> Side {
        let config = HostConfig::new(address.parse().unwrap());
        let mut engine = Engine::new(&config.engine, port.capabilities());
        let (region, _) = Memory::Heap.region(LAYOUT).unwrap();
        engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
        let port = Lossy { port, lose: 0, longer_than: 200 };
        Side { engine, port, qps: QueuePairs::new(region), events: Vec::new() }
    }

    fn poll(&mut self, now: u64) {
        self.engine.poll(Instant(now), &mut self.port, || 0).unwrap();
        while let Some(event) = self.qps.poll() {
            self.events.push(event);
        }
    }

    fn bytes(&self, offset: u64, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.qps.read(self.qps.extent(offset, len).unwrap(), &mut bytes);
        bytes
    }

    fn received(&self) -> Vec<(u64, u32)> {
        let received = |event: &QpEvent| match event {
            QpEvent::Received { id, buffer, .. } => Some((*id, buffer.len())),
            _ => None,
        };
        self.events.iter().filter_map(received).collect()
    }
}

struct Pair {
    a: Side,
    b: Side,
    now: u64,
}

impl Pair {
    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.now += 50_000;
            self.a.poll(self.now);
            self.b.poll(self.now);
        }
    }

    /// Opens a connection from `a` to `b`.
    fn connect() -> (Pair, u32, u32) {
        let (a, b) = MemoryPort::pair(MemoryOptions::default());
        let mut pair = Pair { a: Side::new("10.0.0.1/24", a), b: Side::new("10.0.0.2/24", b), now: 0 };
        pair.b.qps.listen("10.0.0.2:7".parse().unwrap(), 4, 1).unwrap();
        pair.steps(3);
        pair.a.qps.connect("10.0.0.2:7".parse().unwrap(), 2).unwrap();
        pair.steps(10);
        let client = pair.a.events.iter().find_map(|event| match event {
            QpEvent::Established { qp } => Some(*qp),
            _ => None,
        });
        let server = pair.b.events.iter().find_map(|event| match event {
            QpEvent::Accepted { qp, .. } => Some(*qp),
            _ => None,
        });
        let (client, server) = (client.expect("established"), server.expect("accepted"));
        assert_eq!(pair.b.qps.identity(server).unwrap().local_port, 7);
        pair.a.events.clear();
        pair.b.events.clear();
        (pair, client, server)
    }
}

#[test]
fn each_message_lands_in_its_own_buffer() {
    let (mut pair, client, server) = Pair::connect();
    // Buffers in no order of address.
    for (id, offset) in [(10, 9000), (11, 100), (12, 50_000)] {
        pair.b.qps.post_receive(server, pair.b.qps.extent(offset, 3000).unwrap(), id).unwrap();
    }
    for (id, offset) in [(20, 70_000), (21, 0), (22, 30_000)] {
        let buffer = pair.a.qps.extent(offset, 3000).unwrap();
        pair.a.qps.write(buffer, &ramp_from(id * 1000, 3000));
        pair.a.qps.post_send(client, buffer, id).unwrap();
    }
    pair.steps(20);
    assert_eq!(pair.b.received(), [(10, 3000), (11, 3000), (12, 3000)]);
    assert_eq!(pair.b.bytes(9000, 3000), ramp_from(20_000, 3000));
    assert_eq!(pair.b.bytes(100, 3000), ramp_from(21_000, 3000));
    assert_eq!(pair.b.bytes(50_000, 3000), ramp_from(22_000, 3000));
    let sent = |id| QpEvent::Sent { qp: client, id, acknowledged: true };
    assert_eq!(pair.a.events, [sent(20), sent(21), sent(22)]);
}

#[test]
fn data_out_of_order_is_placed_before_the_hole_is_filled() {
    let (mut pair, client, server) = Pair::connect();
    for (id, offset) in [(1, 0), (2, 10_000)] {
        pair.b.qps.post_receive(server, pair.b.qps.extent(offset, 4000).unwrap(), id).unwrap();
    }
    pair.steps(2);
    let buffer = pair.a.qps.extent(0, 8000).unwrap();
    pair.a.qps.write(buffer, &ramp_from(0, 8000));
    pair.a.port.lose = 1;
    pair.a.qps.post_send(client, buffer, 1).unwrap();
    pair.steps(1);
    // The first segment was lost; the others are already at their final positions.
    assert_eq!((pair.b.received(), pair.b.qps.received(server)), (vec![], 0));
    assert_eq!(pair.b.bytes(0, 1000), [0; 1000]);
    assert_eq!(pair.b.bytes(10_000, 4000), ramp_from(4000, 4000));
    pair.steps(10_000);
    assert_eq!(pair.b.received(), [(1, 4000), (2, 4000)]);
    assert_eq!(pair.b.bytes(0, 4000), ramp_from(0, 4000));
}

#[test]
fn data_waits_for_a_buffer() {
    let (mut pair, client, server) = Pair::connect();
    let buffer = pair.a.qps.extent(0, 500).unwrap();
    pair.a.qps.write(buffer, &ramp_from(0, 500));
    pair.a.qps.post_send(client, buffer, 1).unwrap();
    pair.steps(5);
    assert_eq!(pair.b.received(), []);
    pair.b.qps.post_receive(server, pair.b.qps.extent(0, 500).unwrap(), 1).unwrap();
    pair.steps(5);
    assert_eq!(pair.b.received(), [(1, 500)]);
    assert_eq!(pair.b.bytes(0, 500), ramp_from(0, 500));
}

#[test]
fn the_end_completes_buffers_that_are_not_full() {
    let (mut pair, client, server) = Pair::connect();
    for (id, offset) in [(1, 0), (2, 1000), (3, 2000)] {
        pair.b.qps.post_receive(server, pair.b.qps.extent(offset, 1000).unwrap(), id).unwrap();
    }
    let buffer = pair.a.qps.extent(0, 1700).unwrap();
    pair.a.qps.write(buffer, &ramp_from(0, 1700));
    pair.a.qps.post_send(client, buffer, 1).unwrap();
    pair.a.qps.shutdown(client).unwrap();
    pair.steps(10);
    assert_eq!(pair.b.received(), [(1, 1000), (2, 700), (3, 0)]);
    assert!(pair.b.events.contains(&QpEvent::PeerFinished { qp: server }));
    pair.b.qps.close(server).unwrap();
    pair.steps(10);
    pair.a.qps.close(client).unwrap();
    pair.steps(2_000_000 / 50);
    assert!(pair.b.events.contains(&QpEvent::Released { qp: server }));
    let extent = pair.b.qps.extent(0, 1).unwrap();
    assert_eq!(pair.b.qps.post_send(server, extent, 1), Err(PostError::Full));
}

#[test]
fn a_queue_holds_no_more_than_it_is_deep() {
    let (mut pair, _, server) = Pair::connect();
    let extent = pair.b.qps.extent(0, 100).unwrap();
    for id in 0..8 {
        pair.b.qps.post_receive(server, extent, id).unwrap();
    }
    assert_eq!(pair.b.qps.post_receive(server, extent, 8), Err(PostError::Full));
}

#[test]
fn many_laps_of_small_messages() {
    let (mut pair, client, server) = Pair::connect();
    let (mut posted, mut sent, mut got) = (0u64, 0u64, 0u64);
    // Acknowledgments of so few bytes are delayed by 40 ms, which is 800 steps.
    for _ in 0..60_000 {
        while posted < got + 8 {
            let buffer = pair.b.qps.extent(posted % 8 * 640, 64).unwrap();
            pair.b.qps.post_receive(server, buffer, posted).unwrap();
            posted += 1;
        }
        let buffer = pair.a.qps.extent(sent % 8 * 64, 64).unwrap();
        let acked = pair.a.events.len() as u64;
        if sent < acked + 8 {
            pair.a.qps.write(buffer, &ramp_from(sent, 64));
            pair.a.qps.post_send(client, buffer, sent).unwrap();
            sent += 1;
        }
        pair.steps(1);
        for (id, len) in pair.b.received() {
            assert_eq!((id, len), (got, 64));
            assert_eq!(pair.b.bytes(id % 8 * 640, 64), ramp_from(id, 64));
            got += 1;
        }
        pair.b.events.clear();
        if got >= 300 {
            return;
        }
    }
    panic!("{got} of {sent} arrived");
}

#[test]
fn data_that_precedes_any_buffer_is_handed_out_piece_by_piece() {
    const PIECE: u32 = 300;
    let (mut pair, client, server) = Pair::connect();
    let data = ramp_from(0, 5000);
    let message = pair.a.qps.extent(0, 5000).unwrap();
    pair.a.qps.write(message, &data);
    pair.a.qps.post_send(client, message, 1).unwrap();
    pair.steps(4);
    assert_eq!(pair.b.engine.streamer().reassembly().bytes, 5000, "the data fits the promised window");
    for (id, at) in (0..5000).step_by(PIECE as usize).enumerate() {
        let buffer = pair.b.qps.extent(at, PIECE.min(5000 - at as u32)).unwrap();
        pair.b.qps.post_receive(server, buffer, id as u64).unwrap();
        pair.steps(4);
        assert_eq!(pair.b.received().len(), id + 1, "a new buffer is filled at once from parked data");
    }
    assert_eq!(pair.b.bytes(0, 5000), data);
    assert_eq!(pair.b.engine.streamer().reassembly().bytes, 0);
    assert_eq!(pair.a.engine.streamer().counters().tx_retransmitted_bytes, 0, "nothing was retransmitted");
}
