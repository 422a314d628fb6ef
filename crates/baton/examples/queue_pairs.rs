//! Raw queue pairs: the program posts buffers of its own choosing, and hears when each is full.

use baton::StackConfig;
use baton::engine::{Engine, FrameIo};
use baton::port::{MemoryOptions, MemoryPort};
use baton::queue_pairs::{EngineRegion, Layout, Memory, QpEvent, QueuePairs};
use baton::time::Instant;
use std::io;

/// An engine on a port, and its consumer.
struct End {
    engine: Engine,
    port: MemoryPort,
    pairs: QueuePairs,
}

impl End {
    fn new(address: &str, port: MemoryPort) -> io::Result<End> {
        let config = StackConfig::new(address.parse().expect("an address with its prefix"));
        let layout = Layout { qps: 4, queue_depth: 8, requests: 16, data_bytes: 1 << 16 };
        let (region, _) = Memory::Heap.region(layout)?;
        let mut engine = Engine::new(&config.engine, port.capabilities());
        engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
        Ok(End { engine, port, pairs: QueuePairs::new(region) })
    }

    fn poll(&mut self, now: Instant) -> io::Result<()> {
        self.engine.poll(now, &mut self.port, || 0).map(drop).map_err(io::Error::other)
    }
}

pub(crate) fn main() -> io::Result<()> {
    let (port_a, port_b) = MemoryPort::pair(MemoryOptions::default());
    let (mut a, mut b) = (End::new("10.0.0.1/24", port_a)?, End::new("10.0.0.2/24", port_b)?);
    let address = "10.0.0.2:7".parse().expect("an address with its port");
    b.pairs.listen(address, 16, 1).expect("there is room for a request");
    b.poll(Instant(0))?;
    a.pairs.connect(address, 2).expect("there is room for a request");

    let mut message = None;
    for turn in 1.. {
        let now = Instant(turn * 50_000);
        a.poll(now)?;
        b.poll(now)?;
        while let Some(event) = a.pairs.poll() {
            if let QpEvent::Established { qp } = event {
                let buffer = a.pairs.extent(100, 5).expect("it lies in the region");
                a.pairs.write(buffer, b"hello");
                a.pairs.post_send(qp, buffer, 71).expect("the queue has room");
            }
        }
        while let Some(event) = b.pairs.poll() {
            match event {
                QpEvent::Accepted { qp, .. } => {
                    let buffer = b.pairs.extent(4000, 5).expect("it lies in the region");
                    b.pairs.post_receive(qp, buffer, 72).expect("the queue has room");
                }
                QpEvent::Received { id: 72, buffer, .. } => {
                    let mut bytes = [0; 5];
                    b.pairs.read(buffer, &mut bytes);
                    message = Some(bytes);
                }
                _ => {}
            }
        }
        if message.is_some() {
            break;
        }
        assert!(turn < 100_000, "no message came");
    }
    println!("the buffer holds {}", String::from_utf8_lossy(&message.expect("it came")));
    Ok(())
}
