//! How much memory coalescing needs: the runs that are held at a time by the size of each, in one pass.
//!
//! ```text
//!               2 KiB   4 KiB   8 KiB  …  a run
//!   1 entry       ·       ·       ·
//!   2             ·       ·       ·          each point: a coalescer, its share of joined
//!   4             ·       ·     knee         frames, and entries × bytes of memory
//! ```
//!
//! With `rsc` a run has a buffer of a fixed size for its payload; Figures 6 and 7 of RSC §5.2 vary entries and
//! buffers one at a time. With `ra` (RA §3) a run is a chain of received frames, which its segments bound: of memory
//! it is taken to need 1,500 bytes a segment, and no more than the 65,535 of an IP packet.
//!
//! The knee is the least memory with which the share of joined frames is within 5 % of the best in the grid.

use crate::classifier::Classifier;
use crate::gain::Gain;
use crate::link;
use crate::read::{self, Frame};
use crate::study::Study;
use baton_coalesce::{Coalescer, Limits, Profile};
use serde::Serialize;
use std::cmp::Reverse;
use std::num::NonZeroU32;

/// Runs held at a time.
const ENTRIES: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Bytes of payload in a run of `rsc`.
const BUFFERS: [u32; 6] = [2048, 4096, 8192, 16_384, 32_768, 65_536];
/// Segments in a run of `ra`; 44 of 1,460 bytes fill an IP packet.
const SEGMENTS: [u32; 6] = [2, 5, 10, 20, 32, 44];
/// Memory for a segment of `ra`, in bytes: an IP packet of Ethernet's MTU.
const PACKET: u32 = 1500;
/// How far below the best the knee may be, in percent of the best.
pub const WITHIN_PERCENT: u64 = 5;

/// The result of one point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Cell {
    /// Runs held at a time.
    pub entries: u32,
    /// The most that a run has: bytes of payload with `rsc`, segments with `ra`.
    pub size: u32,
    /// Memory of all entries, in bytes.
    pub memory_bytes: u64,
    /// The frames that it joined.
    #[serde(flatten)]
    pub gain: Gain,
}

/// The least memory that is nearly as good as the best, and the best.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Knee {
    /// The point with the least memory within [`WITHIN_PERCENT`] of the best.
    pub at: Cell,
    /// The point that joins most; of several, the one with the least memory.
    pub best: Cell,
}

impl Knee {
    /// The knee of these points, which looked at the same frames; `None` if no point joins any. With the same memory
    /// the point that joins more is taken, then the one with fewer entries.
    pub fn of(cells: &[Cell]) -> Option<Knee> {
        let order = |cell: &&Cell| (cell.memory_bytes, Reverse(cell.gain.eliminated), cell.entries);
        let most = cells.iter().map(|cell| cell.gain.eliminated).max().filter(|most| *most > 0)?;
        let best = cells.iter().filter(|cell| cell.gain.eliminated == most).min_by_key(order)?;
        let enough = |cell: &&Cell| {
            u128::from(cell.gain.eliminated) * 100 >= u128::from(most) * u128::from(100 - WITHIN_PERCENT)
        };
        let at = cells.iter().filter(enough).min_by_key(order)?;
        Some(Knee { at: *at, best: *best })
    }
}

/// A coalescer for each point.
pub struct Grid {
    classifier: Classifier,
    cells: Vec<(Cell, Coalescer)>,
    last_ns: u64,
}

impl Grid {
    /// The default entries and sizes, with the window and other limits of `base`.
    pub fn new(base: Limits, classifier: impl Into<Classifier>) -> Grid {
        let sizes = if base.profile == Profile::Rsc { &BUFFERS } else { &SEGMENTS };
        Grid::of(base, classifier, &ENTRIES, sizes)
    }

    /// Each of these entries with each of these sizes, 0 left out.
    pub fn of(base: Limits, classifier: impl Into<Classifier>, entries: &[u32], sizes: &[u32]) -> Grid {
        let point = |entries: u32, size: u32| {
            let (cache, number) = (NonZeroU32::new(entries)?, NonZeroU32::new(size)?);
            let (limits, bytes) = match base.profile {
                Profile::Rsc => (Limits { cache, buffer: size, ..base }, size),
                Profile::Ra => {
                    let bytes = size.saturating_mul(PACKET).min(Limits::RA_BYTES);
                    (Limits { cache, segments: Some(number), ..base }, bytes)
                }
            };
            let memory_bytes = u64::from(entries) * u64::from(bytes);
            let cell = Cell { entries, size, memory_bytes, gain: Gain::default() };
            Some((cell, Coalescer::new(limits)))
        };
        let pairs = entries.iter().flat_map(|&entries| sizes.iter().map(move |&size| (entries, size)));
        let cells = pairs.filter_map(|(entries, size)| point(entries, size)).collect();
        Grid { classifier: classifier.into(), cells, last_ns: 0 }
    }

    /// The results of all points, by entries, then by size.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().map(|(cell, _)| cell)
    }
}

impl read::Sink for Grid {
    fn frame(&mut self, frame: &Frame<'_>) {
        self.last_ns = frame.time_ns;
        let class = self.classifier.classify(&mut link::frame(frame));
        for (_, coalescer) in &mut self.cells {
            coalescer.handle(&class, frame.time_ns, (), &mut ());
        }
    }
}

impl Study for Grid {
    fn end(&mut self) {
        for (cell, coalescer) in &mut self.cells {
            cell.gain.take(coalescer, self.last_ns);
        }
    }

    fn merge(&mut self, other: Grid) {
        for ((ours, _), (theirs, _)) in self.cells.iter_mut().zip(&other.cells) {
            ours.gain.merge(&theirs.gain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_coalesce::Checksums;

    fn cell(entries: u32, size: u32, eliminated: u64) -> Cell {
        let memory_bytes = u64::from(entries) * u64::from(size);
        let gain = Gain { frames_in: 1000, frames_out: 1000 - eliminated, eliminated, runs: 1 };
        Cell { entries, size, memory_bytes, gain }
    }

    #[test]
    fn the_knee_is_the_least_memory_that_is_nearly_the_best() {
        let cells = [cell(1, 100, 500), cell(2, 100, 949), cell(4, 100, 950), cell(8, 100, 1000), cell(16, 100, 1000)];
        assert_eq!(Knee::of(&cells), Some(Knee { at: cells[2], best: cells[3] }));
        // With the same memory the one that joins more, then the one with fewer entries.
        let same = [cell(8, 50, 950), cell(4, 100, 960), cell(2, 200, 960), cell(16, 100, 1000)];
        assert_eq!(Knee::of(&same).map(|knee| knee.at), Some(same[2]));
        assert_eq!(Knee::of(&[cell(1, 100, 0)]), None);
        assert_eq!(Knee::of(&[]), None);
    }

    #[test]
    fn memory_is_entries_times_what_a_run_may_have() {
        let memory = |profile| {
            let grid = Grid::of(Limits::of(profile), Checksums::Trust, &[3, 0], &[10, 50, 0]);
            grid.cells().map(|cell| cell.memory_bytes).collect::<Vec<_>>()
        };
        assert_eq!(memory(Profile::Rsc), [30, 150]);
        assert_eq!(memory(Profile::Ra), [45_000, 3 * 65_535]);
        assert_eq!(Grid::new(Limits::of(Profile::Rsc), Checksums::Trust).cells().count(), 36);
    }
}
