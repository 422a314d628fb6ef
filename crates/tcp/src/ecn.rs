//! Congestion signals of the network and the answers to them (RFC 3168 §6.1.2, §6.1.3).

use crate::command::CommandSink;
use crate::manner::Manner;
use crate::segment::Segment;
use crate::tcb::{Reply, Tcb};
use baton_wire::tcp::Flags;

impl Tcb {
    /// RFC 3168 §6.1.2: once the window was reduced, for whatever reason, the first new
    /// data says CWR; on a connection that agreed on ECN, and on no other.
    pub(crate) fn window_was_cut(&mut self) {
        self.is.untold |= self.is.ecn;
        if self.is.ecn {
            self.manner.set(Manner::CWR, true);
        }
    }

    /// A CE mark is echoed in every ACK until the peer says CWR. A segment that
    /// has both starts a new echo.
    pub(crate) fn process_ce(&mut self, seg: &Segment, reply: &mut Reply, out: &mut impl CommandSink) {
        if !self.is.ecn {
            return;
        }
        let echo = seg.ce || (self.manner.has(Manner::ECE) && !seg.flags.contains(Flags::CWR));
        if echo != self.manner.has(Manner::ECE) {
            self.manner.set(Manner::ECE, echo);
            self.is.untold = true;
            self.tell_transmit(out);
            reply.ack_now |= echo;
        }
    }
}
