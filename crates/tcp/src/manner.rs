//! How a connection sends its data: what its consumer chose, and what it owes its peer.

/// A set of choices and debts: one byte, so that a context holds all of them in one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manner(u8);

impl Manner {
    /// Nagle's algorithm is off (`TCP_NODELAY`).
    pub const NODELAY: Manner = Manner(1 << 0);
    /// Only full segments leave (`TCP_CORK`).
    pub const CORK: Manner = Manner(1 << 1);
    /// ECE is to be set on what we send (RFC 3168 §6.1.3).
    pub const ECE: Manner = Manner(1 << 2);
    /// CWR is to be set on the next new data segment (RFC 3168 §6.1.2).
    pub const CWR: Manner = Manner(1 << 3);
    /// Segments have checksums. A connection is without it if both ends agreed to go without checksums (LA §4.2),
    /// and nothing has spoken against it since.
    pub const SUMMED: Manner = Manner(1 << 4);

    /// True if everything of `what` is in it.
    #[inline]
    pub const fn has(self, what: Manner) -> bool {
        self.0 & what.0 == what.0
    }

    /// Puts `what` in, or takes it out.
    #[inline]
    pub const fn set(&mut self, what: Manner, on: bool) {
        self.0 = self.0 & !what.0 | if on { what.0 } else { 0 };
    }

    /// The set as bits: those of the constants.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

impl Default for Manner {
    fn default() -> Manner {
        Manner::SUMMED
    }
}
