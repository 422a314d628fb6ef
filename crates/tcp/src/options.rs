//! Options that a consumer may set on one connection.

use crate::time::Duration;

/// A request to change how a connection behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketOption {
    /// Nagle's algorithm off (`TCP_NODELAY`).
    NoDelay(bool),
    /// Only full segments leave (`TCP_CORK`); ended by `false`.
    Cork(bool),
    /// Probe an idle peer, or do not (`SO_KEEPALIVE` and its three numbers).
    KeepAlive(Option<KeepAlive>),
    /// Give up once data sent, or data that a closed window holds back, has made no progress
    /// for this long (`TCP_USER_TIMEOUT`, RFC 5482); `None` for the host's number of
    /// retransmissions.
    UserTimeout(Option<Duration>),
    /// Acknowledge at once for a while instead of delaying ACKs (`TCP_QUICKACK`).
    QuickAck(bool),
    /// How long an orphan stays in FIN-WAIT-2 (`TCP_LINGER2`); `None` for the host's.
    Linger2(Option<Duration>),
}

/// Probing of an idle peer (RFC 9293 §3.8.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without any answer before the connection is given up.
    pub probes: u8,
}

impl Default for KeepAlive {
    fn default() -> KeepAlive {
        // MUST-28 (RFC 9293 §3.8.4): not less than two hours by default.
        KeepAlive { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // tests: MUST-28
    #[test]
    fn keepalive_is_slow_by_default() {
        assert!(KeepAlive::default().idle >= Duration::from_secs(2 * 3600));
    }
}
