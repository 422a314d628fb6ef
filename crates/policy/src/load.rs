//! Load control: how many connections an engine may have, by the queue in front of it (CH §3.2).
//!
//! ```text
//!              Qlen > Hiwat: lower Soft_Limit
//!    MONITOR ----------------------------------> DECREASE
//!     |  ^ ^ <---------------------------------     ^
//!     |  |             Cnum < Soft_Limit            |
//!     |  | Cnum >= Soft_Limit                       |
//!     |  +---------------- INCREASE ----------------+
//!     +--------------------> ^      Qlen > Hiwat: lower Soft_Limit
//!      Qlen < Lowat: raise Soft_Limit
//! ```
//!
//! The machine has no timer. It runs at the paper's three triggers: a packet arrives, a connection is
//! handed off, or one ends or goes home. Its owner observes `Qlen` and `Cnum` then, and calls
//! [`LoadControl::observe`].
//!
//! The paper leaves open by how much the limit moves. Here it falls by an eighth of the connections
//! that the engine has, and rises by a thirty-second of itself, so it shrinks faster than it grows, as
//! a congestion window does. Far from the right limit the steps are longer: it falls by a quarter if the
//! queue is longer than twice `Hiwat`, and rises by a quarter if the engine could do
//! twice as much. An engine with one connection keeps it.
//!
//! A connection that went home for load may come again in INCREASE only, and after a pause that
//! doubles each time ([`pause_s`]). So it moves at most [`most_moves`] times, whatever the load does.

use core::num::NonZeroU32;

/// Lengths of the queue between which the load is right, in packets: `Lowat` and `Hiwat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    /// `Lowat`: with a shorter queue there is room for more connections.
    low: u32,
    /// `Hiwat`: with a longer queue there are too many.
    high: u32,
}

impl Watermarks {
    /// Any queue is right.
    pub const UNKNOWN: Watermarks = Watermarks { low: 0, high: u32::MAX };

    /// Returns the watermarks, or `None` if `low` is above `high`.
    pub const fn new(low: u32, high: u32) -> Option<Watermarks> {
        if low <= high { Some(Watermarks { low, high }) } else { None }
    }

    /// `Lowat`, in packets.
    pub const fn low(self) -> u32 {
        self.low
    }

    /// `Hiwat`, in packets.
    pub const fn high(self) -> u32 {
        self.high
    }
}

/// The states of CH figure 3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum State {
    /// `MONITOR`: the load is watched.
    #[default]
    Monitor,
    /// `DECREASE`: the limit fell, and connections have to end or go home.
    Decrease,
    /// `INCREASE`: the limit rose, and connections may come.
    Increase,
}

impl State {
    /// All states.
    pub const ALL: [State; 3] = [State::Monitor, State::Decrease, State::Increase];

    /// The paper's name in small letters, for output.
    pub const fn name(self) -> &'static str {
        match self {
            State::Monitor => "monitor",
            State::Decrease => "decrease",
            State::Increase => "increase",
        }
    }
}

/// Observations of an engine at a trigger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observed {
    /// `Qlen`: packets that wait for the engine.
    pub queued: u32,
    /// `Cnum`: connections that the engine has.
    pub connections: u32,
    /// The engine has nothing to do for half of the time.
    pub roomy: bool,
}

/// The load control of one engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadControl {
    hard_limit: NonZeroU32,
    soft_limit: NonZeroU32,
    watermarks: Watermarks,
    state: State,
}

impl LoadControl {
    /// Starts in MONITOR with `Soft_Limit` = `Hard_Limit`, the most connections that there is memory
    /// for.
    pub const fn new(hard_limit: NonZeroU32, watermarks: Watermarks) -> LoadControl {
        LoadControl { hard_limit, soft_limit: hard_limit, watermarks, state: State::Monitor }
    }

    /// `Hard_Limit`, in connections.
    pub const fn hard_limit(&self) -> u32 {
        self.hard_limit.get()
    }

