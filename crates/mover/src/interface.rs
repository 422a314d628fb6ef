//! An interface with its engine, its port and its only consumer.
//!
//! An interface can disappear while connections over it are away. Its port then fails in one way or
//! another. Its engine continues with nothing to send to, so that its connections can still leave
//! it.

use baton_consumer::consumer::Consumer;
use baton_engine::engine::Engine;
use baton_engine::frame_io::{Capabilities, FrameIo, FrameSink, PayloadPart, PortError, TxMeta};
use baton_kernel::kernel_side::KernelSide;
use std::time::Instant;

/// An interface: see the module's documentation.
pub(crate) struct Interface<P> {
    pub index: u32,
    /// The MTU when the engine was made.
    pub mtu: u32,
    pub engine: Engine,
    pub port: P,
    pub consumer: Consumer,
    /// The interface no longer exists.
    pub gone: bool,
}

/// The engine's time.
pub(crate) fn now(started: Instant) -> baton_tcp::time::Instant {
    baton_tcp::time::Instant(started.elapsed().as_nanos() as u64)
}

impl<P: FrameIo> Interface<P> {
    /// Runs one turn of the engine and answers its questions. Returns true if there was anything to
    /// do.
    pub fn poll(&mut self, kernel: &mut KernelSide, time: baton_tcp::time::Instant) -> Result<bool, PortError> {
        let activity = if self.gone {
            let mut nowhere = Nowhere { capabilities: self.port.capabilities(), slot: Vec::new() };
            self.engine.poll(time, &mut nowhere, || 0)
        } else {
            self.engine.poll(time, &mut self.port, || 0)
        };
        let busy = match activity {
            Ok(activity) => !activity.is_idle(),
            Err(_) if kernel.link(self.index).is_err() => {
                // Netlink will report this too.
                self.gone = true;
                true
            }
            Err(error) => return Err(error),
        };
        self.consumer.poll(time);
        while let Some(neighbour) = self.engine.streamer().poll_question() {
            // If there is no answer, the engine asks again.
            if let Ok(Some(mac)) = kernel.neighbour(self.index, neighbour) {
                self.engine.streamer().learn_neighbour(time, neighbour, mac);
            }
        }
        Ok(busy)
    }
}

/// A port without an interface: nothing arrives, and what is sent is lost.
struct Nowhere {
    capabilities: Capabilities,
    slot: Vec<u8>,
}

impl FrameIo for Nowhere {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive<S: FrameSink>(&mut self, _limit: usize, _sink: &mut S) -> Result<usize, PortError> {
        Ok(0)
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        self.slot.resize(len, 0);
        Some(&mut self.slot)
    }

    fn commit(&mut self, _len: usize, _meta: TxMeta) {}

    fn gather(&mut self, _header: &[u8], _payload: &[PayloadPart], _meta: TxMeta) -> bool {
        true
    }

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }
}
