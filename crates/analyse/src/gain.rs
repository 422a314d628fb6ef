//! How many frames a coalescer took in and how many came out: the outcome of a point of a sweep or of a grid.

use baton_coalesce::Coalescer;
use serde::Serialize;

/// Counts of the frames of one coalescer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Gain {
    /// Frames that it looked at.
    pub frames_in: u64,
    /// Frames and runs that came out.
    pub frames_out: u64,
    /// Frames that were appended to another.
    pub eliminated: u64,
    /// Runs of two segments or more.
    pub runs: u64,
}

impl Gain {
    /// The share of frames that was joined to another, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.frames_in == 0 { 0.0 } else { self.eliminated as f64 / self.frames_in as f64 }
    }

    /// Ends the runs of a coalescer at `now_ns`, adds its counts, and lets it begin anew.
    pub(crate) fn take(&mut self, coalescer: &mut Coalescer, now_ns: u64) {
        coalescer.flush::<(), _>(now_ns, &mut ());
        let counts = coalescer.counts();
        self.merge(&Gain {
            frames_in: counts.frames_in(),
            frames_out: counts.frames_out(),
            eliminated: counts.eliminated(),
            runs: counts.runs,
        });
        *coalescer = Coalescer::new(*coalescer.limits());
    }

    pub(crate) fn merge(&mut self, other: &Gain) {
        self.frames_in += other.frames_in;
        self.frames_out += other.frames_out;
        self.eliminated += other.eliminated;
        self.runs += other.runs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Cell;
    use crate::sweep::{Axis, Point};

    const GAIN: Gain = Gain { frames_in: 8, frames_out: 2, eliminated: 6, runs: 1 };

    #[test]
    fn a_share_is_of_the_frames_that_came_in() {
        assert_eq!((GAIN.share(), Gain::default().share()), (0.75, 0.0));
        let mut sum = GAIN;
        sum.merge(&GAIN);
        assert_eq!(sum, Gain { frames_in: 16, frames_out: 4, eliminated: 12, runs: 2 });
    }

    #[test]
    fn the_counts_of_a_point_stand_beside_its_place() {
        let cell = Cell { entries: 4, size: 2048, memory_bytes: 8192, gain: GAIN };
        let point = Point { axis: Axis::Cache, value: 4, gain: GAIN };
        assert_eq!(
            serde_json::to_string(&cell).unwrap(),
            r#"{"entries":4,"size":2048,"memory_bytes":8192,"frames_in":8,"frames_out":2,"eliminated":6,"runs":1}"#
        );
        assert_eq!(
            serde_json::to_string(&point).unwrap(),
            r#"{"axis":"cache","value":4,"frames_in":8,"frames_out":2,"eliminated":6,"runs":1}"#
        );
    }
}
