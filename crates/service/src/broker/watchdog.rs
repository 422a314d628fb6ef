//! Engines that live and do nothing: what they have goes home as if they had died.
//!
//! Silence is counted in looks, not in time: when the whole machine stands still, an engine
//! has no more of it than the broker.

use super::{Broker, TICK};
use baton_socket::service::order::Order;
use std::time::Duration;

/// Silent looks after which an engine is asked whether it is there, again and again.
const ASK: u32 = 5;

/// Longest wait for an engine's process to start.
pub(super) const START: Duration = Duration::from_secs(10);

/// Looks in a time: the whole machine may stand still for longer.
pub(super) fn looks(time: Duration) -> u32 {
    time.div_duration_f64(TICK) as u32
}

impl Broker {
    /// To be called once a [`TICK`].
    pub(super) fn look_after_engines(&mut self) {
        for at in 0..self.slots.len() {
            let Some(engine) = &mut self.slots[at].engine else { continue };
            engine.silent += 1;
            let patience = if engine.started { self.config.patience } else { START };
            if engine.silent > looks(patience) {
                self.on_engine_dead(at, "engine-hung");
            } else if engine.started && engine.silent.is_multiple_of(ASK) {
                self.slots[at].tell(&Order::Ask {}, Vec::new());
            }
        }
    }
}
