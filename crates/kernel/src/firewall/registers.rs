//! The registers of an nftables rule, as far as their bits are known.
//!
//! Each bit is 0, 1 or unknown. A comparison of a partly unknown value may come out either way,
//! unless its known bits decide the result.

/// The bytes of all registers: 16 of 4 bytes, which are also 4 of 16 bytes (`NFT_REG32_00`,
/// `NFT_REG_1`).
pub(crate) const LEN: usize = 64;

/// Whether something is true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    No,
    May,
    Yes,
}

impl Answer {
    pub fn of(is: bool) -> Answer {
        if is { Answer::Yes } else { Answer::No }
    }

    pub fn and(self, other: Answer) -> Answer {
        match (self, other) {
            (Answer::No, _) | (_, Answer::No) => Answer::No,
            (Answer::Yes, Answer::Yes) => Answer::Yes,
            _ => Answer::May,
        }
    }

    /// The opposite answer, if `inverted`.
    pub fn not_if(self, inverted: bool) -> Answer {
        match self {
            Answer::No if inverted => Answer::Yes,
            Answer::Yes if inverted => Answer::No,
            answer => answer,
        }
    }
}

/// A range of bytes in the registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub at: usize,
    pub len: usize,
}

/// Bytes, with a mask of the bits that are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bits {
    pub value: Vec<u8>,
    pub known: Vec<u8>,
}

impl Bits {
    pub fn unknown(len: usize) -> Bits {
        Bits { value: vec![0; len], known: vec![0; len] }
    }

    pub fn known(value: &[u8]) -> Bits {
        Bits { value: value.to_vec(), known: vec![0xff; value.len()] }
    }

    pub fn is_known(&self) -> bool {
        self.known.iter().all(|known| *known == 0xff)
    }

    /// Whether the bytes equal `data`. If the lengths differ, they may.
    pub fn equals(&self, data: &[u8]) -> Answer {
        equals(&self.value, &self.known, data)
    }

    /// How the bytes compare with `data`, as numbers in network byte order. `None` if unknown.
    pub fn compare(&self, data: &[u8]) -> Option<std::cmp::Ordering> {
        (self.is_known() && self.value.len() == data.len()).then(|| self.value.as_slice().cmp(data))
    }

    /// `(bits & mask) ^ xor`.
    pub fn masked(mut self, mask: &[u8], xor: &[u8]) -> Bits {
        for (at, (value, known)) in self.value.iter_mut().zip(&mut self.known).enumerate() {
            let mask = mask.get(at).copied().unwrap_or(0);
            *known |= !mask;
            *value = (*value & mask) ^ xor.get(at).copied().unwrap_or(0);
        }
        self
    }
}

fn equals(value: &[u8], known: &[u8], data: &[u8]) -> Answer {
    if data.len() != value.len() {
        return Answer::May;
    }
    let mut parts = value.iter().zip(known).zip(data);
    if parts.any(|((value, known), data)| (value ^ data) & known != 0) {
        return Answer::No;
    }
    if known.iter().all(|known| *known == 0xff) { Answer::Yes } else { Answer::May }
}

/// All registers of a rule.
pub(crate) struct Registers {
    value: [u8; LEN],
    known: [u8; LEN],
}

impl Registers {
    /// Registers with unknown contents.
    pub fn new() -> Registers {
        Registers { value: [0; LEN], known: [0; LEN] }
    }

    /// The bytes of a span. Bytes beyond the end are unknown.
    pub fn get(&self, span: Span) -> Bits {
        let Some(range) = range(span) else { return Bits::unknown(span.len.min(LEN)) };
        Bits { value: self.value[range.clone()].to_vec(), known: self.known[range].to_vec() }
    }

    /// Writes from `at` on, and pads with zeros to the next multiple of 4, as the kernel does.
    pub fn set(&mut self, at: usize, bits: &Bits) {
        self.copy(at, &bits.value, &bits.known);
    }

    /// The same, with bytes and a mask of the known bits.
    pub fn copy(&mut self, at: usize, value: &[u8], known: &[u8]) {
        let len = value.len();
        let Some(range) = range(Span { at, len: len.next_multiple_of(4) }) else { return };
        self.value[range.clone()].fill(0);
        self.known[range].fill(0xff);
        self.value[at..at + len].copy_from_slice(value);
        self.known[at..at + len].copy_from_slice(known);
    }

    /// Makes the bytes of a span unknown.
    pub fn forget(&mut self, span: Span) {
        if let Some(range) = range(Span { len: span.len.next_multiple_of(4), ..span }) {
            self.known[range].fill(0);
        }
    }

    /// Whether the bytes of a span equal `data`.
    pub fn equals(&self, span: Span, data: &[u8]) -> Answer {
        range(span).map_or(Answer::May, |range| equals(&self.value[range.clone()], &self.known[range], data))
    }
}

fn range(span: Span) -> Option<std::ops::Range<usize>> {
    let end = span.at.checked_add(span.len).filter(|end| *end <= LEN)?;
    Some(span.at..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_bits_decide_where_they_can() {
        // TCP flags: SYN is clear, ACK is set, the others are unknown.
        let flags = Bits { value: vec![0x10], known: vec![0x12] };
        assert_eq!(flags.equals(&[0x02]), Answer::No);
        assert_eq!(flags.equals(&[0x10]), Answer::May);
        assert_eq!(flags.clone().masked(&[0x02], &[0]).equals(&[0]), Answer::Yes);
        assert_eq!(flags.clone().masked(&[0x12], &[0]).equals(&[0x12]), Answer::No);
        assert_eq!(flags.masked(&[0x01], &[0]).equals(&[0x01]), Answer::May);
        assert_eq!(Bits::known(&[1, 2]).equals(&[1]), Answer::May);
    }

    #[test]
    fn registers_overlap_and_end() {
        let mut registers = Registers::new();
        registers.set(4, &Bits::known(&[1, 2]));
        assert_eq!(registers.get(Span { at: 4, len: 4 }), Bits::known(&[1, 2, 0, 0]));
        assert!(!registers.get(Span { at: 0, len: 8 }).is_known());
        registers.set(62, &Bits::known(&[9; 16]));
        assert_eq!(registers.get(Span { at: 60, len: 8 }), Bits::unknown(8));
        assert_eq!(registers.get(Span { at: usize::MAX, len: usize::MAX }).value.len(), LEN);
    }
}
