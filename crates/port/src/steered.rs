//! The engine's frames of an interface that it shares with the kernel: whatever the
//! steering program redirects, through a TAP device or AF_XDP sockets.
//!
//! The port only carries frames. Its creator (`baton-kernel`, `steer`) decides which ones:
//! the kernel's packets never come here.

use aya::programs::links::FdLink;
use baton_engine::frame_io::{Capabilities, FrameIo, FrameSink, PortError};

use crate::notes::{Dated, Notes};
use crate::tap::{Tap, WAITING};
use crate::wait::Waitable;
use crate::xdp::XdpPort;

/// An interface's steered frames.
pub struct SteeredPort {
    kind: Kind,
    /// When frames arrived, while anybody wants to know.
    notes: Option<Notes>,
}

enum Kind {
    Tap {
        // Before the guard: while the device is there, it is guarded.
        tap: Tap,
        _guard: Option<FdLink>,
        mtu: u16,
    },
    Xdp(Box<XdpPort>),
}

impl SteeredPort {
    /// A port over a TAP device that frames of an interface with that `mtu` are redirected to.
    /// `guard` is the program on the device that lets only the engine's own frames out, and
    /// stays for as long as the device.
    pub fn tap(tap: Tap, guard: FdLink, mtu: u16) -> Self {
        Self::of(Kind::Tap { tap, _guard: Some(guard), mtu })
    }

    /// A port over a TAP device that another process made, guards and keeps.
    pub fn lent(tap: Tap, mtu: u16) -> Self {
        Self::of(Kind::Tap { tap, _guard: None, mtu })
    }

    /// The TAP device and the MTU of its interface, if that is what it is.
    pub fn device(&self) -> Option<(&Tap, u16)> {
        match &self.kind {
            Kind::Tap { tap, mtu, .. } => Some((tap, *mtu)),
            Kind::Xdp(_) => None,
        }
    }

    /// The frames that wait in the receive rings of AF_XDP sockets. A TAP device does not say how
    /// many wait: `None`.
    pub fn waiting(&mut self) -> Option<u32> {
        match &mut self.kind {
            Kind::Tap { .. } => None,
            Kind::Xdp(port) => Some(port.waiting()),
        }
    }

    /// The most frames that can wait for the engine.
    pub fn ring(&self) -> u32 {
        match &self.kind {
            Kind::Tap { .. } => WAITING,
            Kind::Xdp(port) => port.ring(),
        }
    }

    /// A port over AF_XDP sockets that frames are redirected to.
    pub fn xdp(port: XdpPort) -> Self {
        Self::of(Kind::Xdp(Box::new(port)))
    }

    fn of(kind: Kind) -> Self {
        Self { kind, notes: None }
    }

    /// Says of each frame when it arrived, by these notes of the steering program; `None`: no more.
    pub fn read_notes(&mut self, notes: Option<Notes>) {
        self.notes = notes;
    }
}

/// Calls a method of whichever port it is.
macro_rules! each {
    ($self:expr, $port:ident => $call:expr) => {
        match $self {
            SteeredPort { kind: Kind::Tap { tap: $port, .. }, .. } => $call,
            SteeredPort { kind: Kind::Xdp($port), .. } => $call,
        }
    };
}

impl FrameIo for SteeredPort {
    fn capabilities(&self) -> Capabilities {
        match &self.kind {
            // Outgoing frames have to fit the interface, not the device in between.
            Kind::Tap { tap, mtu, .. } => {
                let mut capabilities = tap.capabilities();
                capabilities.mtu = *mtu;
                capabilities
            }
            Kind::Xdp(port) => port.capabilities(),
        }
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let Some(notes) = self.notes.take() else { return each!(self, port => port.receive(limit, sink)) };
        let received = each!(self, port => port.receive(limit, &mut Dated { notes: &notes, sink }));
        self.notes = Some(notes);
        received
    }

    forward_sends!(each);
}

impl Waitable for SteeredPort {
    forward_waits!(each);
}
