//! Sizes of a side, and where its parts lie.

/// Most slots of a side.
pub const MAX_SLOTS: u32 = 4096;
/// Smallest area of a slot in bytes: a page.
pub const MIN_AREA_BYTES: u32 = if cfg!(loom) { 2 } else { 4096 };
/// Largest area of a slot in bytes (64 MiB).
pub const MAX_AREA_BYTES: u32 = 1 << 26;

/// A pair of cache lines, which the processor fetches together.
pub(crate) const LINES: usize = 128;
/// The areas begin on a page of this size.
const PAGE: usize = 4096;
const SLOTS_A_WORD: u32 = u64::BITS;

/// Sizes of a side, as the broker chooses them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    slots: u32,
    area_bytes: u32,
}

/// Sizes that cannot be, or memory that is no side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Number of slots out of range.
    #[error("{0} slots; there can be 1 to {MAX_SLOTS}")]
    Slots(u32),
    /// Bytes of an area out of range.
    #[error("areas of {0} bytes; they can have a power of two, {MIN_AREA_BYTES} to {MAX_AREA_BYTES}")]
    Area(u32),
    /// The memory is too short, or does not begin on a cache line pair.
    #[error("the memory is too short or not aligned")]
    Memory,
    /// The header is not that of a side of this version.
    #[error("the header is not that of a side of this version")]
    Header,
}

/// Offsets of a side's parts in bytes.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(loom, expect(dead_code, reason = "the checker's words lie nowhere"))]
pub(crate) struct Geometry {
    pub(crate) layout: Layout,
    pub(crate) news: usize,
    pub(crate) seen: usize,
    pub(crate) blocks: usize,
    pub(crate) areas: usize,
    pub(crate) total: usize,
}

impl Layout {
    /// `slots` connections, each with an area of `area_bytes`.
    ///
    /// # Errors
    /// [`LayoutError`] names the size that is out of range.
    pub fn new(slots: u32, area_bytes: u32) -> Result<Layout, LayoutError> {
        if slots == 0 || slots > MAX_SLOTS {
            return Err(LayoutError::Slots(slots));
        }
        if !area_bytes.is_power_of_two() || !(MIN_AREA_BYTES..=MAX_AREA_BYTES).contains(&area_bytes) {
            return Err(LayoutError::Area(area_bytes));
        }
        let layout = Layout { slots, area_bytes };
        // A product that fits the address space of every 64-bit machine may not fit a smaller one.
        layout.geometry().map(|_| layout).ok_or(LayoutError::Area(area_bytes))
    }

    /// Connections that the side can carry at a time.
    pub fn slots(self) -> u32 {
        self.slots
    }

    /// Bytes of each connection's area: how many can be written before the peer reads.
    pub fn area_bytes(self) -> u32 {
        self.area_bytes
    }

    /// Bytes of memory that a side takes, most of which exist only once they are touched.
    pub fn bytes(self) -> usize {
        self.geometry().expect("checked when the layout was made").total
    }

    /// Words of 64 bits with a bit for each slot.
    pub(crate) fn bit_words(self) -> u32 {
        self.slots.div_ceil(SLOTS_A_WORD)
    }

    /// Those bits of a word that stand for slots.
    pub(crate) fn bits_of(self, word: u32) -> u64 {
        let left = self.slots - word * SLOTS_A_WORD;
        if left >= SLOTS_A_WORD { u64::MAX } else { (1 << left) - 1 }
    }

    pub(crate) fn geometry(self) -> Option<Geometry> {
        let bits = (self.bit_words() as usize * size_of::<u64>()).next_multiple_of(LINES);
        let news = 2 * LINES;
        let seen = news + bits;
        let blocks = seen + bits;
        let areas = (blocks + self.slots as usize * LINES).next_multiple_of(PAGE);
        let total = (self.slots as usize).checked_mul(self.area_bytes as usize)?.checked_add(areas)?;
        isize::try_from(total).ok()?;
        Some(Geometry { layout: self, news, seen, blocks, areas, total })
    }
}

/// Word and bit of a slot among the news.
#[inline]
pub(crate) fn bit_of(slot: u32) -> (u32, u64) {
    (slot / SLOTS_A_WORD, 1 << (slot % SLOTS_A_WORD))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sizes_out_of_range_are_named() {
        assert_eq!(Layout::new(0, 4096), Err(LayoutError::Slots(0)));
        assert_eq!(Layout::new(MAX_SLOTS + 1, 4096), Err(LayoutError::Slots(4097)));
        for bytes in [0, 2048, 4097, MAX_AREA_BYTES * 2] {
            assert_eq!(Layout::new(1, bytes), Err(LayoutError::Area(bytes)));
        }
        assert!(Layout::new(MAX_SLOTS, MAX_AREA_BYTES).is_ok());
    }

    #[test]
    fn parts_follow_each_other_without_overlap() {
        for slots in [1, 63, 64, 65, 1024, 1025, MAX_SLOTS] {
            let layout = Layout::new(slots, 8192).unwrap();
            let at = layout.geometry().unwrap();
            let bits = layout.bit_words() as usize * 8;
            assert!(at.news >= 2 * LINES && at.seen >= at.news + bits && at.blocks >= at.seen + bits);
            assert!(at.areas >= at.blocks + slots as usize * LINES);
            assert_eq!([at.news % LINES, at.seen % LINES, at.blocks % LINES, at.areas % PAGE], [0; 4]);
            assert_eq!(layout.bytes(), at.areas + slots as usize * 8192);
        }
    }

    #[test]
    fn each_slot_has_a_bit() {
        let layout = Layout::new(130, 4096).unwrap();
        assert_eq!(layout.bit_words(), 3);
        assert_eq!([layout.bits_of(0), layout.bits_of(1), layout.bits_of(2)], [u64::MAX, u64::MAX, 3]);
        for slot in 0..130 {
            let (word, bit) = bit_of(slot);
            assert_eq!(layout.bits_of(word) & bit, bit);
        }
    }
}
