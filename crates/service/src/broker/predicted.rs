//! A connection as the rule `predict` sees it.

use baton_ipc::engine::monotonic;
use baton_policy::conditions::Facts;
use baton_policy::places::{Pace, Prices};
use baton_policy::rules::Policy;
use baton_policy::survival::Class;

/// A connection that a rule `predict` is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Predicted {
    /// Its life table.
    pub class: Class,
    /// The prices of its rule.
    pub prices: Prices,
    /// Packets that it had sent when it last left the kernel.
    pub before_engine: u64,
    /// Packets that it had sent when it last left an engine.
    pub before_kernel: u64,
    /// Bytes that count as a packet in the engine.
    pub bytes_each: u64,
    /// How fast it sends.
    pub pace: Pace,
}

impl Predicted {
    /// The view of a policy on a connection, if a rule `predict` is for it.
    pub fn of(policy: &Policy, facts: &Facts) -> Option<Predicted> {
        let (class, prices) = policy.predicted(facts)?;
        let (packets, bytes) = (facts.sends.unwrap_or(0), facts.bytes.unwrap_or(0));
        let mut pace = Pace::default();
        let begun = monotonic().saturating_sub(facts.age_us.unwrap_or(0).saturating_mul(1000));
        pace.add(begun, packets.try_into().unwrap_or(u32::MAX));
        Some(Predicted {
            class,
            prices,
            before_engine: packets,
            before_kernel: packets,
            bytes_each: (bytes / packets.max(1)).clamp(1, 64 << 10),
            pace,
        })
    }

    /// Notes that it has sent this many packets by now.
    pub fn follow(&mut self, packets: u64) {
        let more = packets.saturating_sub(self.pace.packets());
        self.pace.add(monotonic(), more.try_into().unwrap_or(u32::MAX));
    }
}
