//! The picture of a side, and the words that it is made of.
//!
//! All of a side is written by its owner, and mapped read-only by the other program; only the header's
//! sizes are the broker's, who makes both sides. Every word is an atomic, so that reading one while the
//! owner writes it is defined.
//!
//! ```text
//!  0     sizes       magic, version, slots, bytes of an area: written once, checked when a side is opened
//!  128   sleeps      the owner wants a bell at the next news
//!  256   news        a bit a slot: differs from the peer's `seen` while there is something to look at
//!        seen        a bit a slot: what the owner has seen of the peer's `news`
//!        blocks      slots x 128 bytes, see below
//!  page  areas       slots x area_bytes: byte `p` of a stream lies at (p - origin) mod area_bytes
//! ```
//!
//! A control block has a line about what its owner writes, which the peer reads to read, and a line
//! about what its owner reads, which the peer reads to write:
//!
//! ```text
//!  line out   number head origin room_at | end left
//!  line in    tail data_at | reach prior
//! ```
//!
//! `reach` and `prior` are for those who read along ([`follower`](crate::Follower)). They lie on this line
//! because its owner writes to it in any case, and a peer that waits for bytes does not look there.
//!
//! Positions count bytes since the pair began. A slot's next pair has another number, and starts at 0; a
//! block whose number is not the pair's says nothing about it. The broker begins both ends, and writes what
//! was on its way to each before its program goes on.
//!
//! # What the reader of a block checks
//! | word | has to be |
//! | --- | --- |
//! | `head` | at least what it was; at most an area ahead of the reader; still, once `end` was seen |
//! | `tail` | at least what it was; at most what the writer has written |
//! | `end` | 0, 1 or 2, and never less than it was |
//! | `origin` | anything: the offset made of it is cut to the area |
//! | `reach`, `prior` | anything: a follower gets other bytes of this program's own |
//! | `data_at`, `room_at` | anything: they are compared, and decide whether the peer is told |
//! | `sleeps`, `news`, `seen` | anything: they decide whether a bell rings, and which slots are looked at |

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

#[cfg(not(loom))]
pub(crate) use sizes::{Header, SLEEPS_OFFSET};

/// A position that no stream reaches: nothing is asked for.
pub(crate) const NEVER: u64 = u64::MAX;

/// The words of a side's owner about one connection.
#[repr(C, align(128))]
pub(crate) struct Block {
    pub(crate) out: Out,
    pub(crate) inward: Inward,
}

/// About the bytes that the owner writes.
#[repr(C, align(64))]
pub(crate) struct Out {
    /// The pair's number, 0 before the first. Written last when a pair begins.
    pub(crate) number: AtomicU64,
    /// Bytes written.
    pub(crate) head: AtomicU64,
    /// The position that lies at the area's first byte.
    pub(crate) origin: AtomicU64,
    /// The owner wants to be told once the peer has read up to here.
    pub(crate) room_at: AtomicU64,
    /// An [`Ending`](crate::Ending) as a number.
    pub(crate) end: AtomicU32,
    /// The number of a pair that goes home: the owner writes nothing more. The broker writes this.
    pub(crate) stopped: AtomicU64,
    /// The number of the last pair that the owner has let go of. The broker alone reads this.
    pub(crate) left: AtomicU64,
}

/// About the bytes that the owner reads.
#[repr(C, align(64))]
pub(crate) struct Inward {
    /// Bytes read.
    pub(crate) tail: AtomicU64,
    /// The owner wants to be told once the peer has written up to here.
    pub(crate) data_at: AtomicU64,
    /// The owner has written no byte at or beyond this position, not even in part. Stored before the bytes.
    pub(crate) reach: AtomicU64,
    /// The origin before the present one; not below `origin` if nothing before `origin` is left.
    pub(crate) prior: AtomicU64,
}

impl Block {
    /// The words of a slot that no pair has used.
    #[cfg(loom)]
    pub(crate) fn unused() -> Block {
        let word = || AtomicU64::new(0);
        let out = Out {
            number: word(),
            head: word(),
            origin: word(),
            room_at: word(),
            end: AtomicU32::new(0),
            stopped: word(),
            left: word(),
        };
        Block { out, inward: Inward { tail: word(), data_at: word(), reach: word(), prior: word() } }
    }
}

/// The header as the memory has it.
#[cfg(not(loom))]
mod sizes {
    use super::{AtomicU32, AtomicU64, Block};
    use crate::layout::{LINES, Layout, LayoutError};
    use core::mem::offset_of;
    use core::sync::atomic::Ordering::{Relaxed, SeqCst};

    /// First word of a side: "BATONPAR" read as a little-endian number.
    const MAGIC: u64 = u64::from_le_bytes(*b"BATONPAR");
    /// Version of the layout in this file.
    const VERSION: u32 = 1;
    /// Where `sleeps` lies, alone on its lines.
    pub(crate) const SLEEPS_OFFSET: usize = LINES;

    /// A side's layout, as its maker wrote it down.
    #[repr(C, align(128))]
    pub(crate) struct Header {
        magic: AtomicU64,
        version: AtomicU32,
        slots: AtomicU32,
        area_bytes: AtomicU32,
    }

    impl Header {
        /// Writes down the layout of a new side.
        pub(crate) fn write(&self, layout: Layout) {
            self.version.store(VERSION, Relaxed);
            self.slots.store(layout.slots(), Relaxed);
            self.area_bytes.store(layout.area_bytes(), Relaxed);
            self.magic.store(MAGIC, SeqCst);
        }

        /// The layout, each size read once.
        pub(crate) fn read(&self) -> Result<Layout, LayoutError> {
            if self.magic.load(SeqCst) != MAGIC || self.version.load(Relaxed) != VERSION {
                return Err(LayoutError::Header);
            }
            Layout::new(self.slots.load(Relaxed), self.area_bytes.load(Relaxed))
        }
    }

    const _: () = {
        assert!(size_of::<Header>() == LINES);
        assert!(size_of::<Block>() == LINES);
        assert!(offset_of!(Block, inward) == LINES / 2);
    };
}
