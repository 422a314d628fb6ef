//! The paper's tables 2 and 3, and which of our layers stand for which of its rows.

use baton_kernel::latency::By;
use baton_latency::{Direction, Layer};

/// The paper's sizes in bytes.
pub const SIZES: [usize; 8] = [4, 20, 80, 200, 500, 1400, 4000, 8000];

/// A table of the paper: times of a way in microseconds, a row a layer and a column a size.
pub struct Breakdown {
    /// The layers by the names of their rows, in the table's order.
    pub layers: &'static [(&'static str, [f64; SIZES.len()])],
    /// The last row.
    pub total: [f64; SIZES.len()],
}

/// Table 2.
pub const TRANSMIT: Breakdown = Breakdown {
    layers: &[
        ("User", [45.0, 45.0, 48.0, 67.0, 121.0, 99.0, 174.0, 400.0]),
        ("TCP checksum", [10.0, 12.0, 23.0, 42.0, 90.0, 209.0, 576.0, 1149.0]),
        ("TCP mcopy", [5.1, 5.7, 26.0, 41.0, 80.0, 29.0, 30.0, 41.0]),
        ("TCP segment", [62.0, 65.0, 63.0, 65.0, 71.0, 63.0, 65.0, 72.0]),
        ("IP", [35.0, 34.0, 35.0, 35.0, 36.0, 36.0, 38.0, 36.0]),
        ("ATM", [23.0, 24.0, 39.0, 47.0, 71.0, 96.0, 215.0, 498.0]),
    ],
    total: [180.0, 184.0, 234.0, 297.0, 469.0, 532.0, 1098.0, 2196.0],
};

/// Table 3.
pub const RECEIVE: Breakdown = Breakdown {
    layers: &[
        ("ATM", [46.0, 46.0, 70.0, 99.0, 164.0, 363.0, 920.0, 1783.0]),
        ("IPQ", [22.0, 22.0, 22.0, 22.0, 23.0, 45.0, 46.0, 50.0]),
        ("IP", [40.0, 40.0, 62.0, 62.0, 62.0, 53.0, 54.0, 43.0]),
        ("TCP checksum", [10.0, 12.0, 23.0, 40.0, 82.0, 211.0, 578.0, 1172.0]),
        ("TCP segment", [135.0, 135.0, 138.0, 141.0, 158.0, 142.0, 143.0, 59.0]),
        ("Wakeup", [46.0, 47.0, 47.0, 50.0, 49.0, 51.0, 58.0, 67.0]),
        ("User", [64.0, 65.0, 89.0, 81.0, 102.0, 124.0, 199.0, 468.0]),
    ],
    total: [363.0, 367.0, 451.0, 495.0, 640.0, 989.0, 1998.0, 3642.0],
};

impl Breakdown {
    /// The table of a way.
    pub fn of(way: Direction) -> &'static Breakdown {
        match way {
            Direction::Transmit => &TRANSMIT,
            Direction::Receive => &RECEIVE,
        }
    }

    /// The sum of some of its layers for a size; `None` if it has none of them or not the size.
    pub fn sum(&self, layers: &[&str], bytes: usize) -> Option<f64> {
        let column = column(bytes)?;
        let values = layers.iter().filter_map(|name| self.layers.iter().find(|(known, _)| known == name));
        values.map(|(_, times)| times[column]).reduce(|sum, time| sum + time)
    }

    /// The total for a size, if it has that.
    pub fn total(&self, bytes: usize) -> Option<f64> {
        Some(self.total[column(bytes)?])
    }
}

fn column(bytes: usize) -> Option<usize> {
    SIZES.iter().position(|size| *size == bytes)
}

/// A part of a way that can be seen here: the paper's layers that it stands for, and ours that it is.
#[derive(Clone, Copy)]
pub struct Part {
    /// Names of the paper's layers, as in [`Breakdown`]; none if the paper has nothing like it.
    pub paper: &'static [&'static str],
    /// Our layers, whose times are added.
    pub ours: &'static [Layer],
    /// Our layer that is a part of these, and of another part here.
    pub without: Option<Layer>,
}

const fn part(paper: &'static [&'static str], ours: &'static [Layer]) -> Part {
    Part { paper, ours, without: None }
}

impl Part {
    /// The paper's names and ours.
    pub fn name(&self) -> String {
        let ours: Vec<&str> = self.ours.iter().map(|layer| layer.name()).collect();
        let less = self.without.map_or(String::new(), |layer| format!(" without {}", layer.name()));
        match (self.paper, &ours[..]) {
            ([], ours) => format!("no row: {}{less}", ours.join(" and ")),
            (paper, []) => format!("{}: not seen", paper.join(", ")),
            (paper, ours) => format!("{}: {}{less}", paper.join(", "), ours.join(" and ")),
        }
    }
}

