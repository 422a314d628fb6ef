//! Damage that passes for the segments of hosts that go without checksums (LA §4.2).

use baton_wire::checksum;
use baton_wire::packet::{Link, Packet};
use baton_wire::tcp::unsummed::mark;

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
