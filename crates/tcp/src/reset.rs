//! Resets for segments that belong to no connection (RFC 9293 §3.10.7.1).

use crate::command::Command;
use crate::segment::Segment;
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

/// The reset that answers `seg` if there is no connection for it, as a
/// [`Command::Control`]; `None` for a reset, which is never answered.
pub fn reset_for(seg: &Segment) -> Option<Command> {
    if seg.flags.contains(Flags::RST) {
        return None;
    }
    let (flags, seq, ack) = if seg.flags.contains(Flags::ACK) {
        (Flags::RST, seg.ack, Seq(0))
    } else {
        (Flags::RST | Flags::ACK, Seq(0), seg.end())
    };
    Some(Command::Control { flags, seq, ack, wnd: 0, syn: None, ts_ecr: None })
}
