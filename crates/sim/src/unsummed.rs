//! Worlds in which hosts go without checksums (LA §4.2), and damage that passes for the segments of
//! those who do.

use crate::chance::{Ppm, pick};
use crate::config::WorldConfig;
use baton_wire::checksum;
use baton_wire::packet::{Link, Packet};
use baton_wire::tcp::unsummed::mark;

/// A generator of its own, so that worlds with checksums stay the same.
const SUMS: u64 = 0x7375_6d73;

/// The same world, in which one host or both want to go without checksums. If both do, the links are
/// as good as the hosts take them for; else segments are damaged and marked on the way.
pub fn without_checksums(mut config: WorldConfig) -> WorldConfig {
    let mut rng = fastrand::Rng::with_seed(config.seed ^ SUMS);
    let who = pick(&mut rng, &[[true, true], [true, true], [true, false], [false, true]]);
    for (host, wants) in config.hosts.iter_mut().zip(who) {
        host.engine.tcp.unsummed = wants;
        // A port that sums leaves nothing to save, and its engine does not ask.
        if who == [true; 2] {
            host.port.capabilities.tx_checksum = false;
            host.port.capabilities.tx_gso_max = 0;
        }
    }
    for link in &mut config.links {
        if who == [true; 2] {
            link.damaged = Ppm::NEVER;
        } else {
            link.unsummed = Ppm(rng.u32(300..30_000));
        }
    }
    config
}

/// Damages the payload of a segment so that no checksum could find it right, and marks it; false,
/// with nothing changed, if the frame holds no payload of TCP.
pub fn damage(frame: &mut [u8], link: Link, rng: &mut fastrand::Rng) -> bool {
    let Ok(packet) = Packet::parse(frame, link) else { return false };
    let payload = usize::from(packet.payload_offset)..usize::from(packet.payload_offset) + packet.payload_len as usize;
    if payload.is_empty() {
        return false;
    }
    let tcp = usize::from(packet.tcp_offset);
    let (at, field) = (rng.usize(payload), [frame[tcp + 16], frame[tcp + 17]]);
    let flip = rng.u8(1..);
    frame[at] ^= flip;
    mark(&mut frame[tcp..]);
    let sum = u64::from(packet.header_sum(frame)) + u64::from(checksum::sum(packet.payload(frame)));
    let found = checksum::fold64(sum) != 0xffff;
    if !found {
        frame[at] ^= flip;
        frame[tcp + 16..tcp + 18].copy_from_slice(&field);
    }
    found
}