    /// `Soft_Limit`, in connections.
    pub const fn soft_limit(&self) -> u32 {
        self.soft_limit.get()
    }

    /// The watermarks in use.
    pub const fn watermarks(&self) -> Watermarks {
        self.watermarks
    }

    /// The state that it is in now.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Changes the watermarks; state and limit stay.
    pub const fn set_watermarks(&mut self, watermarks: Watermarks) {
        self.watermarks = watermarks;
    }

    /// Takes the transition of CH figure 3 that the observation calls for, at most one. Returns
    /// true if `Soft_Limit` changed, so that those who hand off connections have to be told.
    pub fn observe(&mut self, observed: Observed) -> bool {
        let Observed { queued, connections, roomy } = observed;
        let limit = self.soft_limit;
        match self.state {
            State::Monitor | State::Increase if queued > self.watermarks.high && connections > 1 => {
                let far = queued > self.watermarks.high.saturating_mul(2);
                self.soft_limit = lowered(limit, connections, far);
                self.state = State::Decrease;
            }
            State::Monitor if queued < self.watermarks.low && limit < self.hard_limit => {
                self.soft_limit = raised(limit, self.hard_limit, roomy);
                self.state = State::Increase;
            }
            State::Increase if connections >= limit.get() => self.state = State::Monitor,
            State::Decrease if connections < limit.get() => self.state = State::Monitor,
            State::Monitor | State::Increase | State::Decrease => {}
        }
        self.soft_limit != limit
    }

    /// Takes the transition that the number of connections alone calls for: one came or went.
    pub fn count(&mut self, connections: u32) {
        // Between the watermarks the queue calls for nothing.
        self.observe(Observed { queued: self.watermarks.high, connections, roomy: false });
    }

    /// Returns true if another connection may come to an engine that has this many. In DECREASE none
    /// may, so that a newcomer does not take the place that one left before that was observed.
    pub const fn admits(&self, connections: u32) -> bool {
        match self.state {
            State::Decrease => false,
            State::Monitor | State::Increase => connections < self.soft_limit.get(),
        }
    }

    /// How many connections have to go home before DECREASE can be left; 0 in the other states.
    pub const fn excess(&self, connections: u32) -> u32 {
        match self.state {
            State::Decrease => (connections + 1).saturating_sub(self.soft_limit.get()),
            State::Monitor | State::Increase => 0,
        }
    }
}

/// At most the connections that the engine has, and at least 2, so that DECREASE can be left while
/// one is there: a single connection that fills the queue has its own congestion control for that.
fn lowered(limit: NonZeroU32, connections: u32, far: bool) -> NonZeroU32 {
    let there = limit.get().min(connections);
    let step = if far { there / 4 } else { there / 8 };
    NonZeroU32::new(there.saturating_sub(step.max(1)).max(2).min(limit.get())).unwrap_or(NonZeroU32::MIN)
}

fn raised(limit: NonZeroU32, hard_limit: NonZeroU32, far: bool) -> NonZeroU32 {
    let step = if far { limit.get() / 4 } else { limit.get() / 32 };
    limit.saturating_add(step.max(1)).min(hard_limit)
}

/// The longest pause of a connection between two returns to the engine, in seconds.
const LONGEST_PAUSE_S: u64 = 256;

/// How long a connection stays at home that has come home for load this many times, in seconds.
pub const fn pause_s(times: u32) -> u64 {
    match times {
        0 => 0,
        1..=8 => 1 << (times - 1),
        _ => LONGEST_PAUSE_S,
    }
}

/// The most moves that load control makes with a connection in this many seconds: each pause allows
/// a return, and each return a way home. It makes no more than 20 in ten minutes.
pub const fn most_moves(seconds: u64) -> u64 {
    let (mut moves, mut past, mut times) = (2, 0, 1);
    loop {
        past += pause_s(times);
        if past > seconds {
            return moves;
        }
        moves += 2;
        times += 1;
    }
}
