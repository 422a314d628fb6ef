//! State that few connections need, boxed once one does: options that a consumer set, the
//! timers that go with them, urgent data, a path smaller than its link, a reset that waits.

use crate::options::KeepAlive;
use crate::time::{Duration, Instant};
use baton_wire::seq::Seq;

/// State that only few connections have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rare {
    // MUST-25 (RFC 9293 §3.8.4): off unless asked for.
    pub keepalive: Option<KeepAlive>,
    /// Keepalive probes sent since the peer was last heard.
    pub keepalive_sent: u8,
    /// When the last of them was sent.
    pub keepalive_at: Instant,
    pub user_timeout: Option<Duration>,
    pub linger2: Option<Duration>,
    /// Since when the oldest unacknowledged byte makes no progress.
    pub stalled_since: Instant,
    /// When the user timeout is looked at next.
    pub user_at: Instant,
    /// When a larger packet is tried on the path again (RFC 1191 §6.3).
    pub path_mtu_at: Instant,
    /// Our timestamps ticked in microseconds before we took the connection over.
    pub ts_micros: bool,
    /// RCV.UP of RFC 9293 §3.8.5, once urgent data was announced.
    pub rcv_up: Option<Seq>,
    /// The peer reset it; data that it had sent before waits for buffers.
    pub reset_waits: bool,
}

impl Rare {
    pub fn new(now: Instant) -> Rare {
        Rare {
            keepalive: None,
            keepalive_sent: 0,
            keepalive_at: now,
            user_timeout: None,
            linger2: None,
            stalled_since: now,
            user_at: Instant::NEVER,
            path_mtu_at: Instant::NEVER,
            ts_micros: false,
            rcv_up: None,
            reset_waits: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // tests: MUST-25
    #[test]
    fn keepalive_is_off_by_default() {
        assert_eq!(Rare::new(Instant(0)).keepalive, None);
    }
}
