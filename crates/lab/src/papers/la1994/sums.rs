//! Round trips with TCP's checksum and without it (LA §4.2: table 7).

use super::trips::{self, Trips, Variant};
use super::{TRIPS, findings};
use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Row, of};
use anyhow::ensure;
use baton_engine::engine::EngineConfig;
use baton_port::MemoryOptions;
use std::fmt;

/// Round trips with checksums, and without them in two ways.
pub const EXPERIMENT: Experiment = Experiment {
    id: "la-sums",
    title: "Round trips with checksums, and without them by the device or by agreement",
    needs: &[],
    axes: &[Axis { name: "message_bytes", about: "bytes of a request and of its answer" }, TRIPS],
    command: "baton lab la",
    run,
};

/// The paper's round trips in microseconds: with TCP's checksum, and without it.
const PAPER: [(usize, [f64; 2]); 8] = [
    (4, [1021.0, 1020.0]),
    (20, [1039.0, 1020.0]),
    (80, [1289.0, 1233.0]),
    (200, [1520.0, 1392.0]),
    (500, [2140.0, 1808.0]),
    (1400, [2976.0, 2083.0]),
    (4000, [5891.0, 3633.0]),
    (8000, [10636.0, 6233.0]),
];

/// The check of a segment's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sums {
    /// TCP's checksum.
    Checked,
    /// By the device: neither engine sums.
    Offloaded,
    /// None, as both engines agreed (`baton_wire::tcp::unsummed`).
    Negotiated,
}

/// Variants in the order of the table.
const VARIANTS: [Sums; 3] = [Sums::Checked, Sums::Offloaded, Sums::Negotiated];

impl Variant for Sums {
    fn tune(self, config: &mut EngineConfig) {
        config.tcp.unsummed = self == Sums::Negotiated;
    }

    fn wire(self, options: MemoryOptions) -> MemoryOptions {
        options.checksum_offload(self == Sums::Offloaded)
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sums::Checked => "checksum",
            Sums::Offloaded => "no checksum, by the device",
            Sums::Negotiated => "no checksum, by agreement",
        })
    }
}

fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Findings> {
    let mut sizes = Vec::new();
    for bytes in extent.values(Axis::MESSAGES.name)? {
        let found = trips::alternate(lab, extent, bytes, &VARIANTS)?;
        for (trips, sums) in found.iter().zip(VARIANTS) {
            check(trips, sums)?;
        }
        sizes.push((bytes, found));
    }
    findings(extent, of("la-table-7", table_7(&sizes)))
}

/// Makes sure that the checksums were left out by agreement where they were to be, and nowhere else.
fn check(trips: &Trips, sums: Sums) -> anyhow::Result<()> {
    let (marked, frames) = (trips.counter("streamer.rx_unsummed"), trips.counter("streamer.rx_frames"));
    // Frames of the neighbour tables are among them.
    let right = if sums == Sums::Negotiated { marked * 100 >= frames * 99 } else { marked == 0 };
    ensure!(right, "{sums}: {marked} of {frames} segments went without checksums by agreement");
    Ok(())
}

fn table_7(sizes: &[(usize, Vec<Trips>)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (bytes, found) in sizes {
        let at = ("bytes", *bytes as f64);
        let paper = PAPER.iter().find(|(size, _)| size == bytes).map(|(_, values)| *values);
        for (trips, sums) in found.iter().zip(VARIANTS) {
            let value = paper.map(|[sum, none]| if sums == Sums::Checked { sum } else { none });
            rows.push(Row::point(&sums.to_string(), at, "us", value, trips.micros()));
            if sums != Sums::Checked {
                let saving = paper.map(|[sum, none]| 100.0 * (1.0 - none / sum));
                rows.push(Row::point(&format!("{sums}: saving"), at, "%", saving, trips.decrease(&found[0])));
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan;
    use baton_apps::signal::Stop;

    /// Each run checks the engines' counters.
    #[test]
    fn both_ways_to_leave_sums_out_are_beside_the_papers() {
        let stop = Stop::default();
        let extent = plan("quick").unwrap().remove(EXPERIMENT.id).unwrap();
        let rows = run(&Lab::in_memory(&stop, &|_| ()), &extent).unwrap().rows;
        let times: Vec<_> = rows.iter().filter(|(_, row)| row.unit == "us").collect();
        assert_eq!((times.len(), rows.len()), (9, 15));
        assert!(times.iter().all(|(id, row)| *id == "la-table-7" && row.here > Some(0.0)));
        assert!(rows.iter().all(|(_, row)| row.paper.is_some()));
    }

    #[test]
    fn a_run_whose_sums_are_not_where_they_should_be_fails() {
        let none = Trips::default();
        assert!(VARIANTS.into_iter().all(|sums| check(&none, sums).is_ok()));
        let stop = Stop::default();
        let extent = plan("quick").unwrap().remove(EXPERIMENT.id).unwrap();
        let found = trips::alternate(&Lab::in_memory(&stop, &|_| ()), &extent, 4, &VARIANTS).unwrap();
        assert!(check(&found[0], Sums::Negotiated).is_err() && check(&found[2], Sums::Offloaded).is_err());
    }
}
