//! A hostile consumer of a whole engine, beside an honest one.
//!
//! ```text
//!   hostile consumer --\                          /-- sink and source of everything
//!                       engine A ==== wire ==== engine B
//!   honest consumer  --/                          \-- checks the honest stream
//! ```
//!
//! Bytes of the script scribble over the hostile region while both engines are
//! polled. Afterwards the honest stream, which shared engine A with it all the
//! time, has to be whole and to go on: a bad consumer loses its own connections
//! and nothing else.

use super::region_unsafe::{Hostage, LAYOUT, Script};
use baton_engine::endpoint::InterfaceConfig;
use baton_engine::engine::{Engine, EngineConfig};
use baton_engine::frame_io::{
    BURST, Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta,
};
use baton_engine::region::{Completion, ConsumerRegion, EngineRegion, Events, Layout, Queue, Region, Request};
use baton_tcp::time::Instant;
use baton_wire::addr::Addr;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Bytes of an honest stream's buffer: laps of a ramp of prime length.
const LAP: u32 = 251 * 16;

type Frames = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// An end of a wire that carries bare IP packets and loses none.
struct Wire {
    inbox: Frames,
    outbox: Frames,
    slot: Vec<u8>,
}

impl FrameIo for Wire {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new(1500);
        capabilities.ethernet = false;
        capabilities
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let mut inbox = self.inbox.borrow_mut();
        let count = inbox.len().min(limit);
        let taken: Vec<Vec<u8>> = inbox.drain(..count).collect();
        let frames: Vec<_> = taken.iter().map(|data| RxFrame { data, meta: RxMeta::default() }).collect();
        frames.chunks(BURST).for_each(|burst| sink.burst(burst));
        Ok(count)
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.outbox.borrow().len() >= 4 * BURST {
            return None;
        }
        self.slot.resize(len, 0);
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize, _meta: TxMeta) {
        self.outbox.borrow_mut().push_back(self.slot[..len].to_vec());
    }

    fn gather(&mut self, _header: &[u8], _payload: &[PayloadPart], _meta: TxMeta) -> bool {
        false
    }

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }
}

/// An engine at its end of the wire.
struct Host {
    engine: Engine,
    wire: Wire,
}

impl Host {
    fn new(address: &str, seed: u8, inbox: &Frames, outbox: &Frames) -> Host {
        let addresses = vec![address.parse().expect("an address")];
        let mut interface = InterfaceConfig::ethernet([2, 0, 0, 0, 0, seed], addresses);
        interface.ethernet = false;
        let mut config = EngineConfig::new(interface, [seed; 32]);
        (config.max_connections, config.ring_entries) = (32, 256);
        let wire = Wire { inbox: Rc::clone(inbox), outbox: Rc::clone(outbox), slot: Vec::new() };
        Host { engine: Engine::new(&config, wire.capabilities()), wire }
    }

    fn poll(&mut self, now: u64) {
        self.engine.poll(Instant(now), &mut self.wire, || 0).expect("the wire holds");
    }
}

/// An honest consumer that keeps a send ring full and a receive ring empty on
/// every queue pair that it is given.
struct Honest {
    side: ConsumerRegion,
    pairs: Vec<Pair>,
}

struct Pair {
    qp: u32,
    laps: [u32; 2],
    read: u64,
    remote_port: u16,
    ramp: bool,
}

impl Honest {
    fn new(host: &mut Host) -> Honest {
        let layout = Layout { qps: 8, queue_depth: 4, requests: 8, data_bytes: 9 * u64::from(LAP) };
        let region = Region::heap(layout).expect("a layout that can be");
        host.engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
        let side = ConsumerRegion::new(region);
        let ramp: Vec<u8> = (0..LAP).map(|at| (at % 251) as u8).collect();
        side.write(side.extent(0, LAP).expect("the first lap"), &ramp);
        Honest { side, pairs: Vec::new() }
    }

    fn poll(&mut self) {
        while let Some(completion) = self.side.poll_completion() {
            match completion {
                Completion::Opened { qp, token: 2 } | Completion::Accepted { qp, .. } => {
                    let remote_port = self.side.qp(qp).identity().remote_port;
                    self.pairs.push(Pair { qp, laps: [0; 2], read: 0, remote_port, ramp: true });
                }
                Completion::Ready { qp, events } if events.contains(Events::CLOSED) => {
                    self.side.request(&Request::Close { qp }).expect("a few requests");
                    self.pairs.retain(|pair| pair.qp != qp);
                }
                _ => {}
            }
        }
        let Honest { side, pairs } = self;
        pairs.iter_mut().for_each(|pair| pair.serve(side));
    }
}

