//! An attacker that knows addresses and ports of connections, but not their sequence numbers,
//! and sends segments with the address of one end (RFC 5961 §1.1, RFC 5927 §1).
//!
//! The forged sequence numbers are so far off that by those RFCs the only effect may be an
//! acknowledgment.

use crate::nic::seal;
use baton_wire::packet::{Link, Packet};
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

/// Farther than any byte in flight or in a window here.
const FAR: std::ops::Range<u32> = 1 << 24..1 << 30;

/// A segment with the addresses and ports of `frame`; `None` if that is no segment of an open
/// connection.
pub fn forge(frame: &[u8], link: Link, rng: &mut fastrand::Rng) -> Option<Vec<u8>> {
    let packet = Packet::parse(frame, link).ok()?;
    if !packet.flags.contains(Flags::ACK) || packet.flags.intersects(Flags::SYN | Flags::RST) {
        return None;
    }
    let far = rng.u32(FAR);
    let off = |seq: Seq, rng: &mut fastrand::Rng| if rng.bool() { seq + far } else { seq - far };
    let (seq, ack, flags) = match rng.u8(..4) {
        0 => (packet.seq + far, packet.ack, Flags::SYN),
        1 => (off(packet.seq, rng), packet.ack, Flags::RST),
        2 => (packet.seq, packet.ack + far, Flags::ACK),
        _ => (off(packet.seq, rng), off(packet.ack, rng), Flags::ACK | Flags::FIN),
    };
    let mut out = frame[..usize::from(packet.payload_offset)].to_vec();
    let tcp = usize::from(packet.tcp_offset);
    out[tcp + 4..tcp + 8].copy_from_slice(&seq.0.to_be_bytes());
    out[tcp + 8..tcp + 12].copy_from_slice(&ack.0.to_be_bytes());
    out[tcp + 13] = flags.0 as u8;
    seal(&mut out, &packet, 0);
    Some(out)
}

#[cfg(test)]
mod tests {
    use crate::plain::{exchange, world};
    use crate::world::World;
    use baton_tcp::time::Duration;

    #[test]
    fn forged_segments_change_nothing() {
        let mut config = world(vec![exchange(Duration::ZERO, 300_000, 300_000)]);
        config.forged = crate::chance::Ppm(300_000);
        let summary = World::new(config).and_then(World::run).unwrap_or_else(|violation| panic!("{violation}"));
        assert!(summary.forged > 50, "{summary:?}");
        assert_eq!(summary.bytes, 600_000);
    }
}
