//! `TCP_INFO` of a connection whose bytes go through a link.
//!
//! The husk answers for the options, and what it counted before; the link knows the state and the bytes.
//! No round trip is measured, so every time is 0.

use baton_pair::{End, Ending, Positions};

/// States, as in `net/tcp_states.h`.
const ESTABLISHED: u8 = 1;
const FIN_WAIT_2: u8 = 5;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;

// Offsets into `struct tcp_info` (`include/uapi/linux/tcp.h`).
const STATE: usize = 0;
const ROUND_TRIP: usize = 68;
const ROUND_TRIP_VARIATION: usize = 72;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;
const LEAST_ROUND_TRIP: usize = 148;
const BYTES_SENT: usize = 200;

/// The state in which a socket with the same course would be.
fn state(ours: Ending, peer: Ending) -> u8 {
    match (ours, peer) {
        (_, Ending::Reset) | (Ending::Reset, _) => CLOSE,
        (Ending::Open, Ending::Open) => ESTABLISHED,
        (Ending::Open, _) => CLOSE_WAIT,
        (_, Ending::Open) => FIN_WAIT_2,
        _ => CLOSE,
    }
}

/// Writes what the link knows over the husk's answer. An older kernel's is shorter.
pub(super) fn fill_in(info: &mut [u8], end: &mut End) {
    let Ok(Positions { written, written_by_peer, .. }) = end.positions() else { return };
    info[STATE] = state(end.own_end(), end.peer_end());
    for at in [ROUND_TRIP, ROUND_TRIP_VARIATION, LEAST_ROUND_TRIP] {
        if let Some(field) = info.get_mut(at..at + 4) {
            field.fill(0);
        }
    }
    for (at, more) in [(BYTES_ACKED, written), (BYTES_RECEIVED, written_by_peer), (BYTES_SENT, written)] {
        if let Some(Ok(field)) = info.get_mut(at..at + 8).map(<&mut [u8; 8]>::try_from) {
            *field = u64::from_ne_bytes(*field).saturating_add(more).to_ne_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_pair::{Layout, Link, Side};
    use std::num::NonZeroU64;

    #[test]
    fn the_link_knows_state_and_bytes() {
        let layout = Layout::new(1, 4096).unwrap();
        let sides = [Side::heap(layout), Side::heap(layout)];
        let links = [[0, 1], [1, 0]]
            .map(|[ours, theirs]: [usize; 2]| Link::new(sides[ours].clone(), sides[theirs].clone()).unwrap());
        let [mut one, mut other] = links.map(|link| link.begin(0, NonZeroU64::MIN).unwrap());
        let _ = one.write(b"twelve bytes").unwrap();
        let _ = other.write(b"five.").unwrap();
        let mut info = [7; 232];
        fill_in(&mut info, &mut one);
        let number = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().unwrap());
        let before = u64::from_ne_bytes([7; 8]);
        assert_eq!(info[STATE], ESTABLISHED);
        assert_eq!([BYTES_ACKED, BYTES_RECEIVED, BYTES_SENT].map(number), [before + 12, before + 5, before + 12]);
        assert_eq!(info[ROUND_TRIP..ROUND_TRIP + 8], [0; 8]);
        let _ = other.finish();
        fill_in(&mut info[..104], &mut one);
        assert_eq!(info[STATE], CLOSE_WAIT);
        let _ = one.reset();
        fill_in(&mut info[..104], &mut other);
        assert_eq!(info[STATE], CLOSE);
    }
}
