//! One line for a frame, for a person who follows a run.

use baton_wire::packet::{Link, Packet};
use std::fmt::Write as _;

/// A frame in words, in the manner of tcpdump.
pub fn describe(frame: &[u8], link: Link) -> String {
    let Ok(packet) = Packet::parse(frame, link) else { return format!("{} bytes, not TCP", frame.len()) };
    let mut line = format!(
        "{} > {} {:?} seq {} len {} ack {} win {}",
        packet.src_port, packet.dst_port, packet.flags, packet.seq.0, packet.payload_len, packet.ack.0, packet.window,
    );
    for option in packet.options(frame).flatten() {
        write!(line, " {option:?}").unwrap_or_default();
    }
    if packet.ecn == 3 {
        line.push_str(" CE");
    }
    line
}
