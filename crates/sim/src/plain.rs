//! A world without surprises, for tests that change one thing about it.

use crate::chance::Ppm;
use crate::config::{AMPLE_BACKLOG, WorldConfig};
use crate::host::HostConfig;
use crate::link::LinkConfig;
use crate::port::PortConfig;
use crate::script::{Act, Dialogue, Expect, Reader, Script};
use baton_engine::endpoint::{Cidr, InterfaceConfig};
use baton_engine::engine::EngineConfig;
use baton_engine::frame_io::Capabilities;
use baton_tcp::time::Duration;
use baton_wire::addr::Addr;

/// The port that the server listens at.
pub const PORT: u16 = 7;

/// Two hosts, a link of 1 Gb/s and 100 µs, and these dialogues.
pub fn world(dialogues: Vec<Dialogue>) -> WorldConfig {
    let addresses = [1, 2].map(|last| Addr::v4([10, 77, 0, last]));
    let qps = 2 * dialogues.len() as u32 + 8;
    let hosts = [0, 1].map(|i| host(addresses[i], i as u8 + 1, qps));
    WorldConfig {
        seed: 1,
        hosts,
        links: [LinkConfig::default(); 2],
        path_mtu: None,
        forged: Ppm::NEVER,
        addresses,
        listen: (vec![PORT], AMPLE_BACKLOG),
        dialogues,
        safety: Duration::from_secs(1),
    }
}

fn host(addr: Addr, number: u8, qps: u32) -> HostConfig {
    let interface = InterfaceConfig::ethernet([2, 0, 0, 0, 0, number], vec![Cidr { addr, prefix: 24 }]);
    HostConfig {
        engine: EngineConfig::new(interface, [number; 32]),
        port: PortConfig { capabilities: Capabilities::new(1500), join: false, frames: 1024 },
        two_threads: false,
        wake: Duration::ZERO,
        program: Duration::ZERO,
        carry: 1024,
        buffers: (65_536, 65_536),
        qps,
        queue_depth: 16,
        moves: None,
        lends: false,
        watch: None,
    }
}

/// A program that reads all there is and posts as much as it can.
pub fn script(acts: Vec<Act>) -> Script {
    Script { acts, reader: Reader::default(), piece: 1 << 20, keepalive: false, nodelay: true, unposts: 0 }
}

/// Sends `up` and `down`, both at once, and closes.
pub fn exchange(start: Duration, up: u64, down: u64) -> Dialogue {
    Dialogue {
        start,
        port: PORT,
        from_port: 0,
        client: script(vec![Act::Send(up), Act::Shutdown]),
        server: script(vec![Act::Send(down), Act::Shutdown]),
        crossed: false,
        expect: Expect::Complete,
    }
}
