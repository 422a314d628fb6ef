//! Places of an engine that has few go to the connections that gain most by them.
//!
//! A place is worth what it saves in a time. A connection that sends `r` packets a second, of which
//! `e` are still to come, saves `r × saving` a second for `e / r` seconds, and its move costs once. For
//! each second in the place that is
//!
//! ```text
//!   gain = r × saving × (1 − cost / (e × saving))
//! ```
//!
//! This is the index by which places are given out in the order of the greatest gain (Gittins 1979). It
//! is zero where a move does not pay, so it has the rule `predict` in it: hand off if what is still to
//! come saves more than the move costs. For a connection that has a place the cost is spent.
//!
//! Of two connections that have equally many packets to come, the faster one leaves the place sooner to
//! another. So the number of packets alone does not say who is to have a place.

use core::fmt;

/// A packet's saving and a move's cost, in nanoseconds of CPU time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prices {
    /// The cost of a packet in the kernel, less its cost in the engine.
    pub saving_ns: u32,
    /// The cost of a move to the engine and of the one back.
    pub move_ns: u32,
}

impl Default for Prices {
    /// A move costs some 80 µs, and a small answer saves some 2 µs.
    fn default() -> Prices {
        Prices { saving_ns: 2_000, move_ns: 80_000 }
    }
}

/// `saving 2000 ns move 80000 ns`
impl fmt::Display for Prices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "saving {} ns move {} ns", self.saving_ns, self.move_ns)
    }
}

impl Prices {
    /// Reads the words of its text.
    pub fn from_words(words: &[&str]) -> Option<Prices> {
        let ["saving", saving, "ns", "move", cost, "ns"] = words else { return None };
        Some(Prices { saving_ns: saving.parse().ok()?, move_ns: cost.parse().ok()? })
    }

    /// Returns true if a connection that has this many packets to come is worth a move.
    pub fn pays(self, packets: u64) -> bool {
        packets.saturating_mul(self.saving_ns.into()) > self.move_ns.into()
    }

    /// The most packets to come for which a move does not pay; `u64::MAX` if a packet saves nothing.
    pub fn break_even(self) -> u64 {
        u64::from(self.move_ns).checked_div(self.saving_ns.into()).unwrap_or(u64::MAX)
    }

    /// The gain of a place, in nanoseconds of CPU time a second, for a connection that has `packets` to
    /// come and sends `per_second`.
    pub fn gain(self, packets: u64, per_second: u64) -> u64 {
        if !self.pays(packets) {
            return 0;
        }
        let saved = u128::from(packets) * u128::from(self.saving_ns);
        let net = u128::from(per_second) * (saved - u128::from(self.move_ns)) / u128::from(packets);
        net.min(u64::MAX.into()) as u64
    }

    /// Names the connection whose place a newcomer takes, of those that are `there`: the one that gains
    /// least, if the newcomer gains half as much again, and so much more that the difference repays the
    /// move within [`Pace::WINDOW_NS`], for which a pace is taken to last. Between two that gain about the
    /// same, moves would only cost.
    pub fn takes_over<T>(self, newcomer: u64, there: impl IntoIterator<Item = (T, u64)>) -> Option<T> {
        let (least, gain) = there.into_iter().min_by_key(|(_, gain)| *gain)?;
        let more = u128::from(newcomer).saturating_sub(u128::from(gain) * 3 / 2);
        let more_ns = more * u128::from(Pace::WINDOW_NS) / 1_000_000_000;
        (more_ns > self.move_ns.into()).then_some(least)
    }

    /// The gain of one that has its place already.
    pub fn gain_there(self, per_second: u64) -> u64 {
        per_second.saturating_mul(self.saving_ns.into())
    }
}

/// A connection is handed off this many times at most.
pub const MOVES_AT_MOST: u8 = 8;

/// How fast a connection sends: its packets in a sliding window, and in all its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    /// When its first packet was counted.
    first_ns: u64,
    /// All its packets.
    all: u64,
    /// When the window began.
    window_ns: u64,
    /// Packets of the window, and of the one before.
    packets: u32,
    before: u32,
}

impl Pace {
    /// Length of the window, in nanoseconds.
    pub const WINDOW_NS: u64 = 1_000_000_000;

    /// Counts packets sent at a time, which never runs back.
    pub fn add(&mut self, now_ns: u64, packets: u32) {
        if self.all == 0 {
            self.first_ns = now_ns;
        }
        *self = self.at(now_ns);
        self.packets = self.packets.saturating_add(packets);
        self.all += u64::from(packets);
    }

    /// All packets that were counted.
    pub fn packets(self) -> u64 {
        self.all
    }

    /// Packets a second: of late or in all its life, whichever are more. So a burst counts at once, and
    /// a connection that pauses does not lose its place to each one that happens to send then.
    pub fn per_second(self, now_ns: u64) -> u64 {
        let now = self.at(now_ns);
        // The window before this one counts in part, as far as it is within a window's length of now.
        let rest_ns = Self::WINDOW_NS.saturating_sub(now_ns.saturating_sub(now.window_ns));
        let before = u128::from(now.before) * u128::from(rest_ns) / u128::from(Self::WINDOW_NS);
        let of_late = a_second(u128::from(now.packets) + before, Self::WINDOW_NS);
        let life_ns = now_ns.saturating_sub(self.first_ns).max(Self::WINDOW_NS);
        of_late.max(a_second(self.all.into(), life_ns))
    }

    /// The same with the window that `now_ns` is in.
    fn at(self, now_ns: u64) -> Pace {
        let windows = now_ns.saturating_sub(self.window_ns) / Self::WINDOW_NS;
        let window_ns = self.window_ns + windows * Self::WINDOW_NS;
        match windows {
            0 => self,
            1 => Pace { window_ns, packets: 0, before: self.packets, ..self },
            _ => Pace { window_ns, packets: 0, before: 0, ..self },
        }
    }
}

fn a_second(packets: u128, time_ns: u64) -> u64 {
    (packets * 1_000_000_000 / u128::from(time_ns)) as u64
}
