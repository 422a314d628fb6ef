//! States of a neighbour, and what brings it from one to another.

/// Reachability of a neighbour; the parent's picture shows the transitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum State {
    Incomplete,
    Reachable,
    Stale,
    Delay,
    Probe,
    Failed,
}

impl State {
    /// A link address is known.
    pub(super) fn is_resolved(self) -> bool {
        !matches!(self, State::Incomplete | State::Failed)
    }

    /// The state once a packet is to go to the neighbour.
    pub(super) fn on_use(self) -> State {
        match self {
            State::Stale => State::Delay,
            State::Failed => State::Incomplete,
            other => other,
        }
    }

    /// The state after the timer ran out: `held` by connections or not,
    /// `spent` if the last of its solicitations went unanswered.
    pub(super) fn on_expiry(self, held: bool, spent: bool) -> State {
        match (self, spent) {
            (State::Incomplete, true) => State::Failed,
            (State::Probe, true) if held => State::Incomplete,
            (State::Probe, true) => State::Failed,
            (State::Delay, _) => State::Probe,
            (State::Reachable, _) if held => State::Probe,
            (State::Reachable, _) => State::Stale,
            (other, _) => other,
        }
    }

    /// The state after a message that names the neighbour's link address
    /// (RFC 4861 §7.2.3 and §7.2.5), and whether that address is taken over.
    pub(super) fn on_news(self, news: News) -> (State, bool) {
        let fresh = if news.solicited { State::Reachable } else { State::Stale };
        match (self.is_resolved(), news.differs, news.overrides) {
            (false, _, _) => (fresh, true),
            (true, false, _) if news.solicited => (State::Reachable, false),
            (true, false, _) => (self, false),
            (true, true, true) => (fresh, true),
            (true, true, false) if self == State::Reachable && news.doubts => (State::Stale, false),
            (true, true, false) => (self, false),
        }
    }
}

/// News of a neighbour in a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct News {
    /// The address differs from the known one.
    pub(in super::super) differs: bool,
    /// It answers a question of ours, so both directions work.
    pub(in super::super) solicited: bool,
    /// It may replace an address that is known.
    pub(in super::super) overrides: bool,
    /// If it may not, it still casts doubt on it (RFC 4861 §7.2.5).
    pub(in super::super) doubts: bool,
}

/// Where news came from, which decides what it may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Source {
    /// An ARP packet: replaces any address older than a second, as on Linux.
    Arp {
        /// A reply sent to us alone.
        solicited: bool,
    },
    /// A neighbour solicitation's source link address option: it overrides.
    Solicitation,
    /// A neighbour advertisement with its flags.
    Advertisement { solicited: bool, overrides: bool },
    /// The link source of a frame with a SYN: hearsay, replaces only what no
    /// connection uses and nothing confirms.
    Frame,
}
