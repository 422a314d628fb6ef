//! The two ways, joined.

use crate::counters::Counters;
use crate::inward::Inward;
use crate::outward::Outward;
use crate::senders::Senders;
use baton_coalesce::{Counts, Limits, Window};
use baton_port::PortError;
use baton_port::vnet::VnetIo;
use baton_wire::tcp::Acks;

/// Frames taken from the wire in one poll at most.
const IN_MAX: usize = 256;
/// Frames taken from the host in one poll at most, unless more came in.
const OUT_MAX: usize = 64;

/// What a bump does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// What bounds runs. Its window is not asked: runs end with the burst.
    pub limits: Limits,
    /// What becomes of the host's ACKs.
    pub acks: Acks,
    /// The coalescer and the ACKs are left out: frames are carried, no more. What the
    /// rest costs is measured against it.
    pub bare: bool,
}

/// A bump between two ports.
pub struct Bump<W, H> {
    wire: W,
    host: H,
    inward: Inward,
    outward: Outward,
    senders: Senders,
    counters: Counters,
}

impl<W: VnetIo, H: VnetIo> Bump<W, H> {
    /// Between `wire` and `host`.
    pub fn new(wire: W, host: H, options: Options) -> Bump<W, H> {
        let limits = Limits { window: Window::Input, ..options.limits };
        Bump {
            wire,
            host,
            inward: Inward::new(limits, options.acks, options.bare),
            outward: Outward::new(options.acks, options.bare),
            senders: Senders::new(),
            counters: Counters::default(),
        }
    }

    /// Carries what is waiting on both sides; false if there was nothing. Never waits.
    /// `now_ns` is the time in nanoseconds of any clock.
    ///
    /// # Errors
    /// [`PortError`] when a device is gone.
    pub fn poll(&mut self, now_ns: u64) -> Result<bool, PortError> {
        let Bump { wire, host, inward, outward, senders, counters } = self;
        let mut busy = false;
        let mut carried = 0;
        while carried < IN_MAX {
            let count = wire.receive(IN_MAX - carried, &mut inward.to(host, senders, counters, now_ns))?;
            if count == 0 {
                break;
            }
            carried += count;
            busy = true;
        }
        host.flush()?;
        // As much as came in: ACKs are not to pile up behind what they answer.
        busy |= outward.pump(host, wire, senders, counters, carried.max(OUT_MAX))?;
        wire.flush()?;
        Ok(busy)
    }

    /// True while the wire has no room for what the host has sent: poll again
    /// soon, even if no descriptor is ready.
    pub fn is_stuck(&self) -> bool {
        self.outward.is_stuck()
    }

    /// The wire's port.
    pub fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    /// The host's port.
    pub fn host(&mut self) -> &mut H {
        &mut self.host
    }

    /// What has passed.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What the coalescer did.
    pub fn counts(&self) -> &Counts {
        self.inward.counts()
    }
}
