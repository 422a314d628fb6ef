//! Payload sizes of segments: they tell whether the capture was taken above GRO or TSO, where Linux shows
//! segments that are joined already, or not cut yet. Such frames were not on the wire in this form.

/// The largest payload of a frame on a wire, in bytes: jumbo frames have 9,216 bytes at most.
const JUMBO: usize = 9_216;
/// Payloads of full segments where the MTU is 1,500 or less.
const FULL: std::ops::RangeInclusive<usize> = 536..=1460;
/// A size that is seen so often is that of full segments.
const OFTEN: u64 = 10;

/// How many segments of each payload size there were.
#[derive(Clone, Debug)]
pub struct Sizes {
    of: Vec<u64>,
    beyond: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { of: vec![0; JUMBO + 1], beyond: 0 }
    }
}

impl Sizes {
    /// Counts a segment with this many bytes of payload.
    #[inline]
    pub fn add(&mut self, payload_len: u32) {
        match self.of.get_mut(payload_len as usize) {
            Some(count) => *count += 1,
            None => self.beyond += 1,
        }
    }

    /// Segments that no wire had: larger than any frame, or several full segments long. One multiple alone may be the
    /// full segment of a larger MTU.
    pub fn joined(&self) -> u64 {
        let full = FULL.max_by_key(|size| self.of[*size]).filter(|size| self.of[*size] >= OFTEN);
        let multiples = full.into_iter().flat_map(|full| (2 * full..=JUMBO).step_by(full)).map(|size| self.of[size]);
        let found: Vec<u64> = multiples.filter(|count| *count > 0).collect();
        self.beyond + if found.len() >= 2 { found.iter().sum() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(sizes: &[(u32, u64)]) -> u64 {
        let mut all = Sizes::default();
        for (size, count) in sizes {
            (0..*count).for_each(|_| all.add(*size));
        }
        all.joined()
    }

    #[test]
    fn only_what_no_wire_had_was_joined() {
        assert_eq!(joined(&[(1448, 100), (512, 7), (1, 3)]), 0);
        // Jumbo frames beside small ones, of which one happens to be an eighth.
        assert_eq!(joined(&[(8960, 500), (1120, 40)]), 0);
        // GRO, and TSO.
        assert_eq!(joined(&[(1448, 100), (2896, 20), (4344, 10), (8000, 3)]), 30);
        assert_eq!(joined(&[(1448, 2), (65_160, 4), (14_480, 1)]), 5);
    }
}
