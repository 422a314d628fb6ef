//! The bump: both directions, joined.

use crate::counters::Counters;
use crate::inward::Inward;
use crate::outward::Outward;
use crate::senders::Senders;
use baton_coalesce::{Counts, Limits, Window};
use baton_port::PortError;
use baton_port::vnet::VnetIo;
use baton_wire::tcp::Acks;

/// The most frames taken from the wire in one poll.
const IN_MAX: usize = 256;
/// The most frames taken from the host in one poll, unless more came in.
const OUT_MAX: usize = 64;

/// Settings of a bump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Limits of runs. Their window is ignored: runs end with the burst.
    pub limits: Limits,
    /// The treatment of the host's ACKs.
    pub acks: Acks,
    /// Leaves out the coalescer and the ACKs: frames are only carried. The cost of the rest is
    /// measured against this.
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
    /// A bump between `wire` and `host`.
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
        // At least as much as came in, so that ACKs do not pile up behind the data that they
        // answer.
        busy |= outward.pump(host, wire, senders, counters, carried.max(OUT_MAX))?;
        wire.flush()?;
        Ok(busy)
    }

    /// True while the wire is full and the host's frames wait: poll again soon, even if no
    /// descriptor is ready.
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

    /// Counts of frames that passed.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The coalescer's counts.
    pub fn counts(&self) -> &Counts {
        self.inward.counts()
    }
}
