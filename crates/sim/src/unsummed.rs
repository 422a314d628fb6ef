//! Worlds in which hosts go without checksums (LA §4.2).

use crate::chance::{Ppm, pick};
use crate::config::WorldConfig;

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
