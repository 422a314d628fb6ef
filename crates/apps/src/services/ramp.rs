//! The ramp: a stream whose byte at offset `i` is `i mod 251`.
//!
//! Because 251 is prime, losing, repeating or moving a block whose size is not a multiple of 251
//! breaks the pattern.

use std::sync::OnceLock;

/// Length of one ramp.
pub const PERIOD: usize = 251;

/// Bytes of the ramp kept in memory.
const READY: usize = PERIOD * 1024;

fn ready() -> &'static [u8] {
    static RAMP: OnceLock<Vec<u8>> = OnceLock::new();
    RAMP.get_or_init(|| (0..READY + PERIOD).map(|i| (i % PERIOD) as u8).collect())
}

/// Returns at least 250 KiB of the stream, starting at `offset`.
pub fn from(offset: u64) -> &'static [u8] {
    &ready()[(offset % PERIOD as u64) as usize..]
}

/// Returns true if `data` equals the stream starting at `offset`.
pub fn matches(offset: u64, data: &[u8]) -> bool {
    let mut at = offset;
    data.chunks(READY).all(|chunk| {
        let same = from(at)[..chunk.len()] == *chunk;
        at += chunk.len() as u64;
        same
    })
}

/// Returns true if the first and the last byte of `data` are right: a cheap check for measured runs.
pub fn ends_match(offset: u64, data: &[u8]) -> bool {
    let at = |i: usize| ((offset + i as u64) % PERIOD as u64) as u8;
    data.is_empty() || (data[0] == at(0) && data[data.len() - 1] == at(data.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_lost_or_changed_byte_is_seen() {
        let stream: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
        assert!(matches(0, &stream) && matches(777, &stream[777..]) && ends_match(777, &stream[777..]));
        assert!(!matches(778, &stream[777..]) && !ends_match(778, &stream[777..]));
        let mut lost = stream.clone();
        lost.drain(300_000..300_000 + 4096);
        assert!(!matches(0, &lost) && !ends_match(0, &lost));
        let mut changed = stream;
        changed[999_998] ^= 1;
        assert!(!matches(0, &changed));
    }
}
