//! What an engine needs to know to begin, except for its device: a part of
//! [`Order::Start`](super::order::Order::Start).

use crate::codec::Field;
use baton_engine::tuning::EngineTuning;

/// An engine's interface, clock and choices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begin {
    /// MTU of the interface, in bytes.
    pub mtu: u16,
    /// The interface's link address.
    pub mac: [u8; 6],
    /// The engine's time 0, in nanoseconds of `CLOCK_MONOTONIC`.
    pub base: u64,
    /// The administrator's choices.
    pub tuning: EngineTuning,
}

/// Version 1 of the protocol has the most connections before the engine's time 0, and the other
/// choices after it. Choices that no engine can follow are not decoded.
impl Field for Begin {
    fn put(&self, out: &mut Vec<u8>) {
        let EngineTuning { connections, congestion, coalesce, acks } = self.tuning;
        self.mtu.put(out);
        self.mac.put(out);
        connections.put(out);
        self.base.put(out);
        congestion.put(out);
        coalesce.put(out);
        acks.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Begin> {
        let (mtu, mac) = Field::take(from)?;
        let connections = Field::take(from)?;
        let base = Field::take(from)?;
        let congestion = Field::take(from)?;
        let coalesce = Field::take(from)?;
        let acks = Field::take(from)?;
        let tuning = EngineTuning { connections, congestion, coalesce, acks };
        tuning.check().ok()?;
        Some(Begin { mtu, mac, base, tuning })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{Order, RunAs};
    use baton_tcp::config::{Acks, Congestion};

    /// Where the most connections and the most segments are in [`START`].
    const CONNECTIONS: usize = 16;
    const COALESCE: usize = 29;

    /// A start order as version 1 encodes it.
    const START: [u8; 41] = [
        1, // Start
        4, 0, b'e', b't', b'h', b'0', // device
        0,    // a TAP device
        0xdc, 0x05, // MTU 1500
        2, 1, 2, 3, 4, 5, // link address
        0x10, 0x27, 0, 0, // 10000 connections
        8, 7, 6, 5, 4, 3, 2, 1, // time 0
        0, // Reno
        20, 0, // segments
        1, // an acknowledgment a run
        1, 0x0a, 0, 0, 0, 0x0b, 0, 0, 0, // user and group
    ];

    fn start() -> Order {
        let tuning =
            EngineTuning { connections: 10_000, congestion: Congestion::Reno, coalesce: 20, acks: Acks::PerRun };
        let begin = Begin { mtu: 1500, mac: [2, 1, 2, 3, 4, 5], base: 0x0102_0304_0506_0708, tuning };
        Order::Start { device: "eth0".to_owned(), xdp: None, begin, run_as: Some(RunAs { uid: 10, gid: 11 }) }
    }

    #[test]
    fn the_bytes_are_those_of_version_1() {
        assert_eq!(start().to_bytes(), START);
        assert_eq!(Order::from_bytes(&START), Some(start()));
    }

    #[test]
    fn choices_that_no_engine_can_follow_are_not_decoded() {
        for (at, byte) in [(CONNECTIONS + 3, 0xff), (COALESCE, 0), (COALESCE, 65), (COALESCE + 1, 1)] {
            let mut bytes = START;
            bytes[at] = byte;
            assert_eq!(Order::from_bytes(&bytes), None, "byte {at}: {byte}");
        }
    }
}
