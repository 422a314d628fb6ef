//! Frames that the endpoint wants to send, until its driver takes them.
//!
//! It is bounded: frames that do not fit are counted and dropped, as if lost on the wire.
//! Buffers of sent frames are reused.

use std::collections::VecDeque;

/// Frames kept, at most.
pub const CAPACITY: usize = 256;

/// A bounded queue of whole frames.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    frames: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    taken: Vec<u8>,
    overflows: u64,
}

impl Outbox {
    /// Adds one frame made of `parts`; false, and counted, if it is full.
    pub(super) fn push(&mut self, parts: &[&[u8]]) -> bool {
        if self.frames.len() == CAPACITY {
            self.overflows += 1;
            return false;
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        for part in parts {
            frame.extend_from_slice(part);
        }
        self.frames.push_back(frame);
        true
    }

    /// The oldest frame, which stays.
    pub(super) fn front(&self) -> Option<&[u8]> {
        self.frames.front().map(Vec::as_slice)
    }

    /// Takes the oldest frame out.
    pub(super) fn pop(&mut self) -> Option<&[u8]> {
        let frame = self.frames.pop_front()?;
        self.spare.push(std::mem::replace(&mut self.taken, frame));
        Some(&self.taken)
    }

    /// Frames dropped because it was full.
    pub(super) fn overflows(&self) -> u64 {
        self.overflows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_in_order_and_overflow_is_counted() {
        let mut outbox = Outbox::default();
        for i in 0..CAPACITY {
            assert!(outbox.push(&[&[1], &[i as u8]]));
        }
        assert!(!outbox.push(&[&[9]]));
        assert_eq!(outbox.overflows(), 1);
        assert_eq!(outbox.front(), Some(&[1, 0][..]));
        for i in 0..CAPACITY {
            assert_eq!(outbox.pop(), Some(&[1, i as u8][..]));
        }
        assert_eq!(outbox.pop(), None);
        assert!(outbox.spare.len() <= CAPACITY);
    }
}
