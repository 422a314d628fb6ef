//! What a consumer may ask of one connection.

use crate::command::CommandSink;
use crate::state::State;
use crate::tcb::{Context, Tcb};
use crate::time::Duration;
use crate::timers::Timer;

/// A request to change how a connection behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketOption {
    /// Nagle's algorithm off (`TCP_NODELAY`).
    NoDelay(bool),
    /// Only full segments leave (`TCP_CORK`); ended by `false`.
    Cork(bool),
    /// Probe an idle peer, or do not (`SO_KEEPALIVE` and its three numbers).
    KeepAlive(Option<KeepAlive>),
    /// Give up once data sent, or data that a closed window holds back, has made
    /// no progress for so long (`TCP_USER_TIMEOUT`, RFC 5482); `None` for the
    /// host's number of retransmissions.
    UserTimeout(Option<Duration>),
    /// Acknowledge at once for a while instead of waiting for company
    /// (`TCP_QUICKACK`).
    QuickAck(bool),
    /// Stay of an orphan in FIN-WAIT-2 (`TCP_LINGER2`); `None` for the host's.
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

impl Tcb {
    /// Changes how the connection behaves, from now on.
    pub fn set_option(&mut self, _cx: &mut Context<'_>, option: SocketOption, out: &mut impl CommandSink) {
        if self.is_closed() || self.state == State::TimeWait {
            return;
        }
        match option {
            // MUST-17 (RFC 9293 §3.7.4): Nagle's algorithm can be turned off.
            SocketOption::NoDelay(on) => self.is.nodelay = on,
            SocketOption::Cork(on) => self.is.cork = on,
            SocketOption::QuickAck(on) => {
                self.ack.set_quick(on);
                if on && self.timers.is_armed(Timer::DelayedAck) {
                    self.send_ack(None, out);
                }
            }
            // MUST-24 (RFC 9293 §3.8.4): on and off, one connection at a time.
            SocketOption::KeepAlive(keepalive) => {
                let rare = self.rare();
                rare.keepalive = keepalive;
                rare.keepalive_sent = 0;
                self.arm_keepalive(self.last_heard);
            }
            SocketOption::UserTimeout(timeout) => {
                self.rare().user_timeout = timeout;
                self.arm_user_timeout();
            }
            SocketOption::Linger2(stay) => self.rare().linger2 = stay,
        }
        if matches!(option, SocketOption::NoDelay(_) | SocketOption::Cork(_)) {
            self.is.untold = true;
            // tcp(7): TCP_NODELAY flushes what is pending, also what the cork holds.
            self.tell_context(option == SocketOption::NoDelay(true), out);
        }
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
