//! The connections of a capture, as bursts of one packet.

use crate::clients::Burst;
use baton_analyse::read::{Frame, Input, Reader};
use baton_wire::packet::{Checks, Link, Packet};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// The folder of captures beside the repository. A worktree may stand one level deeper.
pub fn directory() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    [root.join("../shared/pcaps"), root.join("../../shared/pcaps")].into_iter().find(|place| place.is_dir())
}

/// The TCP segments of a capture; a connection ends with its last one. Where the clock runs back, time
/// stands still.
pub fn bursts(path: &Path) -> Vec<Burst> {
    let mut reader = Reader::new(Input::open(path, &Default::default()).expect("the capture opens"));
    let (mut numbers, mut bursts, mut clock) = (HashMap::new(), Vec::new(), 0);
    let mut take = |frame: &Frame<'_>| {
        let checks = Checks { ip_checksum: false, whole: false };
        let Ok(packet) = Packet::parse_with(frame.data, Link::Ethernet, checks) else { return };
        let (one, other) = ((packet.src, packet.src_port), (packet.dst, packet.dst_port));
        let ends = (one.min(other), one.max(other));
        let next = numbers.len() as u32;
        clock = frame.time_ns.max(clock);
        let connection = *numbers.entry(ends).or_insert(next);
        bursts.push(Burst { at_ns: clock, connection, packets: 1, ends: false });
    };
    while reader.read(&mut take).expect("the capture is whole") {}
    let mut seen = HashSet::new();
    for burst in bursts.iter_mut().rev() {
        burst.ends = seen.insert(burst.connection);
    }
    bursts
}

/// The most connections that there are at a time.
pub fn most_at_once(bursts: &[Burst]) -> usize {
    let (mut there, mut most) = (HashSet::new(), 0);
    for burst in bursts {
        there.insert(burst.connection);
        most = most.max(there.len());
        if burst.ends {
            there.remove(&burst.connection);
        }
    }
    most
}
