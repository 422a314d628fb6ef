//! How much memory coalescing needs, in words, as a table, as comma-separated values and for an HTML page.

use super::heat::{HeatMap, Marked};
use super::wrap::wrap;
use baton_analyse::gain::Gain;
use baton_analyse::grid::{Cell, Knee, WITHIN_PERCENT};
use baton_analyse::verdict::{Answer, Verdict};
use baton_apps::html_text::escape;
use serde::Serialize;
use std::fmt::Write as _;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The meaning of a cell's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes of payload in a run (`rsc`).
    Bytes,
    /// Segments in a run (`ra`).
    Segments,
}

/// The points of a grid of entries and sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Grid {
    /// Unit of the sizes.
    pub unit: Unit,
    /// The least memory that is nearly as good as the best; `None` if nothing was joined.
    pub knee: Option<Knee>,
    /// All points, by entries, then by size.
    pub cells: Vec<Cell>,
}

fn memory(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= MIB && bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        bytes if bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
        bytes => format!("{:.1} KiB", bytes as f64 / KIB as f64),
    }
}

fn share(cell: &Cell) -> String {
    format!("{:.1} %", cell.gain.share() * 100.0)
}

impl Grid {
    /// The grid of these points, with its knee.
    pub fn new(unit: Unit, cells: Vec<Cell>) -> Grid {
        Grid { unit, knee: Knee::of(&cells), cells }
    }

    fn size(&self, size: u32) -> String {
        match self.unit {
            Unit::Bytes => memory(size.into()),
            Unit::Segments => format!("{size} segment{}", if size == 1 { "" } else { "s" }),
        }
    }

    fn point(&self, cell: &Cell) -> String {
        let entries = if cell.entries == 1 { "1 entry".to_owned() } else { format!("{} entries", cell.entries) };
        format!("{entries} of {}, {} in all", self.size(cell.size), memory(cell.memory_bytes))
    }

    /// How much memory is enough, in a sentence; the reason where the captures cannot tell.
    pub fn verdict(&self, captures: &Verdict) -> String {
        if captures.answer == Answer::CannotTell {
            return format!("{}: {}", captures.answer.word(), captures.because);
        }
        let Some(Knee { at, best }) = &self.knee else {
            return "no memory helps: no frame is joined to another at any point of the grid".to_owned();
        };
        let (point, is) = (self.point(at), if at.entries == 1 { "is" } else { "are" });
        if at == best {
            return format!(
                "{point}, {is} the best: {} of the frames are joined, and more memory joins no more",
                share(at)
            );
        }
        format!(
            "{point}, {is} within {WITHIN_PERCENT} % of the best: {} of the frames are joined, and {} with {}",
            share(at),
            share(best),
            self.point(best)
        )
    }

    /// A sentence that says what a point's memory is.
    fn about(&self) -> &'static str {
        match self.unit {
            Unit::Bytes => "Memory is entries × bytes of payload in a run.",
            Unit::Segments => "Memory is entries × segments of 1,500 bytes in a run, which has 65,535 bytes at most.",
        }
    }

    fn sizes(&self) -> impl Iterator<Item = u32> {
        let entries = self.cells.first().map(|cell| cell.entries);
        self.cells.iter().filter(move |cell| Some(cell.entries) == entries).map(|cell| cell.size)
    }

    fn rows(&self) -> impl Iterator<Item = &[Cell]> {
        self.cells.chunk_by(|one, other| one.entries == other.entries)
    }

    fn is_knee(&self, cell: &Cell) -> bool {
        self.knee.is_some_and(|knee| knee.at == *cell)
    }

    /// The grid for a terminal; a star marks the knee.
    pub fn table(&self) -> String {
        let mut out = "entries (runs held at a time) by size of a run; * is the least that is enough\n".to_owned();
        let sizes: String = self.sizes().map(|size| format!("{:>12}", self.size(size))).collect();
        let _ = writeln!(out, "{:>7}{sizes}", "");
        for row in self.rows() {
            let shares: String = row
                .iter()
                .map(|cell| format!("{:>12}", format!("{}{}", if self.is_knee(cell) { "*" } else { "" }, share(cell))))
                .collect();
            let _ = writeln!(out, "{:>7}{shares}", row[0].entries);
        }
        let _ = writeln!(out, "{}", wrap(self.about(), 0));
        out
    }

    /// Rows for a table of points of which each has one value: axis `memory`, and the entries and the size behind the
    /// counts.
    pub fn csv(&self) -> String {
        let row = |cell: &Cell| {
            let Cell { entries, size, memory_bytes, gain } = cell;
            let Gain { frames_in, frames_out, eliminated, runs } = gain;
            format!("memory,{memory_bytes},{frames_in},{frames_out},{eliminated},{runs},{entries},{size}\n")
        };
        self.cells.iter().map(row).collect()
    }

    /// The grid as a heat map of an HTML page, with the knee in words.
    pub fn html(&self) -> String {
        let of = |row: &[Cell]| row.iter().map(|cell| cell.gain.share()).collect::<Vec<_>>();
        let place = |knee: &Knee| {
            let row = self.rows().position(|row| row.contains(&knee.at))?;
            let column = self.sizes().position(|size| size == knee.at.size)?;
            Some(Marked { row, column, title: self.point(&knee.at) })
        };
        let map = HeatMap {
            id: "memory".to_owned(),
            title: "Share of frames joined".to_owned(),
            columns_title: match self.unit {
                Unit::Bytes => "size of a run".to_owned(),
                Unit::Segments => "segments in a run".to_owned(),
            },
            columns: self.sizes().map(|size| self.column(size)).collect(),
            rows_title: "entries".to_owned(),
            rows: self.rows().map(|row| row[0].entries.to_string()).collect(),
            shares: self.rows().map(of).collect(),
            marked: self.knee.as_ref().and_then(place),
        };
        let Some(svg) = map.render() else { return String::new() };
        let knee =
            self.knee.map_or(String::new(), |knee| format!(" The outline is the knee: {}.", self.point(&knee.at)));
        format!(
            "<h2>By memory</h2><p class=\"soft\">{}{}</p><figure><h3>Share of frames joined <span class=\"soft\">% of \
             frames</span></h3>{svg}</figure>",
            self.about(),
            escape(&knee)
        )
    }

    /// A size where there is little room.
    fn column(&self, size: u32) -> String {
        match self.unit {
            Unit::Bytes if u64::from(size).is_multiple_of(KIB) => format!("{}K", u64::from(size) / KIB),
            _ => size.to_string(),
        }
    }
}
