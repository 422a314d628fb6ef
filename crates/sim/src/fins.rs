//! A stream has one end: a FIN that is sent again keeps its number.
//!
//! The check looks at what a host sends, whichever of its engines does. It sees what the
//! programs at both ends may miss: a peer that has a FIN ignores the next one (RFC 9293
//! §3.10.7.4 eighth).

use crate::app::Violation;
use crate::trace::describe;
use baton_wire::addr::Tuple;
use baton_wire::packet::{Link, Packet};
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;
use std::collections::BTreeMap;

/// The sequence number behind each stream's FIN, by addresses and ports as the sender has them.
#[derive(Default)]
pub struct Fins(BTreeMap<Tuple, Seq>);

impl Fins {
    /// Looks at a frame that a host sends. A SYN begins another stream.
    ///
    /// # Errors
    /// A FIN has another number than the first one, or data lies behind it.
    pub fn check(&mut self, frame: &[u8], link: Link) -> Result<(), Violation> {
        let Ok(packet) = Packet::parse(frame, link) else { return Ok(()) };
        let tuple =
            Tuple { local: packet.src, remote: packet.dst, local_port: packet.src_port, remote_port: packet.dst_port };
        if packet.flags.contains(Flags::SYN) {
            self.0.remove(&tuple);
            return Ok(());
        }
        let fin = packet.flags.contains(Flags::FIN);
        let end = packet.seq + packet.payload_len + u32::from(fin);
        match self.0.get(&tuple) {
            Some(known) if (fin && end != *known) || (packet.payload_len > 0 && end.after(*known)) => {
                let what = describe(frame, link);
                Err(Violation::BeyondFin(format!("{what}, but a FIN before ended at {}", known.0)))
            }
            None if fin => {
                self.0.insert(tuple, end);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
