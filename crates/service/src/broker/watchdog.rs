//! Engines that run but do nothing. Their connections go home as if the engine had died.
//!
//! Silence is counted in checks, not in time: when the whole machine is suspended, the broker
//! counts no more than the engine sleeps.

use super::{Broker, TICK};
use baton_ipc::order::Order;
use baton_policy::Reason;
use std::time::Duration;

/// After this many silent checks the engine is asked for a sign of life, and again after as many
/// more.
const ASK: u32 = 5;

/// The longest time that an engine's process may take to start.
pub(super) const START: Duration = Duration::from_secs(10);

/// The number of checks in a period. It can differ from the time elapsed, because the whole machine
/// may be suspended.
pub(super) fn looks(time: Duration) -> u32 {
    time.div_duration_f64(TICK) as u32
}

impl Broker {
    /// Checks every engine. Call it once per [`TICK`].
    pub(super) fn look_after_engines(&mut self) {
        for at in 0..self.slots.len() {
            let Some(engine) = &mut self.slots[at].engine else { continue };
            engine.silent += 1;
            let patience = if engine.started { self.config.patience } else { START };
            if engine.silent > looks(patience) {
                self.on_engine_dead(at, Reason::EngineHung);
            } else if engine.started && engine.silent.is_multiple_of(ASK) {
                self.slots[at].tell(&Order::Ask {}, Vec::new());
            }
        }
    }
}
