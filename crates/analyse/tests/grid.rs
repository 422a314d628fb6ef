//! The grid of entries and sizes on captures whose knee is known; `agree` has each point beside an analysis.

mod make;

use baton_analyse::coalesce::{Checksums, Limits, Profile, Window};
use baton_analyse::grid::{Grid, Knee};
use baton_analyse::read::Input;
use baton_analyse::study::{self, Progress, Study};
use std::io::Cursor;

/// Segments of 1,000 bytes of so many flows, which take turns.
fn interleaved(flows: u16, each: u32) -> Vec<u8> {
    let turns = (0..each).flat_map(|turn| (0..flows).map(move |flow| (turn, flow)));
    let frame = |(turn, flow)| make::ethernet(&[], 0x0800, &make::segment(1000 + flow, 1 + turn * 1000, 1000));
    make::pcap(1, &turns.map(frame).collect::<Vec<_>>())
}

fn grid_of(capture: &[u8], mut grid: Grid) -> Grid {
    study::read(Input::read(Cursor::new(capture.to_vec())).unwrap(), &mut grid, &Progress::default()).unwrap();
    grid
}

fn knee(grid: &Grid) -> Knee {
    Knee::of(&grid.cells().copied().collect::<Vec<_>>()).unwrap()
}

#[test]
fn flows_that_take_turns_need_an_entry_each() {
    for flows in [1, 2, 6, 7] {
        let capture = interleaved(flows, 40);
        for profile in [Profile::Rsc, Profile::Ra] {
            let base = Limits { window: Window::Input, segments: None, ..Limits::of(profile) };
            let sizes = if profile == Profile::Rsc { [65_536] } else { [44] };
            let entries: Vec<u32> = (1..=8).collect();
            let grid = grid_of(&capture, Grid::of(base, Checksums::Trust, &entries, &sizes));
            let found = knee(&grid);
            let flows = u32::from(flows);
            assert_eq!((found.at.entries, found.best.entries), (flows, flows), "{profile:?}");
            let joined = u64::from(flows) * 39;
            for cell in grid.cells() {
                let expected = if cell.entries < flows { 0 } else { joined };
                assert_eq!(cell.gain.eliminated, expected, "{profile:?}, {flows} flows: {cell:?}");
            }
        }
    }
}

#[test]
fn a_burst_needs_a_buffer_that_nearly_holds_it() {
    // Without other bounds a buffer of 2 KiB has runs of 2 segments, one of 16 KiB of 16, and so on, of 40 in all. The
    // runs of 16 KiB eliminate 37 of 40, which is just less than 95 % of the 39 that one run would.
    let base = Limits { window: Window::Input, ..Limits::of(Profile::Rsc) };
    let grid = grid_of(&interleaved(1, 40), Grid::new(base, Checksums::Trust));
    let eliminated: Vec<u64> = grid.cells().take(6).map(|cell| cell.gain.eliminated).collect();
    assert_eq!(eliminated, [20, 30, 35, 37, 38, 39]);
    let found = knee(&grid);
    assert_eq!((found.at.entries, found.at.size, found.at.memory_bytes), (1, 32_768, 32_768));
    assert_eq!((found.best.entries, found.best.size), (1, 65_536));
}

#[test]
fn captures_add_up_and_do_not_join_each_other() {
    let base = Limits::of(Profile::Rsc);
    let (a, b) = (interleaved(2, 30), interleaved(3, 31));
    let mut sum = grid_of(&a, Grid::new(base, Checksums::Trust));
    sum.merge(grid_of(&b, Grid::new(base, Checksums::Trust)));
    let one_after_another = grid_of(&b, grid_of(&a, Grid::new(base, Checksums::Trust)));
    assert!(sum.cells().eq(one_after_another.cells()));
    assert_eq!(sum.cells().next().map(|cell| cell.gain.frames_in), Some(60 + 93));
}
