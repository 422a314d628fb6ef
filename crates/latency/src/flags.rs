//! A flag for each slot, by which one side tells the other in whose ring something is: the memory of a slot
//! is far from that of the next, and in no cache where hundreds are watched.

use std::sync::atomic::{AtomicU64, Ordering};

/// The most connections of a consumer that are watched at a time.
pub const SLOTS: usize = 256;

/// Flags of one line. All zeros is none.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Flags([AtomicU64; SLOTS / 64]);

impl Flags {
    /// Raises the flag of a slot, after something was put into its ring.
    pub fn raise(&self, slot: usize) {
        if let Some(word) = self.0.get(slot / 64) {
            word.fetch_or(1 << (slot % 64), Ordering::AcqRel);
        }
    }

    /// Lowers the flag of a slot. The caller looks at the ring again afterwards.
    pub fn lower(&self, slot: usize) {
        if let Some(word) = self.0.get(slot / 64) {
            word.fetch_and(!(1 << (slot % 64)), Ordering::AcqRel);
        }
    }

    /// True if the flag of a slot is raised.
    #[inline]
    pub fn is_raised(&self, slot: usize) -> bool {
        self.0.get(slot / 64).is_some_and(|word| word.load(Ordering::Acquire) & 1 << (slot % 64) != 0)
    }

    /// True if a flag is raised.
    #[inline]
    pub fn any(&self) -> bool {
        self.0.iter().fold(0, |all, word| all | word.load(Ordering::Relaxed)) != 0
    }

    /// Lowers all flags and calls `each` with every slot whose flag was raised.
    #[inline]
    pub fn take(&self, mut each: impl FnMut(usize)) {
        for (at, word) in self.0.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut raised = word.swap(0, Ordering::AcqRel);
            while raised != 0 {
                each(at * 64 + raised.trailing_zeros() as usize);
                raised &= raised - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_taken_once_and_lowered_ones_not_at_all() {
        let flags = Flags::default();
        [0, 63, 64, 255, 255, SLOTS, usize::MAX].into_iter().for_each(|slot| flags.raise(slot));
        flags.lower(64);
        assert!(flags.is_raised(63) && !flags.is_raised(64) && !flags.is_raised(1) && !flags.is_raised(SLOTS));
        assert!(flags.any());
        let mut taken = Vec::new();
        flags.take(|slot| taken.push(slot));
        flags.take(|slot| taken.push(slot));
        assert_eq!(taken, [0, 63, 255]);
        assert!(!flags.any());
    }
}
