//! A side made of the model checker's words. The bytes of an area are watched: loom fails a model in
//! which one is copied out while it may be copied in.

use crate::layout::Layout;
use crate::words::{AtomicU64, Block};
use core::ops::Range;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::Arc;

/// The memory of a side; see [`words`](crate::words).
pub struct Side {
    layout: Layout,
    sleeps: AtomicU64,
    news: Vec<AtomicU64>,
    seen: Vec<AtomicU64>,
    blocks: Vec<Block>,
    areas: Vec<(AtomicU8, loom::cell::UnsafeCell<()>)>,
    /// The bytes again, as those who follow may find them: what is stored may be seen late. Empty if nobody does,
    /// which spares other models many states.
    followed: Vec<loom::sync::atomic::AtomicU8>,
}

impl Side {
    /// A new side, for a model.
    pub fn heap(layout: Layout) -> Arc<Side> {
        Side::new(layout, 0)
    }

    /// A new side, for a model with a follower.
    #[cfg(test)]
    pub(crate) fn followed(layout: Layout) -> Arc<Side> {
        Side::new(layout, layout.slots() * layout.area_bytes())
    }

    fn new(layout: Layout, followed: u32) -> Arc<Side> {
        let bits = || (0..layout.bit_words()).map(|_| AtomicU64::new(0)).collect();
        let bytes = layout.slots() * layout.area_bytes();
        Arc::new(Side {
            layout,
            sleeps: AtomicU64::new(0),
            news: bits(),
            seen: bits(),
            blocks: (0..layout.slots()).map(|_| Block::unused()).collect(),
            areas: (0..bytes).map(|_| (AtomicU8::new(0), loom::cell::UnsafeCell::new(()))).collect(),
            followed: (0..followed).map(|_| loom::sync::atomic::AtomicU8::new(0)).collect(),
        })
    }

    /// The sizes that the side was made with.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn sleeps(&self) -> &AtomicU64 {
        &self.sleeps
    }

    pub(crate) fn news(&self, word: u32) -> &AtomicU64 {
        &self.news[word as usize]
    }

    pub(crate) fn seen(&self, word: u32) -> &AtomicU64 {
        &self.seen[word as usize]
    }

    pub(crate) fn block(&self, slot: u32) -> &Block {
        &self.blocks[slot as usize]
    }

    /// Where a slot's area lies among the areas.
    pub fn area_of(&self, slot: u32) -> Range<usize> {
        let bytes = self.layout.area_bytes() as usize;
        slot as usize * bytes..(slot as usize + 1) * bytes
    }

    fn area(&self, slot: u32, offset: u32, len: usize) -> &[(AtomicU8, loom::cell::UnsafeCell<()>)] {
        &self.areas[self.area_of(slot)][offset as usize..offset as usize + len]
    }

    pub(crate) fn copy_in(&self, slot: u32, offset: u32, bytes: &[u8]) {
        for ((place, watch), byte) in self.area(slot, offset, bytes.len()).iter().zip(bytes) {
            watch.with_mut(|_| place.store(*byte, Relaxed));
        }
        let start = self.area_of(slot).start + offset as usize;
        for (place, byte) in self.followed.iter().skip(start).zip(bytes) {
            place.store(*byte, Relaxed);
        }
    }

    pub(crate) fn copy_out(&self, slot: u32, offset: u32, bytes: &mut [u8]) {
        for ((place, watch), byte) in self.area(slot, offset, bytes.len()).iter().zip(bytes) {
            *byte = watch.with(|_| place.load(Relaxed));
        }
    }

    /// As [`Side::copy_out`], of bytes that may be copied in meanwhile.
    pub(crate) fn copy_along(&self, slot: u32, offset: u32, bytes: &mut [u8]) {
        let start = self.area_of(slot).start + offset as usize;
        for (place, byte) in self.followed[start..].iter().zip(bytes) {
            *byte = place.load(Relaxed);
        }
    }
}
