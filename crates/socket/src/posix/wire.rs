//! The wire between the engine and the caller that exchanges frames with it: an in-memory wire
//! whose other end belongs to the caller.

use baton_engine::frame_io::{Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, TxMeta};
use baton_port::memory::{MemoryOptions, MemoryPort};

/// Size of an Ethernet header with a VLAN tag, in bytes.
const LINK_HEADER: usize = 18;

/// The engine's end: an in-memory port that can carry bare IP packets.
pub(super) struct Wire {
    port: MemoryPort,
    ethernet: bool,
}

/// Makes a wire for `frames` frames in each direction. Returns the engine's end, the caller's end,
/// and the size of the largest frame.
pub(super) fn pair(ethernet: bool, mtu: u16, frames: usize) -> (Wire, MemoryPort, usize) {
    let (inner, outer) = MemoryPort::pair(MemoryOptions::new().mtu(mtu).frames(frames));
    let frame_bytes = usize::from(mtu) + if ethernet { LINK_HEADER } else { 0 };
    (Wire { port: inner, ethernet }, outer, frame_bytes)
}

/// Puts a frame on the wire from the caller's end. Returns false if the wire is full.
pub(super) fn put(outer: &mut MemoryPort, frame: &[u8]) -> bool {
    let Some(slot) = outer.slot(frame.len()) else { return false };
    slot.copy_from_slice(frame);
    outer.commit(frame.len(), TxMeta::default());
    outer.flush().is_ok()
}

/// Takes the next frame off the wire at the caller's end. `buf` must hold the largest frame.
pub(super) fn take(outer: &mut MemoryPort, buf: &mut [u8]) -> Option<usize> {
    struct Copy<'a> {
        buf: &'a mut [u8],
        len: usize,
    }
    impl FrameSink for Copy<'_> {
        fn burst(&mut self, frames: &[RxFrame<'_>]) {
            for frame in frames {
                self.buf[..frame.data.len()].copy_from_slice(frame.data);
                self.len = frame.data.len();
            }
        }
    }
    let mut copy = Copy { buf, len: 0 };
    match outer.receive(1, &mut copy) {
        Ok(1) => Some(copy.len),
        _ => None,
    }
}

impl FrameIo for Wire {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.port.capabilities();
        capabilities.ethernet = self.ethernet;
        capabilities
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        self.port.receive(limit, sink)
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        self.port.slot(len)
    }

    fn commit(&mut self, len: usize, meta: TxMeta) {
        self.port.commit(len, meta);
    }

    fn gather(&mut self, header: &[u8], payload: &[PayloadPart], meta: TxMeta) -> bool {
        self.port.gather(header, payload, meta)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.port.flush()
    }
}
