//! Rows for LC's figures.

use super::{Direction, Outcome, PAPER, Point};
use crate::experiment::{Row, Rows, of};
use crate::report::Figure;

/// The rows that `baton bench tce` finds.
pub fn rows(outcome: &Outcome) -> Rows {
    [
        of("lc-figure-3", by_message(outcome, Direction::Receive)),
        of("lc-figure-4", figure_4(outcome)),
        of("lc-figure-5", by_message(outcome, Direction::Transmit)),
        of("lc-figure-6", figure_6(outcome)),
    ]
    .concat()
}

fn by_message(outcome: &Outcome, direction: Direction) -> Vec<Row> {
    let figures = [("throughput", Figure::Throughput, "Gb/s"), ("TCE", Figure::Tce, "% of a CPU")];
    let mut rows = Vec::new();
    for (name, figure, unit) in figures {
        let row = |point: &Point| {
            let here = point.median(figure)?.median;
            Some(Row::point(name, ("bytes", point.point.message_bytes as f64), unit, None, Some(here)))
        };
        rows.extend(outcome.of(direction).filter_map(row));
    }
    rows
}

/// The TCE's share of a CPU for each Gb/s: the most over all messages, in percent.
fn most(outcome: &Outcome, direction: Direction) -> Option<f64> {
    outcome.of(direction).filter_map(|point| point.tce_per_gbps()).reduce(f64::max)
}

fn figure_4(outcome: &Outcome) -> Vec<Row> {
    let Some(share) = most(outcome, Direction::Receive) else { return Vec::new() };
    let (paper, rate) = PAPER;
    vec![
        Row::new("CPU time that the TCE yields at 3.7 Gb/s", "% of a CPU", Some(88.0), Some(100.0 - rate * share)),
        Row::new("reading events", "% of a CPU", Some(6.1), None),
        Row::new("processing events", "% of a CPU", Some(5.9), Some(rate * share)),
        Row::new("TCE for each Gb/s", "% of a CPU", Some(paper * 100.0 / rate), Some(share)),
    ]
}

fn figure_6(outcome: &Outcome) -> Vec<Row> {
    let Some(share) = most(outcome, Direction::Transmit) else { return Vec::new() };
    // "3.7 Gb/s throughput using less than 20 % of CPU time" (§6).
    vec![
        Row::new("TCE at 3.7 Gb/s, less than", "% of a CPU", Some(20.0), Some(PAPER.1 * share)),
        Row::new("TCE for each Gb/s", "% of a CPU", None, Some(share)),
    ]
}
