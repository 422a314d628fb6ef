//! The reports of an engine's load, and the limit that follows from the last one.

use baton_ipc::load::EngineLoad;
use baton_ipc::order::Order;
use baton_policy::load::State as Control;
use baton_policy::watermarks::Choice;
use std::collections::VecDeque;
use std::time::Instant;

/// Entries of an engine's history: with one a second, about two minutes.
const HISTORY: usize = 128;

/// The load of an engine by its reports.
#[derive(Default)]
pub(super) struct Load {
    history: VecDeque<(Instant, EngineLoad)>,
    /// The last report in INCREASE.
    risen: Option<Instant>,
}

impl Load {
    /// Takes a report, and forgets the oldest if there are many.
    pub fn push(&mut self, now: Instant, load: EngineLoad) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back((now, load));
        if load.state == Control::Increase {
            self.risen = Some(now);
        }
    }

    /// True if the limit has risen since a time.
    pub fn has_risen_since(&self, then: Instant) -> bool {
        self.risen.is_some_and(|risen| risen >= then)
    }

    /// The last report. `None` if the engine does not control its load.
    pub fn last(&self) -> Option<&EngineLoad> {
        self.history.back().map(|(_, load)| load)
    }

    /// The reports that are kept, the oldest first.
    pub fn history(&self) -> impl Iterator<Item = &(Instant, EngineLoad)> {
        self.history.iter()
    }

    /// The most connections that the load allows.
    pub fn limit(&self) -> u64 {
        match self.last() {
            None => u64::MAX,
            Some(load) if load.state == Control::Decrease => 0,
            Some(load) => load.soft_limit.into(),
        }
    }
}

/// The order by which an engine's process controls its load, if it is to.
pub(super) fn order(choice: Choice) -> Option<Order> {
    match choice {
        Choice::Off => None,
        Choice::Auto => Some(Order::Load { fixed: None }),
        Choice::Fixed(marks) => Some(Order::Load { fixed: Some((marks.low(), marks.high())) }),
    }
}
