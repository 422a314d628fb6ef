//! Two engines on an in-memory wire, driven in turn on one thread by raw queue
//! pairs.

use baton_engine::endpoint::InterfaceConfig;
use baton_engine::engine::{Engine, EngineConfig};
use baton_engine::region::{Completion, ConsumerRegion, EngineRegion, Events, Layout, Queue, Region, Request};
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_tcp::time::Instant;
use baton_wire::addr::Addr;

/// Size of a stream buffer in bytes: a ring that is posted again for each lap.
const RING: u32 = 256 << 10;

/// A host: engine, port and one consumer with one connection.
struct Host {
    engine: Engine,
    port: MemoryPort,
    consumer: ConsumerRegion,
    qp: Option<u32>,
    established: bool,
    laps_sent: u32,
    laps_received: u32,
    posted: u64,
    received: u64,
    acked: u64,
    /// The program's own memory that bytes are copied from and to, if it has any.
    own: Option<Vec<u8>>,
}

impl Host {
    fn new(address: &str, mac: u8, port: MemoryPort, mtu: u16, copied: bool) -> Host {
        let addresses = vec![address.parse().expect("an address")];
        let mut interface = InterfaceConfig::ethernet([2, 0, 0, 0, 0, mac], addresses);
        interface.mtu = mtu;
        let config = EngineConfig::new(interface, [mac; 32]);
        let mut engine = Engine::new(&config, baton_engine::frame_io::FrameIo::capabilities(&port));
        let layout = Layout { qps: 16, queue_depth: 4, requests: 16, data_bytes: 2 * u64::from(RING) };
        let region = Region::heap(layout).expect("a region");
        engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
        Host {
            engine,
            port,
            consumer: ConsumerRegion::new(region),
            qp: None,
            established: false,
            laps_sent: 0,
            laps_received: 0,
            posted: 0,
            received: 0,
            acked: 0,
            own: copied.then(|| vec![5; RING as usize]),
        }
    }

    fn request(&mut self, request: &Request) {
        self.consumer.request(request).expect("the request ring has space");
    }

    /// Runs one turn of the engine and its consumer.
    fn poll(&mut self, now: Instant) -> bool {
        let activity = self.engine.poll(now, &mut self.port, || 0).expect("the wire works");
        while let Some(completion) = self.consumer.poll_completion() {
            match completion {
                Completion::Opened { qp, .. } => self.qp = Some(qp),
                Completion::Accepted { qp, .. } => {
                    self.qp = Some(qp);
                    self.established = true;
                    self.post_receive(qp);
                }
                Completion::Ready { qp, events } => {
                    if events.contains(Events::ESTABLISHED) {
                        self.established = true;
                        self.post_receive(qp);
                    }
                    if events.contains(Events::RECV) {
                        let before = self.received;
                        self.received = self.consumer.qp(qp).rcv_done();
                        self.copy_out(before);
                        self.post_receive(qp);
                    }
                    if events.contains(Events::SEND) {
                        self.acked = self.consumer.qp(qp).snd_done();
                    }
                }
                other => panic!("unexpected {other:?}"),
            }
        }
        !activity.is_idle()
    }

    /// Copies the bytes that arrived since `before` out of the ring, if the program does so.
    fn copy_out(&mut self, before: u64) {
        let Some(own) = &mut self.own else { return };
        let mut at = before;
        while at < self.received {
            let place = (at % u64::from(RING)) as u32;
            let len = (RING - place).min((self.received - at) as u32);
            let extent = self
                .consumer
                .extent(u64::from(RING) + u64::from(place), len)
                .expect("the extent is within the data area");
            self.consumer.read(extent, &mut own[..len as usize]);
            at += u64::from(len);
        }
    }

    /// Keeps the receive ring posted: everything is read at once, so everything is free at once.
    fn post_receive(&mut self, qp: u32) {
        let view = self.consumer.qp(qp);
        let limit = self.received + u64::from(RING);
        while u64::from(self.laps_received) * u64::from(RING) < limit {
            let extent = self.consumer.extent(u64::from(RING), RING).expect("the extent is within the data area");
            view.post(Queue::Receive, self.laps_received, 1, extent).expect("at most two laps are posted");
            self.laps_received += 1;
        }
        view.set_rcv_limit(limit);
        self.consumer.ring_doorbell(qp);
    }

    /// Keeps the send ring full up to `total` bytes of the stream.
    fn feed(&mut self, total: u64) {
        let Some(qp) = self.qp.filter(|_| self.established) else { return };
        let tail = total.min(self.acked + u64::from(RING));
        if tail < self.posted + u64::from(RING) / 8 && tail != total || tail == self.posted {
            return;
        }
        let view = self.consumer.qp(qp);
        while u64::from(self.laps_sent) * u64::from(RING) < tail {
            let extent = self.consumer.extent(0, RING).expect("the extent is within the data area");
            view.post(Queue::Send, self.laps_sent, 1, extent).expect("at most two laps are posted");
            self.laps_sent += 1;
        }
        if let Some(own) = &self.own {
            let mut at = self.posted;
            while at < tail {
                let place = (at % u64::from(RING)) as u32;
                let len = (RING - place).min((tail - at) as u32);
                let extent = self.consumer.extent(u64::from(place), len).expect("the extent is within the data area");
                self.consumer.write(extent, &own[..len as usize]);
                at += u64::from(len);
            }
        }
        view.set_snd_tail(tail);
        self.posted = tail;
        self.consumer.ring_doorbell(qp);
    }
}

/// A client and a server with an open connection between them.
pub struct Pair {
    client: Host,
    server: Host,
    now: u64,
}

impl Pair {
    /// Connects a client and a server. With `copied`, the program keeps its bytes in its own
    /// memory.
    pub fn connected(options: MemoryOptions, copied: bool) -> Pair {
        let (a, b) = MemoryPort::pair(options);
        let mut client = Host::new("10.0.0.1/24", 1, a, options.mtu, copied);
        let mut server = Host::new("10.0.0.2/24", 2, b, options.mtu, copied);
        server.request(&Request::Listen { token: 1, local: Addr::v4([0; 4]), local_port: 80, backlog: 16, options: 0 });
        server.poll(Instant(0));
        client.request(&Request::Connect {
            token: 2,
            local: Addr::UNSPECIFIED,
            local_port: 0,
            remote: Addr::v4([10, 0, 0, 2]),
            remote_port: 80,
            options: 0,
        });
        let mut pair = Pair { client, server, now: 0 };
        while !(pair.client.established && pair.server.established) {
            pair.now += 10_000;
            pair.client.poll(Instant(pair.now));
            pair.server.poll(Instant(pair.now));
            assert!(pair.now < 10_000_000_000, "no connection");
        }
        pair
    }

    /// Sends `total` bytes from client to server.
    pub fn transfer(&mut self, total: u64) {
        let target = self.server.received + total;
        let mut idle = 0;
        while self.server.received < target {
            self.now += 2_000;
            self.client.feed(target);
            let busy = self.client.poll(Instant(self.now)) | self.server.poll(Instant(self.now));
            idle = if busy { 0 } else { idle + 1 };
            if idle > 1000 {
                // Nothing happened, so let time pass.
                self.now += 1_000_000;
            }
            assert!(idle < 1_000_000, "stuck at {} of {target}", self.server.received);
        }
    }
}