impl Pair {
    fn serve(&mut self, side: &ConsumerRegion) {
        let view = side.qp(self.qp);
        let lap = u64::from(LAP);
        let base = lap * (1 + u64::from(self.qp));
        let mut bytes = [0; LAP as usize];
        while self.read < view.rcv_done() {
            let at = self.read % lap;
            let count = (view.rcv_done() - self.read).min(lap - at) as usize;
            let place = side.extent(base + at, count as u32).expect("within the lap");
            side.read(place, &mut bytes[..count]);
            // A lap is a whole number of ramps.
            self.ramp &= bytes[..count].iter().zip(at..).all(|(&byte, at)| u64::from(byte) == at % 251);
            self.read += count as u64;
        }
        for (queue, from, done) in [(Queue::Send, 0, view.snd_done()), (Queue::Receive, base, self.read)] {
            let laps = &mut self.laps[usize::from(queue == Queue::Receive)];
            while u64::from(*laps) * lap < done + lap {
                let extent = side.extent(from, LAP).expect("within the data area");
                let in_use = *laps - (done / lap) as u32;
                view.post(queue, *laps, in_use, extent).expect("two laps at a time");
                *laps += 1;
            }
        }
        view.set_snd_tail(view.snd_done() + lap);
        view.set_rcv_limit(self.read + lap);
        side.ring_doorbell(self.qp);
    }
}

/// Everything together.
struct World {
    a: Host,
    b: Host,
    hostage: Hostage,
    hostile: ConsumerRegion,
    honest: Honest,
    server: Honest,
    now: u64,
}

impl World {
    fn new() -> World {
        let (to_a, to_b) = (Frames::default(), Frames::default());
        let mut a = Host::new("10.0.0.1/24", 1, &to_a, &to_b);
        let mut b = Host::new("10.0.0.2/24", 2, &to_b, &to_a);
        let hostage = Hostage::fresh();
        a.engine.streamer().attach_consumer(EngineRegion::new(hostage.region.clone()));
        let hostile = ConsumerRegion::new(hostage.region.clone());
        let (honest, server) = (Honest::new(&mut a), Honest::new(&mut b));
        let mut world = World { a, b, hostage, hostile, honest, server, now: 0 };
        let any = Addr::v4([0; 4]);
        let listen = Request::Listen { token: 1, local: any, local_port: 80, backlog: 8, options: 0 };
        world.server.side.request(&listen).expect("an empty ring");
        world.turn();
        let (remote, remote_port) = (Addr::v4([10, 0, 0, 2]), 80);
        let connect = |token, local_port| {
            let local = Addr::UNSPECIFIED;
            Request::Connect { token, local, local_port, remote, remote_port, options: 0 }
        };
        world.honest.side.request(&connect(2, 1000)).expect("an empty ring");
        for port in [2000, 2001] {
            world.hostile.request(&connect(9, port)).expect("an empty ring");
        }
        for _ in 0..20 {
            world.turn();
        }
        assert_eq!(world.server.pairs.len(), 3, "all connections are open");
        world
    }

    fn turn(&mut self) {
        self.now += 100_000;
        self.a.poll(self.now);
        self.b.poll(self.now);
        self.honest.poll();
        self.server.poll();
    }

    /// The server's end of the honest stream.
    fn checked(&self) -> &Pair {
        let pair = self.server.pairs.iter().find(|pair| pair.remote_port == 1000);
        pair.expect("the honest connection stays open")
    }

    fn step(&mut self, script: &mut Script<'_>) -> Option<()> {
        let [step] = script.take()?;
        let qp = u32::from(step >> 4) % LAYOUT.qps;
        match step % 8 {
            0..=2 => {
                let word = u16::from_le_bytes(script.take()?);
                self.hostage.scribble(word.into(), step & 0x10 != 0, script.number()?);
            }
            3 | 4 => {
                // Near the protocol: extents and cursors that nearly make sense.
                let view = self.hostile.qp(qp);
                let extent = self.hostile.extent(script.number()? % LAYOUT.data_bytes, step.into());
                let queue = if step & 8 == 0 { Queue::Send } else { Queue::Receive };
                let _ = view.post(queue, script.number()? as u32, 0, extent.unwrap_or_default());
                view.set_snd_tail(script.number()?);
                view.set_rcv_limit(script.number()?);
                self.hostile.ring_doorbell(qp);
            }
            5 => {
                let _ = match step >> 6 {
                    _ if step & 8 != 0 => self.hostile.request(&Request::Unpost { token: 9, qp }),
                    0 => self.hostile.request(&Request::Shutdown { qp }),
                    1 => self.hostile.request(&Request::Close { qp }),
                    2 => self.hostile.request(&Request::Abort { qp }),
                    _ => {
                        let (offset, len) = (script.number()?, script.number()? as u32);
                        self.hostile.request(&Request::Info { token: 9, qp, offset, len })
                    }
                };
            }
            6 => {
                self.hostile.poll_completion();
                self.now += script.number()? % 2_000_000_000;
            }
            _ => self.turn(),
        }
        Some(())
    }
}

/// Runs one script; panics if the engine does, or the honest stream suffers.
pub fn fuzz_consumer(data: &[u8]) {
    let mut world = World::new();
    let mut script = Script(data);
    while world.step(&mut script).is_some() {}
    let target = world.checked().read + 2 * u64::from(LAP);
    for _ in 0..40_000 {
        if world.checked().read >= target {
            break;
        }
        world.turn();
    }
    assert!(world.checked().read >= target, "the honest stream stands still");
    assert!(world.checked().ramp, "the honest stream's bytes changed");
    assert!(world.hostage.guards_hold(), "something was written outside the region");
}
