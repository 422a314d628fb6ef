//! How a message came to the point at which the engine tells its consumer of it. The consumer sees the message's
//! end, and keeps the message if it was slow.

use crate::stamps::ENTRIES;
use std::sync::atomic::{AtomicU64, Ordering};

/// The layers of receive that the engine records, from `ReceiveDevice` to `Tell`.
const ENGINE_PARTS: usize = 6;

/// The engine's part of a message that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Course {
    /// Nanoseconds in the layers from [`ReceiveDevice`](crate::Layer::ReceiveDevice) to
    /// [`Tell`](crate::Layer::Tell), in their order; 0 in one that it did not pass.
    pub parts: [u64; ENGINE_PARTS],
    /// The TCP sequence number behind its last byte.
    pub end: u32,
}

/// A place for a [`Course`], of a cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Line([AtomicU64; ENGINE_PARTS + 1]);

/// Courses beside the entries of a ring. All zeros is as good as none.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Courses([Line; ENTRIES]);

impl Default for Courses {
    fn default() -> Courses {
        Courses(std::array::from_fn(|_| Line::default()))
    }
}

impl Courses {
    /// Writes the one of a ring's entry that is about to be put in.
    pub fn put(&self, at: usize, course: &Course) {
        let values = course.parts.into_iter().chain([course.end.into()]);
        self.0[at % ENTRIES].0.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    /// That of an entry which is in the ring.
    pub fn get(&self, at: usize) -> Course {
        let words = &self.0[at % ENTRIES].0;
        let of = |at: usize| words[at].load(Ordering::Relaxed);
        Course { parts: std::array::from_fn(of), end: of(ENGINE_PARTS) as u32 }
    }
}
