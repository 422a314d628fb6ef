//! The bytes that the simulated programs send each other: a ramp of prime period.
//!
//! The byte at position `p` of a stream is `(p + phase) % 251`. The period divides
//! no buffer, segment or window size, so a byte lost, doubled, moved or taken from
//! another stream is seen at once.

/// Period of the ramp, in bytes.
pub const PERIOD: u64 = 251;

/// One direction of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Where in the ramp the stream starts.
    pub phase: u64,
}

/// A byte that is not the one that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongByte {
    /// Its position in the stream.
    pub position: u64,
    /// The byte that was sent.
    pub expected: u8,
    /// The byte that arrived.
    pub got: u8,
}

impl Stream {
    /// Fills `bytes` with the stream's bytes at `position`.
    pub fn fill(self, position: u64, bytes: &mut [u8]) {
        let mut value = (position + self.phase) % PERIOD;
        for byte in bytes {
            *byte = value as u8;
            value = if value + 1 == PERIOD { 0 } else { value + 1 };
        }
    }

    /// Compares `bytes` with the stream's bytes at `position`.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn check(self, position: u64, bytes: &[u8]) -> Result<(), WrongByte> {
        let mut value = (position + self.phase) % PERIOD;
        for (i, &got) in bytes.iter().enumerate() {
            if u64::from(got) != value {
                return Err(WrongByte { position: position + i as u64, expected: value as u8, got });
            }
            value = if value + 1 == PERIOD { 0 } else { value + 1 };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_byte_is_seen() {
        let stream = Stream { phase: 77 };
        let mut bytes = [0; 600];
        stream.fill(1000, &mut bytes);
        assert_eq!(stream.check(1000, &bytes), Ok(()));
        assert_eq!(stream.check(1001, &bytes[1..]), Ok(()));
        assert_eq!(stream.check(1001, &bytes).map_err(|wrong| wrong.position), Err(1001));
        bytes[300] ^= 4;
        assert_eq!(stream.check(1000, &bytes).map_err(|wrong| wrong.position), Err(1300));
    }
}
