//! The two profiles and their numbers.

use core::num::{NonZeroU32, NonZeroU64};

/// Which paper's rules hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Profile {
    /// Receive side coalescing in a NIC (RSC §4): a run's payload fits a buffer,
    /// PSH ends a run.
    Rsc,
    /// Receive aggregation in front of a stack (RA §3): a run is an IP packet, PSH
    /// does not matter.
    Ra,
}

impl Profile {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Profile::Rsc => "rsc",
            Profile::Ra => "ra",
        }
    }
}

/// When all runs are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Window {
    /// After this many frames of whatever kind.
    Frames(NonZeroU32),
    /// This many nanoseconds after the first frame of the window.
    Time(NonZeroU64),
    /// When the caller says that its input is empty ([`Coalescer::flush`]).
    ///
    /// [`Coalescer::flush`]: crate::Coalescer::flush
    Input,
}

/// Limits of runs and of their number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// The rules that decide which segments join a run.
    pub profile: Profile,
    /// Runs held at a time.
    pub cache: NonZeroU32,
    /// [`Profile::Rsc`]: most bytes of payload in a run. Without meaning for
    /// [`Profile::Ra`], where a run with its IP and TCP header has
    /// [`Limits::RA_BYTES`] at most.
    pub buffer: u32,
    /// Most segments in a run; `None` for no such bound.
    pub segments: Option<NonZeroU32>,
    /// When all runs are flushed.
    pub window: Window,
}

impl Limits {
    /// Most bytes of a run with its IP and TCP header under [`Profile::Ra`].
    pub const RA_BYTES: u32 = 65_535;

    /// The papers' values: 4 runs; for RSC buffers of 8192 bytes, for RA 20
    /// segments; a window of 20 frames, which in a capture stands for RA's empty
    /// queue.
    pub const fn of(profile: Profile) -> Limits {
        const TWENTY: NonZeroU32 = NonZeroU32::new(20).expect("not 0");
        Limits {
            profile,
            cache: NonZeroU32::new(4).expect("not 0"),
            buffer: 8192,
            segments: match profile {
                Profile::Rsc => None,
                Profile::Ra => Some(TWENTY),
            },
            window: Window::Frames(TWENTY),
        }
    }

    /// Most segments that a run can come to have, whichever bound is met first: a
    /// segment has a byte of payload, and a run is over with its window.
    pub const fn most_segments(&self) -> u32 {
        const fn min(a: u32, b: u32) -> u32 {
            if a < b { a } else { b }
        }
        let bytes = match self.profile {
            Profile::Rsc if self.buffer == 0 => 1,
            Profile::Rsc => self.buffer,
            Profile::Ra => Limits::RA_BYTES,
        };
        let segments = match self.segments {
            Some(segments) => segments.get(),
            None => u32::MAX,
        };
        match self.window {
            Window::Frames(frames) => min(frames.get(), min(bytes, segments)),
            _ => min(bytes, segments),
        }
    }
}
