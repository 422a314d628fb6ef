//! Results of the chapter about programs of one machine.

use super::matrix::Matrix;
use super::{Cell, LoadInfo, Wire};
use serde::{Deserialize, Serialize};

/// The report's part about two programs of one machine, over what lies between them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BothEnds {
    /// The paths between the programs, in the order shown.
    pub wires: Vec<Wire>,
    /// The loads, in the order shown.
    pub loads: Vec<LoadInfo>,
    /// Every load on every wire that it ran on.
    pub cells: Vec<Cell>,
}

/// Title of the chapter.
pub const TITLE: &str = "Both ends here";

impl BothEnds {
    /// Its loads by its wires.
    pub fn matrix(&self) -> Matrix<'_> {
        Matrix { wires: &self.wires, loads: &self.loads, cells: &self.cells }
    }
}
