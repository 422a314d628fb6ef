//! Loads by wires: what the tables and plots of the report show.

use super::{Cell, Figure, LoadInfo, Wire};

/// The runs of some loads over some wires.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'r> {
    /// The wires, in the order shown.
    pub wires: &'r [Wire],
    /// The loads, in the order shown.
    pub loads: &'r [LoadInfo],
    /// Every load on every wire that it ran on.
    pub cells: &'r [Cell],
}

impl<'r> Matrix<'r> {
    /// The cell of a load on a wire.
    pub fn cell(&self, wire: &str, load: &str) -> Option<&'r Cell> {
        self.cells.iter().find(|cell| cell.wire == wire && cell.load == load)
    }

    /// A figure of a wire, divided by its baseline's.
    pub fn ratio(&self, wire: &Wire, load: &str, figure: Figure) -> Option<f64> {
        let value = |wire: &str| Some(self.cell(wire, load)?.median(figure)?.median);
        let baseline = value(wire.baseline.as_deref()?).filter(|&baseline| baseline > 0.0)?;
        Some(value(&wire.id)? / baseline)
    }
}