/// The engine's parts of a way, [out, in]. A connection's lookup, and what is decided about its segments, are
/// within the paper's TCP segment; telling the program is within its User (§2.2). The IP header comes from
/// the same template as TCP's, and a port is handed the frame in `output`: a TAP device sends it there.
const ENGINE: [&[Part]; 2] = [
    &[
        part(&["User"], &[Layer::Write]),
        part(&["TCP checksum", "TCP mcopy"], &[Layer::SegmentCopy]),
        Part { without: Some(Layer::SegmentCopy), ..part(&["TCP segment", "IP"], &[Layer::Segment]) },
        part(&["ATM"], &[Layer::Output, Layer::SendDevice]),
        part(&[], &[Layer::SendQueue]),
    ],
    &[
        part(&["ATM", "IPQ"], &[Layer::ReceiveDevice]),
        part(&["IP"], &[Layer::Parse]),
        part(&["TCP checksum"], &[Layer::Place]),
        part(&["TCP segment"], &[Layer::Lookup, Layer::Decide]),
        part(&["Wakeup"], &[Layer::WakeUp]),
        part(&["User"], &[Layer::Tell, Layer::Read]),
    ],
];

/// The kernel's, where its functions can be seen.
const FUNCTIONS: [&[Part]; 2] = [
    &[
        part(&["User"], &[Layer::Write]),
        part(&["TCP checksum", "TCP mcopy", "TCP segment"], &[Layer::Segment]),
        part(&["IP"], &[Layer::Output]),
        part(&["ATM"], &[]),
        part(&[], &[Layer::SendQueue]),
    ],
    &[
        part(&["ATM", "IPQ"], &[Layer::ReceiveDevice]),
        part(&["IP"], &[Layer::Parse]),
        part(&["TCP checksum", "TCP segment"], &[Layer::Lookup, Layer::Place, Layer::Decide]),
        part(&["Wakeup"], &[Layer::WakeUp]),
        part(&["User"], &[Layer::Tell, Layer::Read]),
    ],
];

/// The kernel's by tracepoints: a time that holds several layers counts as the first of them.
const TRACEPOINTS: [&[Part]; 2] = [
    &[
        part(&["User", "TCP checksum", "TCP mcopy", "TCP segment", "IP"], &[Layer::Write, Layer::SendQueue]),
        part(&["ATM"], &[]),
        part(&[], &[Layer::Output]),
    ],
    &[
        part(&["ATM", "IPQ"], &[Layer::ReceiveDevice]),
        part(&["IP"], &[Layer::Parse]),
        part(&["TCP checksum", "TCP segment"], &[Layer::Place]),
        part(&["Wakeup"], &[Layer::WakeUp]),
        part(&["User"], &[Layer::Read]),
    ],
];

/// The engine's parts of a way.
pub fn engine(way: Direction) -> &'static [Part] {
    ENGINE[way as usize]
}

/// The kernel's parts of a way, as it is seen.
pub fn kernel(way: Direction, by: By) -> &'static [Part] {
    match by {
        By::Functions => FUNCTIONS[way as usize],
        By::Tracepoints => TRACEPOINTS[way as usize],
        By::Nothing => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_papers_layers_add_up_to_its_totals() {
        for way in Direction::ALL {
            let table = Breakdown::of(way);
            let names: Vec<&str> = table.layers.iter().map(|(name, _)| *name).collect();
            for bytes in SIZES {
                let (sum, total) = (table.sum(&names, bytes).unwrap(), table.total(bytes).unwrap());
                assert!((sum / total - 1.0).abs() < 0.015, "{}, {bytes} bytes: {sum} of {total}", way.name());
            }
            assert_eq!((table.sum(&["User"], 5), table.sum(&[], 4), table.total(5)), (None, None, None));
        }
    }

    #[test]
    fn each_layer_of_either_side_is_in_one_part() {
        for way in Direction::ALL {
            let names: BTreeSet<&str> = Breakdown::of(way).layers.iter().map(|(name, _)| *name).collect();
            let engine = (engine(way), true);
            let kernel = [By::Functions, By::Tracepoints].map(|by| (kernel(way, by), by == By::Functions));
            for (parts, every) in [engine].into_iter().chain(kernel) {
                let paper: Vec<&str> = parts.iter().flat_map(|part| part.paper).copied().collect();
                assert_eq!((paper.len(), paper.into_iter().collect::<BTreeSet<_>>()), (names.len(), names.clone()));
                let ours: Vec<Layer> = parts.iter().flat_map(|part| part.ours).copied().collect();
                assert_eq!(ours.iter().collect::<BTreeSet<_>>().len(), ours.len());
                let missing = |layer: &Layer| layer.direction() == way && layer.is_part() && !ours.contains(layer);
                let missing: Vec<&str> =
                    Layer::ALL.iter().filter(|layer| missing(layer)).map(|layer| layer.name()).collect();
                // The kernel's driver has no point.
                assert!(!every || missing.is_empty() || missing == ["send-device"], "{missing:?}");
            }
        }
    }
}
