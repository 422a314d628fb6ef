//! Damage to payload, and the check of a link: CRC-32, which Ethernet and AAL5 have in common.

use std::fmt;

/// The generator polynomial, lowest bit first (IEEE 802.3 §3.2.9).
const GENERATOR: u32 = 0xedb8_8320;

/// Bytes that garbage and stale blocks cover, at most.
const BLOCK: usize = 64;

/// A change to the payload of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// One bit.
    Bit,
    /// Bits within 32 that follow each other.
    Burst,
    /// 64 bytes at random.
    Garbage,
    /// A multiple of the generator polynomial: the CRC stays right.
    Codeword,
    /// 64 bytes of what lay there before: the bytes in front of them.
    Stale,
    /// Two 16-bit words change places.
    Swap,
}

impl Damage {
    /// The damage of a wire.
    pub const OF_LINKS: [Damage; 4] = [Damage::Bit, Damage::Burst, Damage::Garbage, Damage::Codeword];
    /// The damage of memories, and of the logic between them.
    pub const OF_MACHINES: [Damage; 4] = [Damage::Bit, Damage::Garbage, Damage::Stale, Damage::Swap];

    /// Changes `payload`; false if it is too short, or stays as it was by chance.
    pub fn apply(self, payload: &mut [u8], rng: &mut fastrand::Rng) -> bool {
        if payload.len() < 4 * BLOCK {
            return false;
        }
        let before = payload.to_vec();
        let at = rng.usize(BLOCK..payload.len() - BLOCK);
        match self {
            Damage::Bit => payload[at] ^= 1 << rng.u8(..8),
            Damage::Burst => {
                let burst = (rng.u32(..) | 1).to_le_bytes();
                payload[at..at + 4].iter_mut().zip(burst).for_each(|(byte, flip)| *byte ^= flip);
            }
            Damage::Garbage => rng.fill(&mut payload[at..at + BLOCK]),
            Damage::Codeword => {
                for _ in 0..rng.u8(1..4) {
                    flip_codeword(&mut payload[at..at + BLOCK], rng.usize(..8 * (BLOCK - 5)));
                }
            }
            Damage::Stale => payload.copy_within(at - BLOCK..at, at),
            Damage::Swap => {
                let (one, other) = (at & !1, rng.usize(..BLOCK) & !1);
                payload.swap(one, other);
                payload.swap(one + 1, other + 1);
            }
        }
        payload != before
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Damage::Bit => "one bit",
            Damage::Burst => "a burst within 32 bits",
            Damage::Garbage => "64 bytes of garbage",
            Damage::Codeword => "a multiple of the CRC's polynomial",
            Damage::Stale => "64 stale bytes",
            Damage::Swap => "two words swapped",
        })
    }
}

/// The remainder of `bytes`, as a frame check sequence has it.
pub fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| crc >> 1 ^ if crc & 1 != 0 { GENERATOR } else { 0 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// Adds the generator polynomial, 33 bits, from bit `start` on. Bits leave lowest first.
fn flip_codeword(bytes: &mut [u8], start: usize) {
    let polynomial = u64::from(GENERATOR) << 1 | 1;
    for bit in (0..33).filter(|bit| polynomial >> bit & 1 != 0) {
        bytes[(start + bit) / 8] ^= 1 << ((start + bit) % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_is_that_of_ethernet() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn only_a_multiple_of_the_polynomial_leaves_the_check_right() {
        let mut rng = fastrand::Rng::with_seed(3);
        let all = [Damage::Bit, Damage::Burst, Damage::Garbage, Damage::Codeword, Damage::Stale, Damage::Swap];
        for damage in all {
            let mut applied = 0;
            for _ in 0..200 {
                let mut payload: Vec<u8> = (0..1400).map(|_| rng.u8(..)).collect();
                let before = crc32(&payload);
                if damage.apply(&mut payload, &mut rng) {
                    applied += 1;
                    assert_eq!(crc32(&payload) == before, damage == Damage::Codeword, "{damage}");
                }
            }
            assert!(applied > 150, "{damage}: {applied}");
            assert!(!damage.apply(&mut [7; 20], &mut rng), "too short");
        }
    }
}
