//! Watermarks that find themselves. CH §3.2 says of them that they "need to be set empirically"; here
//! the experiment runs all the time.
//!
//! ```text
//!   each burst: time, queue --> Meter --> a Window, at most every 100 ms
//!   Window: frames, busy time --> service rate x target delay = Hiwat, a quarter of it = Lowat
//!   longest queues of the last three windows --> Qlen
//! ```
//!
//! *Hiwat* is the queue that the engine needs [`TARGET_NS`] to serve, at the rate that it has. A queue
//! shorter than a burst is no queue, because the engine takes that many frames at once. A queue
//! longer than three quarters of the ring is about to lose frames, however fast the engine is.
//!
//! *Qlen* is too long only if it was so in each of the last three windows. A burst of arrivals or a
//! pause of the engine makes a queue that is served a moment later; one that comes back in every
//! window is an overload (Nichols and Jacobson, "Controlling Queue Delay", ACM Queue 2012). It is short
//! only if it was so in each of the three. Between the two nothing happens, so a single pause does not
//! make the limit swing.
//!
//! The meter has no timer: a window ends with the first burst after its time. An engine without
//! frames needs no decision.

use crate::load::Watermarks;
use core::fmt;
use core::str::FromStr;

/// The delay that the queue may cause, in nanoseconds. Chosen, not measured: compared with this, a
/// connection's round trip in a data centre is short, and one over a wide area is long.
pub const TARGET_NS: u64 = 10_000_000;

/// The shortest window, in nanoseconds: the period over which Linux gives a cgroup its share of a
/// processor (`cpu.max`, `cpu.cfs_period_us`), so that one window sees both its pause and its work.
pub const WINDOW_NS: u64 = 100_000_000;

/// The choice of an administrator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// `auto`: the watermarks find themselves.
    #[default]
    Auto,
    /// `off`: the limit stays at the most connections.
    Off,
    /// `LOW-HIGH`, in frames.
    Fixed(Watermarks),
}

/// The error for a text that names no watermarks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' names no watermarks; write auto, off, or LOW-HIGH in frames, as 64-256")]
pub struct NoWatermarks(String);

impl FromStr for Choice {
    type Err = NoWatermarks;

    fn from_str(text: &str) -> Result<Choice, NoWatermarks> {
        let fixed = || {
            let (low, high) = text.split_once('-')?;
            Watermarks::new(low.trim().parse().ok()?, high.trim().parse().ok()?)
        };
        match text {
            "auto" => Ok(Choice::Auto),
            "off" => Ok(Choice::Off),
            _ => fixed().map(Choice::Fixed).ok_or_else(|| NoWatermarks(text.into())),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Auto => f.write_str("auto"),
            Choice::Off => f.write_str("off"),
            Choice::Fixed(marks) => write!(f, "{}-{}", marks.low(), marks.high()),
        }
    }
}

/// The watermarks of an engine that serves `frames` in `busy_ns`, takes up to `burst` frames at once
/// and has a ring of `ring` frames in front of it.
pub fn watermarks(frames: u64, busy_ns: u64, burst: u32, ring: u32) -> Watermarks {
    let served = u128::from(frames) * u128::from(TARGET_NS) / u128::from(busy_ns.max(1));
    let most = (ring - ring / 4).max(burst);
    let high = u32::try_from(served).unwrap_or(u32::MAX).clamp(burst, most);
    // A quarter is at most the whole.
    Watermarks::new(high / 4, high).unwrap_or(Watermarks::UNKNOWN)
}

/// The windows whose longest queues have to agree.
pub const WINDOWS: usize = 3;

/// The measurements of the last windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The shortest of the last windows' longest queues, in frames.
    pub shortest: u32,
    /// The longest of them, in frames.
    pub longest: u32,
    /// Frames that the engine took in the last window.
    pub frames: u64,
    /// The time that the engine worked or wanted to in the last window, in nanoseconds.
    pub busy_ns: u64,
    /// The time that it slept in the last window, in nanoseconds.
    pub idle_ns: u64,
    /// The smallest part of the time that it slept in one of the last windows, in thousandths.
    pub least_idle_permille: u16,
}

