//! Places of an engine by what connections are about to send: the rest of their responses, then that of
//! their lives.
//!
//! A connection sends in responses: a response is what it sends from one message of its peer to the next.
//! Where all clients ask as soon as they are answered, all connections have turns equally often, and only
//! their responses differ. Like lives these have a decreasing hazard: the more of one was sent, the more is
//! to come. So a [`Prospect`] has two parts, each a number of packets and a rate.
//!
//! ```text
//!   packets, bytes received, time --> Course ------+
//!   packets of responses and lives --> Survival ---+--> Prospect --> packets within a time
//! ```
//!
//! A newcomer takes the place of another if, until its response is sent or in the next second, it is expected
//! to send so many more packets that they save more than the move costs. It asks while it sends, so the
//! packets that its program has just handed over count: they are sure to come, and in the place.
//! [`places`](crate::places) knows no responses: it compares rates of lives and of the last second.

use crate::places::Prices;

/// A response's rate counts as if this many packets had come before it at the rate of the connection's life.
/// Chosen: in the simulated testbed 0.5 and 2 give about the same, 8 and more come too late for I and D.
const BEFORE: f64 = 1.0;

/// The rate of a life is one over this time at least, and is taken to last so long, in seconds.
const HORIZON: f64 = 1.0;

/// A connection's packets so far and their times: in its life, and in its present response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Course {
    begun: bool,
    /// When its first packet was counted.
    first_ns: u64,
    /// All its packets.
    packets: u64,
    /// Bytes that its peer had sent when the response began.
    received: u64,
    /// When the response began.
    response_ns: u64,
    /// The response's packets.
    response: u64,
}

impl Course {
    /// Counts packets that its program hands over at a time, in nanoseconds, which never runs back, when the
    /// peer had sent `received` bytes in all. Returns the packets of the response that has ended by this, if
    /// one has.
    pub fn add(&mut self, now_ns: u64, packets: u64, received: u64) -> Option<u64> {
        if !self.begun {
            *self = Course { begun: true, first_ns: now_ns, response_ns: now_ns, received, ..Course::default() };
        }
        let ended = (received != self.received).then_some(self.response);
        if ended.is_some() {
            (self.received, self.response_ns, self.response) = (received, now_ns, 0);
        }
        self.packets = self.packets.saturating_add(packets);
        self.response = self.response.saturating_add(packets);
        ended
    }

    /// All packets that were counted.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Packets of the present response.
    pub fn response(&self) -> u64 {
        self.response
    }

    /// The prospect if so many packets of the response and of the life are still to come, those that are
    /// handed over and not sent yet included.
    pub fn prospect(&self, response: u64, life: u64, now_ns: u64) -> Prospect {
        let age = seconds(now_ns.saturating_sub(self.first_ns)).max(HORIZON);
        let of_life = self.packets.max(1) as f64 / age;
        let since = seconds(now_ns.saturating_sub(self.response_ns));
        let of_response = (self.response as f64 + BEFORE) / (since + BEFORE / of_life);
        Prospect {
            response: Part { packets: response as f64, per_second: of_response },
            life: Part { packets: life as f64, per_second: of_life },
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Packets that are expected, and how fast they come.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Part {
    packets: f64,
    per_second: f64,
}

impl Part {
    fn within(self, seconds: f64) -> f64 {
        self.packets.min(self.per_second * seconds)
    }
}

/// The packets that a connection is expected to send, and how fast.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prospect {
    response: Part,
    life: Part,
}

impl Prospect {
    /// Packets to come in all: a life is no shorter than its present response.
    pub fn packets(&self) -> u64 {
        self.response.packets.max(self.life.packets) as u64
    }

    /// Packets within a time in seconds.
    pub fn within(&self, seconds: f64) -> f64 {
        let most = self.response.packets.max(self.life.packets);
        (self.response.within(seconds) + self.life.within(seconds)).min(most)
    }

    /// Packets that it is expected to send more than another, until its response is sent, or in the time that
    /// the rate of its life is taken to last, whichever are more.
    pub fn more_than(&self, other: &Prospect) -> f64 {
        let times = [self.response.packets / self.response.per_second, HORIZON];
        times.map(|time| self.within(time) - other.within(time)).into_iter().fold(0.0, f64::max)
    }

    /// Names the connection whose place it takes, of those that are `there`: the one over which it is expected
    /// to send most packets more, if these save more than a move costs. Two that are expected to send the same
    /// never take the place of each other.
    pub fn takes_over<T>(&self, there: impl IntoIterator<Item = (T, Prospect)>, prices: Prices) -> Option<T> {
        let compared = there.into_iter().map(|(holder, prospect)| (holder, self.more_than(&prospect)));
        let (loser, more) = compared.max_by(|one, other| one.1.total_cmp(&other.1))?;
        (more * f64::from(prices.saving_ns) > f64::from(prices.move_ns)).then_some(loser)
    }
}
