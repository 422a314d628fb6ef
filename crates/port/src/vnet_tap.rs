//! A TAP device as a port of frames with virtio headers.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use arrayvec::ArrayVec;
use baton_engine::frame_io::PortError;

use crate::error::OpenError;
use crate::tap::{Tap, TapOptions};
use crate::vnet::{Vnet, VnetFrame, VnetIo, VnetSink};
use crate::wait::{WaitSet, Waitable};

/// Ethernet header, two VLAN tags and the largest IP packet, in bytes.
const FRAME_MAX: usize = 22 + 65_535;
const ETHERNET_LEN: usize = 14;
/// Pieces that one frame is sent in at most; `IOV_MAX` less one for the header.
pub const PIECES: usize = 1023;

/// What became of frames, beside those that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VnetTapCounters {
    /// Refused because the device is down.
    pub tx_link_down: u64,
    /// Refused for what is in them, or for want of memory.
    pub tx_refused: u64,
    /// Too short to be frames.
    pub rx_short: u64,
}

/// A TAP device, attached; one system call a frame, either way.
pub struct VnetTap {
    tap: Tap,
    buffer: Box<[u8]>,
    counters: VnetTapCounters,
    /// What ended the device, until `flush` reports it.
    gone: Option<io::Error>,
}

impl VnetTap {
    /// Attaches to the TAP device `name`, or makes one that goes away with this port.
    ///
    /// # Errors
    /// [`OpenError`] with the remedy, as of [`Tap::open`].
    pub fn open(name: &str) -> Result<VnetTap, OpenError> {
        // Nothing is to be merged behind us: frames arrive as they are written.
        let tap = Tap::open(name, TapOptions { vnet_hdr: true, merge: false })?;
        let buffer = vec![0; Vnet::LEN + FRAME_MAX].into_boxed_slice();
        Ok(VnetTap { tap, buffer, counters: VnetTapCounters::default(), gone: None })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        self.tap.name()
    }

    /// What became of frames.
    pub fn counters(&self) -> VnetTapCounters {
        self.counters
    }

    fn error(&self, what: &str, source: io::Error) -> PortError {
        PortError { what: format!("tap:{}: {what}", self.name()), source }
    }
}

impl VnetIo for VnetTap {
    fn receive<S: VnetSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let mut frames = 0;
        while frames < limit {
            let len = match rustix::io::read(self.tap.as_fd(), &mut *self.buffer).map_err(io::Error::from) {
                Ok(len) => len,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => break,
                Err(e) => return Err(self.error("reading", e)),
            };
            match self.buffer[..len].split_first_chunk() {
                Some((header, data)) if data.len() >= ETHERNET_LEN => {
                    sink.burst(&[VnetFrame { data, vnet: Vnet::from_bytes(*header) }]);
                    frames += 1;
                }
                _ => self.counters.rx_short += 1,
            }
        }
        Ok(frames)
    }

    fn send(&mut self, vnet: Vnet, pieces: &[IoSlice<'_>]) -> bool {
        let header = vnet.to_bytes();
        let mut all = ArrayVec::<IoSlice<'_>, { PIECES + 1 }>::new();
        all.push(IoSlice::new(&header));
        if all.try_extend_from_slice(pieces).is_err() {
            self.counters.tx_refused += 1;
            return true;
        }
        if let Err(error) = rustix::io::writev(self.tap.as_fd(), &all).map_err(io::Error::from) {
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return false,
                Some(libc::EIO) => self.counters.tx_link_down += 1,
                Some(libc::EBADFD | libc::EBADF | libc::ENODEV) => self.gone = Some(error),
                _ => self.counters.tx_refused += 1,
            }
        }
        true
    }

    fn flush(&mut self) -> Result<(), PortError> {
        match self.gone.take() {
            None => Ok(()),
            Some(e) => Err(self.error("writing", e)),
        }
    }
}

impl Waitable for VnetTap {
    fn poll_fds(&self, set: &mut WaitSet) {
        set.add(&self.tap.as_fd());
    }
}
