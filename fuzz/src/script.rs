//! Reads a fuzz input as a script, byte by byte.

/// Bytes of the script, in order; zeros once there are no more.
pub struct Script<'a>(pub &'a [u8]);

impl Script<'_> {
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// One of these, by the next byte.
    #[allow(dead_code, reason = "not every module has a choice of values")]
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.byte()) % of.len()]
    }

    /// The next two.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// As many as the next byte says, `limit` at most, and no more than there are.
    #[allow(dead_code, reason = "not every module has strings of bytes")]
    pub fn bytes(&mut self, limit: usize) -> Vec<u8> {
        let count = usize::from(self.byte()).min(limit).min(self.0.len());
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken.to_vec()
    }

    /// A number of any size, a small one as a rule.
    #[allow(dead_code, reason = "not every module has positions")]
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            small @ ..=0xdf => u64::from(small) * u64::from(small),
            0xff => u64::MAX,
            high => (u64::from(self.short()) + 1) << ((high - 0xe0) * 2),
        }
    }
}
