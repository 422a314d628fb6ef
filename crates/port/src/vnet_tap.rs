//! A TAP device as a port of frames with virtio headers.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use arrayvec::ArrayVec;
use baton_engine::frame_io::{FrameIo, PortError};

use crate::error::OpenError;
use crate::tap::{Tap, TapCounters, TapOptions};
use crate::vnet::{Vnet, VnetFrame, VnetIo, VnetSink};
use crate::wait::{WaitSet, Waitable};

/// Ethernet header, two VLAN tags and the largest IP packet, in bytes.
const FRAME_MAX: usize = 22 + 65_535;
const ETHERNET_LEN: usize = 14;
/// The most pieces of one frame; `IOV_MAX` less one for the header.
pub const PIECES: usize = 1023;

/// A TAP device, attached; one system call a frame, either way.
pub struct VnetTap {
    tap: Tap,
    buffer: Box<[u8]>,
}

impl VnetTap {
    /// Attaches to the TAP device `name`, or makes one that goes away with this port.
    ///
    /// # Errors
    /// [`OpenError`] with the remedy, as of [`Tap::open`].
    pub fn open(name: &str) -> Result<VnetTap, OpenError> {
        // No merging on the other side: frames arrive as they are written.
        let tap = Tap::open(name, TapOptions { vnet_hdr: true, merge: false })?;
        let buffer = vec![0; Vnet::LEN + FRAME_MAX].into_boxed_slice();
        Ok(VnetTap { tap, buffer })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        self.tap.name()
    }

    /// Frames lost so far, by reason.
    pub fn counters(&self) -> TapCounters {
        self.tap.counters
    }
}

impl VnetIo for VnetTap {
    fn receive<S: VnetSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let mut frames = 0;
        while frames < limit {
            let len = match rustix::io::read(self.tap.as_fd(), &mut *self.buffer).map_err(io::Error::from) {
                Ok(len) => len,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => break,
                Err(e) => return Err(self.tap.error("reading", e)),
            };
            match self.buffer[..len].split_first_chunk() {
                Some((header, data)) if data.len() >= ETHERNET_LEN => {
                    sink.burst(&[VnetFrame { data, vnet: Vnet::from_bytes(*header) }]);
                    frames += 1;
                }
                _ => self.tap.counters.rx_short += 1,
            }
        }
        Ok(frames)
    }

    fn send(&mut self, vnet: Vnet, pieces: &[IoSlice<'_>]) -> bool {
        let header = vnet.to_bytes();
        let mut all = ArrayVec::<IoSlice<'_>, { PIECES + 1 }>::new();
        all.push(IoSlice::new(&header));
        if all.try_extend_from_slice(pieces).is_err() {
            self.tap.counters.tx_refused += 1;
            return true;
        }
        let result = rustix::io::writev(self.tap.as_fd(), &all).map_err(io::Error::from);
        self.tap.sent(result)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        FrameIo::flush(&mut self.tap)
    }
}

impl Waitable for VnetTap {
    fn poll_fds(&self, set: &mut WaitSet) {
        set.add(&self.tap.as_fd());
    }
}
