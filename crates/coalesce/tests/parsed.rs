//! One look at a frame is as good as two: what an endpoint's parse found says the same
//! as the coalescer's own.

mod pair;
mod slow;
mod traffic;

use baton_coalesce::{Checksums, Class, Link, classify};
use baton_wire::packet::{self, Checks, Packet};
use traffic::Traffic;

#[test]
fn what_a_parse_found_says_the_same() {
    let (mut data, mut bypassed) = (0, 0);
    for seed in 0..400 {
        let (mut traffic, mut frames) = (Traffic::new(seed), Vec::new());
        while frames.len() < 100 {
            traffic.burst(&mut frames);
        }
        for frame in &frames {
            let seen = pair::frame(frame);
            let link = match seen.link {
                Link::Ethernet => packet::Link::Ethernet,
                Link::Ip => packet::Link::Ip,
                Link::Read { .. } => continue,
            };
            // Truncated frames and those without a length are no endpoint's.
            let checks = Checks { ip_checksum: false, whole: true };
            let Ok(packet) = Packet::parse_with(seen.bytes, link, checks) else { continue };
            let class = Class::of_packet(&packet, seen.bytes);
            assert_eq!(class, classify(&seen, Checksums::Trust), "seed {seed}");
            match class {
                Class::Data(_) => data += 1,
                Class::Bypass { .. } => bypassed += 1,
            }
        }
    }
    assert!(data > 10_000 && bypassed > 200, "{data} {bypassed}");
}
