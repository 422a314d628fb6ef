//! The port between a simulated host and its link.
//!
//! Frames that arrived wait here until the engine takes them; frames that the
//! engine sent wait until the world carries them off. How many fit is limited, so
//! the engine meets a full port; offloads are those of [`crate::nic`].

use crate::nic::{self, Joiner};
use crate::trace::describe;
use baton_engine::frame_io::{
    BURST, Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta,
};
use baton_engine::ledger::Ledger;
use baton_wire::addr::Tuple;
use baton_wire::packet::{Link, Packet};
use baton_wire::tcp::Flags;
use std::collections::VecDeque;
use std::sync::Arc;

/// Configuration of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// The abilities that the engine is told.
    pub capabilities: Capabilities,
    /// Segments that arrive together are joined.
    pub join: bool,
    /// Frames that fit each way; what arrives beyond is lost.
    pub frames: usize,
}

/// One host's port.
pub struct SimPort {
    config: PortConfig,
    received: VecDeque<(Vec<u8>, RxMeta)>,
    sent: Vec<(Vec<u8>, TxMeta)>,
    slot: Vec<u8>,
    committed: usize,
    overflows: u64,
    /// The ledger, in which the engine records what peers may learn, before they can.
    pub ledger: Option<Arc<Ledger>>,
    /// The first frame that says more than the ledger.
    pub unpublished: Option<String>,
}

impl SimPort {
    /// An idle port.
    pub fn new(config: PortConfig) -> SimPort {
        SimPort {
            config,
            received: VecDeque::new(),
            sent: Vec::new(),
            slot: Vec::new(),
            committed: 0,
            overflows: 0,
            ledger: None,
            unpublished: None,
        }
    }

    /// The link layer of its frames.
    pub fn link(&self) -> Link {
        if self.config.capabilities.ethernet { Link::Ethernet } else { Link::Ip }
    }

    /// Takes frames that arrived at the same time.
    pub fn arrive(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let (link, room) = (self.link(), self.config.frames);
        let mut joiner = Joiner::new(link);
        let (received, overflows) = (&mut self.received, &mut self.overflows);
        let mut keep = |frame, meta| {
            if received.len() < room {
                received.push_back((frame, meta));
            } else {
                *overflows += 1;
            }
        };
        for frame in frames {
            if self.config.join {
                joiner.push(frame, &mut keep);
            } else {
                keep(frame, RxMeta::default());
            }
        }
        joiner.flush(&mut keep);
    }

    /// Frames wait for the engine.
    pub fn has_received(&self) -> bool {
        !self.received.is_empty()
    }

    /// The engine sent frames that are still here.
    pub fn has_sent(&self) -> bool {
        self.committed > 0
    }

    /// Gives `carry` the segments of up to `limit` frames that the engine has sent
    /// and flushed.
    pub fn carry_off(&mut self, limit: usize, carry: &mut dyn FnMut(Vec<u8>)) {
        let link = self.link();
        let count = self.committed.min(limit);
        for (frame, meta) in self.sent.drain(..count) {
            nic::cut(frame, meta, link, carry);
        }
        self.committed -= count;
    }

    /// Everything that the peer can learn from a frame has to be in the ledger before the port
    /// has the frame.
    fn check_published(&mut self, frame: &[u8]) {
        let Some(ledger) = &self.ledger else { return };
        let Ok(packet) = Packet::parse(frame, self.link()) else { return };
        let tuple =
            Tuple { local: packet.src, remote: packet.dst, local_port: packet.src_port, remote_port: packet.dst_port };
        let Some(known) = ledger.published(&tuple) else { return };
        let end = packet.seq + packet.payload_len + u32::from(packet.flags.contains(Flags::FIN));
        let edge = packet.ack + known.shift.expand(packet.window).0;
        if end.after(known.sent) || packet.ack.after(known.rcv_nxt) || edge.after(known.right_edge) {
            let what = describe(frame, self.link());
            self.unpublished.get_or_insert(format!("{what}, but only {known:?} is written down"));
        }
    }

    /// Frames that came while the port was full.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }
}

impl FrameIo for SimPort {
    fn capabilities(&self) -> Capabilities {
        self.config.capabilities
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let mut total = 0;
        while total < limit {
            let count = self.received.len().min(BURST).min(limit - total);
            if count == 0 {
                break;
            }
            let frames: Vec<_> = self.received.drain(..count).collect();
            let burst: Vec<_> = frames.iter().map(|(data, meta)| RxFrame { data, meta: *meta }).collect();
            sink.burst(&burst);
            total += count;
        }
        Ok(total)
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.sent.len() >= self.config.frames {
            return None;
        }
        // "The bytes are whatever they were": not zeros that hide a gap.
        self.slot.resize(len, 0xa5);
        Some(&mut self.slot[..len])
    }

    fn commit(&mut self, len: usize, meta: TxMeta) {
        let frame = self.slot[..len].to_vec();
        self.check_published(&frame);
        let link_header = if self.config.capabilities.ethernet { 18 } else { 0 };
        let most = match meta.gso_size {
            0 => usize::from(self.config.capabilities.mtu) + link_header,
            _ => self.config.capabilities.tx_gso_max as usize,
        };
        assert!(len <= most, "a frame of {len} bytes on a port that takes {most}");
        assert!(meta.checksum_start == 0 || self.config.capabilities.tx_checksum, "an offload that was not offered");
        self.sent.push((frame, meta));
    }

    fn gather(&mut self, _header: &[u8], _payload: &[PayloadPart], _meta: TxMeta) -> bool {
        unreachable!("gathering was not offered")
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.committed = self.sent.len();
        Ok(())
    }
}
