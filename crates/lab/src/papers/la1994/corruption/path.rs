//! The way of a frame from one host's memory to the other's, with one place that damages payload.
//!
//! ```text
//!   memory -> controller, makes the CRC ==link==> switch, checks it ==link==> controller, checks it -> memory
//! ```

use super::damage::{Damage, crc32};
use baton_wire::checksum;
use baton_wire::packet::{Link, Packet};
use baton_wire::tcp::Flags;
use std::fmt;
use std::ops::Range;

/// Where frames are damaged: the four sources of LA §4.2.1. The first is there twice, with the CRC of
/// AAL5, which no switch touches, and with one that each link has for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Between the ports of a switch that passes the CRC on.
    Switch,
    /// Between the ports of a switch that makes the CRC anew.
    Relay,
    /// Between a host's memory and its controller's, on either side.
    Controller,
    /// In a router, which makes the CRC anew.
    Gateway,
    /// On the wire.
    Link,
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 5] = [Source::Switch, Source::Relay, Source::Controller, Source::Gateway, Source::Link];

    /// The kinds of damage that it does.
    pub fn damages(self) -> [Damage; 4] {
        if self == Source::Link { Damage::OF_LINKS } else { Damage::OF_MACHINES }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Switch => "switch, end-to-end CRC",
            Source::Relay => "switch, CRC of each link",
            Source::Controller => "controller",
            Source::Gateway => "gateway",
            Source::Link => "link",
        })
    }
}

/// One of so many frames with payload is damaged.
const ONE_OF: u32 = 8;

/// The path from the sender of data, and what became of its frames.
pub struct Path {
    source: Source,
    damage: Damage,
    rng: fastrand::Rng,
    /// Sequence number of the first byte of data.
    first: u32,
    /// Frames that were damaged.
    pub damaged: u64,
    /// Of these, frames that a CRC found wrong.
    pub by_crc: u64,
    /// Places in the stream of those that arrived.
    pub arrived: Vec<Range<u64>>,
}

impl Path {
    /// A path with this source of damage.
    pub fn new(source: Source, damage: Damage, seed: u64) -> Path {
        let rng = fastrand::Rng::with_seed(seed);
        Path { source, damage, rng, first: 0, damaged: 0, by_crc: 0, arrived: Vec::new() }
    }

    /// Carries a frame; `None` if a station dropped it. `hurts` says whether this one may be damaged.
    pub fn carry(&mut self, mut frame: Vec<u8>, hurts: bool) -> Option<Vec<u8>> {
        if self.source == Source::Gateway {
            lower_ttl(&mut frame);
        }
        let Ok(packet) = Packet::parse(&frame, Link::Ethernet) else { return Some(frame) };
        if hurts && packet.flags.contains(Flags::SYN) {
            self.first = packet.seq.0.wrapping_add(1);
        }
        let payload = usize::from(packet.payload_offset);
        let payload = payload..payload + packet.payload_len as usize;
        if !hurts || payload.is_empty() || self.rng.u32(..ONE_OF) != 0 {
            return Some(frame);
        }
        let mut broken = frame.clone();
        if !self.damage.apply(&mut broken[payload], &mut self.rng) {
            return Some(frame);
        }
        self.damaged += 1;
        // Each station's check before and after the place where the damage is done.
        let early = self.source == Source::Controller && self.rng.bool();
        let sent = if early { &broken } else { &frame };
        let mut check = crc32(sent);
        let on_first_link = if self.source == Source::Link || early { &broken } else { &frame };
        if crc32(on_first_link) != check {
            self.by_crc += 1;
            return None;
        }
        let late = self.source == Source::Controller && !early;
        let on_second_link = if late { &frame } else { &broken };
        if matches!(self.source, Source::Relay | Source::Gateway) {
            check = crc32(on_second_link);
        }
        if crc32(on_second_link) != check {
            self.by_crc += 1;
            return None;
        }
        let start = u64::from(packet.seq.0.wrapping_sub(self.first));
        self.arrived.push(start..start + u64::from(packet.payload_len));
        Some(broken)
    }
}

/// Lowers the time to live of an IPv4 packet, as a router does (RFC 1812 §5.3.1).
fn lower_ttl(frame: &mut [u8]) {
    let Some(ip) = frame.get_mut(14..34).filter(|ip| ip[0] >> 4 == 4) else { return };
    let word = |ip: &[u8]| u16::from_be_bytes([ip[8], ip[9]]);
    let before = word(ip);
    ip[8] = ip[8].saturating_sub(1);
    let sum = checksum::update(u16::from_be_bytes([ip[10], ip[11]]), before, word(ip));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}