/// An engine that sleeps for this part of the time has room, in thousandths. Chosen: it could do twice as
/// much.
pub const ROOMY_PERMILLE: u16 = 500;

impl Window {
    /// `Qlen` to compare with the watermarks: above `high` only if each window had such a queue,
    /// and below `low` only if none had a longer one or the engine slept for most of each.
    pub const fn queued(&self, marks: Watermarks) -> u32 {
        let longest = if self.longest < marks.high() { self.longest } else { marks.high() };
        if self.shortest > longest {
            self.shortest
        } else if self.is_roomy() {
            0
        } else {
            longest
        }
    }

    /// The engine slept for half of each window or more.
    pub const fn is_roomy(&self) -> bool {
        self.least_idle_permille >= ROOMY_PERMILLE
    }

    /// The part of the time that the engine slept, in thousandths.
    pub fn idle_permille(&self) -> u16 {
        permille(self.idle_ns, self.busy_ns)
    }
}

/// The part of the time, in thousandths; all of it if there was none.
fn permille(idle_ns: u64, busy_ns: u64) -> u16 {
    let all = u128::from(busy_ns) + u128::from(idle_ns);
    (u128::from(idle_ns) * 1000).checked_div(all).map_or(1000, |part| part as u16)
}

/// Collects what each burst shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meter {
    begun_ns: u64,
    /// The longest queue of each of the last windows, the current one first.
    longest: [u32; WINDOWS],
    /// The part of the time that the engine slept in each of them, in thousandths.
    idle_permille: [u16; WINDOWS],
    /// Windows that have ended since the meter began or was cleared, [`WINDOWS`] at most.
    ended: usize,
    frames: u64,
    idle_ns: u64,
}

impl Meter {
    /// A meter whose first window begins at this time, in nanoseconds.
    pub const fn new(now_ns: u64) -> Meter {
        let idle_permille = [0; WINDOWS];
        Meter { begun_ns: now_ns, longest: [0; WINDOWS], idle_permille, ended: 0, frames: 0, idle_ns: 0 }
    }

    /// Notes that the engine slept for this long, in nanoseconds, because nothing waited.
    pub const fn slept(&mut self, ns: u64) {
        self.idle_ns = self.idle_ns.saturating_add(ns);
    }

    /// Returns true if the next burst ends a window.
    pub const fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.begun_ns) >= WINDOW_NS
    }

    /// Notes that the engine had no CPU for this long in the current window, in nanoseconds. After
    /// its sleep it was late for that long.
    pub const fn was_delayed(&mut self, ns: u64) {
        self.idle_ns = self.idle_ns.saturating_sub(ns);
    }

    /// Notes a burst of `frames` that the engine took, and that `queued` frames waited. If that ends
    /// a window and there were enough of them, returns what they showed.
    pub fn on_burst(&mut self, now_ns: u64, frames: u32, queued: u32) -> Option<Window> {
        self.longest[0] = self.longest[0].max(queued);
        self.frames = self.frames.saturating_add(frames.into());
        if !self.is_due(now_ns) {
            return None;
        }
        let lasted = now_ns.saturating_sub(self.begun_ns);
        self.ended = (self.ended + 1).min(WINDOWS);
        let busy_ns = lasted.saturating_sub(self.idle_ns);
        self.idle_permille[0] = permille(self.idle_ns, busy_ns);
        let Meter { longest, idle_permille, ended, frames, idle_ns, .. } = *self;
        let window = Window {
            shortest: longest.iter().copied().min().unwrap_or(0),
            longest: longest.iter().copied().max().unwrap_or(0),
            frames,
            busy_ns,
            idle_ns,
            least_idle_permille: idle_permille.into_iter().min().unwrap_or(0),
        };
        self.longest.rotate_right(1);
        self.idle_permille.rotate_right(1);
        self.longest[0] = 0;
        (self.begun_ns, self.frames, self.idle_ns) = (now_ns, 0, 0);
        (ended == WINDOWS).then_some(window)
    }

    /// Forgets the queues of the past windows, because a new limit has ended their time.
    pub const fn clear(&mut self) {
        (self.longest, self.ended) = ([0; WINDOWS], 0);
    }
}
