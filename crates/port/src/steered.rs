//! The engine's frames of an interface that it shares with the kernel: whatever the
//! steering program redirects, through a TAP device or AF_XDP sockets.
//!
//! The port only carries frames. Who made it decides which (`baton-host`, `steer`):
//! the kernel's packets never come here.

use aya::programs::links::FdLink;
use baton_engine::frame_io::{Capabilities, FrameIo, FrameSink, PayloadPart, PortError, TxMeta};

use crate::tap::Tap;
use crate::wait::{WaitSet, Waitable};
use crate::xdp::XdpPort;

/// An interface's steered frames.
pub struct SteeredPort(Kind);

enum Kind {
    Tap {
        // Before the guard: while the device is there, it is guarded.
        tap: Tap,
        _guard: FdLink,
        mtu: u16,
    },
    Xdp(Box<XdpPort>),
}

impl SteeredPort {
    /// Over a TAP device that frames of an interface with that `mtu` are redirected to.
    /// `guard` is the program on the device that lets only the engine's own frames out,
    /// and stays for as long as the device.
    pub fn tap(tap: Tap, guard: FdLink, mtu: u16) -> Self {
        Self(Kind::Tap { tap, _guard: guard, mtu })
    }

    /// Over AF_XDP sockets that frames are redirected to.
    pub fn xdp(port: XdpPort) -> Self {
        Self(Kind::Xdp(Box::new(port)))
    }
}

/// Calls a method of whichever port it is.
macro_rules! each {
    ($self:expr, $port:ident => $call:expr) => {
        match $self {
            SteeredPort(Kind::Tap { tap: $port, .. }) => $call,
            SteeredPort(Kind::Xdp($port)) => $call,
        }
    };
}

impl FrameIo for SteeredPort {
    fn capabilities(&self) -> Capabilities {
        match &self.0 {
            // What leaves has to fit the interface, not the device in between.
            Kind::Tap { tap, mtu, .. } => Capabilities { mtu: *mtu, ..tap.capabilities() },
            Kind::Xdp(port) => port.capabilities(),
        }
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        each!(self, port => port.receive(limit, sink))
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        each!(self, port => port.slot(len))
    }

    fn commit(&mut self, len: usize, meta: TxMeta) {
        each!(self, port => port.commit(len, meta));
    }

    fn gather(&mut self, header: &[u8], payload: &[PayloadPart], meta: TxMeta) -> bool {
        each!(self, port => port.gather(header, payload, meta))
    }

    fn flush(&mut self) -> Result<(), PortError> {
        each!(self, port => port.flush())
    }
}

impl Waitable for SteeredPort {
    fn poll_fds(&self, set: &mut WaitSet) {
        each!(self, port => port.poll_fds(set));
    }

    fn prepare_wait(&mut self) -> bool {
        each!(self, port => port.prepare_wait())
    }

    fn finish_wait(&mut self) {
        each!(self, port => port.finish_wait());
    }
}
