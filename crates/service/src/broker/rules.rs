//! Changes of firewall rules. Connections come home, so that the new rules apply to them, and
//! return to the engine once their packets have passed those rules.
//!
//! ```text
//!   rules change --> all come home (`rules-changed`); nothing moves during the pause
//!   pause over, packets received and sent in the kernel --> Prepare --> planned anew --> engine
//! ```
//!
//! If rules changed all the time, connections would move back and forth all the time. So a change
//! soon after a pause has ended doubles the next pause, up to [`LONGEST`], and a change during a
//! pause restarts that pause. The first change causes no pause, because most changes come alone. A
//! change outside a pause that brings no connection home does not count.

use super::Broker;
use super::connection::{Connection, Return};
use super::state::{Goal, State};
use baton_journal::{Kind, Level};
use baton_policy::Reason;
use std::time::{Duration, Instant};

/// The shortest and the longest pause.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(256);
/// After this long without a change, the next one counts as the first.
const QUIET: Duration = Duration::from_secs(600);

/// When connections may move, with respect to changes of the rules.
#[derive(Default, Debug)]
pub(super) struct Churn {
    pause: Duration,
    /// When the current or the last pause ends.
    until: Option<Instant>,
}

impl Churn {
    /// The rules have changed. `brings_home` says whether that brings connections home.
    pub fn on_change(&mut self, now: Instant, brings_home: bool) {
        match self.until {
            Some(until) if now < until => {}
            _ if !brings_home => return,
            Some(until) if now < until + QUIET => self.pause = (self.pause * 2).clamp(SHORTEST, LONGEST),
            _ => self.pause = Duration::ZERO,
        }
        self.until = Some(now + self.pause);
    }

    /// Returns true if no connection may move to the engine now.
    pub fn is_pausing(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl Connection {
    /// Returns true if the connection is in the kernel because rules changed, and so may return.
    fn is_home_for_rules(&self) -> bool {
        matches!(self.state, State::Kernel(_) | State::Preparing(_)) && self.why == RULES_CHANGED
    }

    /// The connection could not return now. It is tried again after more packets have passed.
    pub fn may_return_later(&mut self) {
        self.returns = self.is_home_for_rules().then_some(Return::Waits);
    }

    /// Returns true, once, when the connection may return: its packets have passed the new rules.
    fn returns(&mut self) -> bool {
        let Some(waits) = self.returns.filter(|_| matches!(self.state, State::Kernel(_))) else { return false };
        let Ok(now) = baton_kernel::segments(&*self.fd) else {
            // The connection could not be moved either.
            self.returns = None;
            return false;
        };
        match waits {
            Return::Waits => self.returns = Some(Return::Since(now)),
            Return::Since(then) if now[0] != then[0] && now[1] != then[1] => {
                self.returns = None;
                return true;
            }
            Return::Since(_) => {}
        }
        false
    }
}

/// The code for coming home because rules changed, and for not moving during a pause.
pub(super) const RULES_CHANGED: Reason = Reason::RulesChanged;

impl Broker {
    /// Brings every connection home, or all of a network namespace other than the service's, where the rules have
    /// changed.
    pub(super) fn on_rules_changed(&mut self, net: Option<u64>) {
        let mut away = Vec::new();
        let concerned = |connection: &&mut Connection| net.is_none_or(|net| connection.plan.net() == net);
        for connection in self.connections.all_mut().filter(concerned) {
            match connection.state {
                State::Engine(_) | State::Starting(_) | State::Bringing(_) | State::Holding(_) | State::Paired(_) => {
                    away.push(connection.id);
                    connection.returns = Some(Return::Waits);
                }
                _ if connection.is_home_for_rules() => connection.returns = Some(Return::Waits),
                _ => {}
            }
        }
        self.churn.on_change(Instant::now(), !away.is_empty());
        self.log(Level::Info, Kind::HOST, |event| {
            let text = format!("the firewall's rules changed; {} connections come home", away.len());
            event.reason(RULES_CHANGED).text(text)
        });
        away.into_iter().for_each(|id| self.evict(id, Goal::Home, RULES_CHANGED));
    }

    /// Returns connections that came home because of new rules to the engine when they may. Call it
    /// once per [`TICK`](super::TICK).
    pub(super) fn return_by_new_rules(&mut self) {
        if self.stopping || self.churn.is_pausing(Instant::now()) {
            return;
        }
        let back =
            self.connections.all_mut().filter_map(|connection| connection.returns().then_some(connection.id)).collect();
        self.prepare_again(back);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_comes_alone_pauses_nothing() {
        let (mut churn, begun) = (Churn::default(), Instant::now());
        assert!(!churn.is_pausing(begun));
        for hours in 0..5 {
            let now = begun + Duration::from_secs(hours * 3600);
            churn.on_change(now, true);
            assert!(!churn.is_pausing(now));
        }
    }

    #[test]
    fn changes_that_bring_nothing_home_pause_nothing() {
        let (mut churn, begun) = (Churn::default(), Instant::now());
        for ms in 0..500 {
            churn.on_change(begun + Duration::from_millis(ms), false);
            assert!(!churn.is_pausing(begun + Duration::from_millis(ms)));
        }
    }

    #[test]
    fn a_burst_of_changes_is_waited_out() {
        let (mut churn, begun) = (Churn::default(), Instant::now());
        for ms in 0..500 {
            churn.on_change(begun + Duration::from_millis(ms * 10), true);
        }
        let ended = begun + Duration::from_millis(4990);
        assert!(churn.is_pausing(ended + Duration::from_millis(999)));
        assert!(!churn.is_pausing(ended + SHORTEST));
    }

    #[test]
    fn rules_that_change_at_any_rate_let_little_move() {
        // Counts how often a connection could have moved in a day, for several intervals between
        // changes.
        for seconds in [1, 2, 7, 30, 100, 250, 300, 500] {
            let (mut churn, begun) = (Churn::default(), Instant::now());
            let moves = (0..86_400u64).filter(|at| {
                let now = begun + Duration::from_secs(*at);
                let changes = at % seconds == 0;
                let moved = changes && !churn.is_pausing(now);
                if changes {
                    churn.on_change(now, true);
                }
                moved
            });
            let moves = moves.count();
            assert!(moves <= 86_400 / 256 + 10, "{seconds} {moves}");
        }
    }
}
