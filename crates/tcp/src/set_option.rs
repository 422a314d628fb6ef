//! Setting an option of a connection.

use crate::command::CommandSink;
use crate::manner::Manner;
use crate::options::SocketOption;
use crate::state::State;
use crate::tcb::{Context, Tcb};
use crate::timers::Timer;

impl Tcb {
    /// Changes how the connection behaves, from now on.
    pub fn set_option(&mut self, _cx: &mut Context<'_>, option: SocketOption, out: &mut impl CommandSink) {
        if self.is_closed() || self.state == State::TimeWait {
            return;
        }
        match option {
            // MUST-17 (RFC 9293 §3.7.4): Nagle's algorithm can be turned off.
            SocketOption::NoDelay(on) => self.manner.set(Manner::NODELAY, on),
            SocketOption::Cork(on) => self.manner.set(Manner::CORK, on),
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
