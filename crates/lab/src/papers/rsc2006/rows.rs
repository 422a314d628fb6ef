//! Rows for RSC's figures 4 to 8: every line and step, and the bounds that the text prints.

use super::Outcome;
use crate::experiment::{Drawn, Row, Rows, of};

/// Rows of the figures about frames joined: every line and step, and the bounds that the text prints.
pub fn rows(outcome: &Outcome) -> Rows {
    let figures =
        [(4, "rsc-figure-4"), (5, "rsc-figure-5"), (6, "rsc-figure-6"), (7, "rsc-figure-7"), (8, "rsc-figure-8")];
    figures.into_iter().flat_map(|(number, id)| of(id, figure(outcome, number))).collect()
}

fn figure(outcome: &Outcome, number: u8) -> Vec<Row> {
    // Names of the lines and of x, and the text's bounds over messages of 2 KB and more.
    let (line, x, (least, most)) = match number {
        4 => ("connections", "bytes", (Some(50.0), Some(80.0))),
        5 => ("connections", "bytes", (Some(50.0), None)),
        6 => ("messages", "entries", (None, None)),
        7 => ("messages", "buffer", (None, None)),
        _ => ("messages", "frames", (None, None)),
    };
    const UNIT: &str = "% of frames";
    let mut rows = Vec::new();
    for drawn in outcome.lines(number) {
        let name =
            if line == "messages" { format!("messages of {}", drawn.label) } else { format!("{} {line}", drawn.label) };
        rows.extend(drawn.points.iter().map(|&(at, share)| Row::point(&name, (x, at), UNIT, None, Some(share))));
    }
    let large = |row: &&Row| number > 5 || matches!(row.drawn, Drawn::Point { x: bytes, .. } if bytes >= 2048.0);
    let shares: Vec<f64> = rows.iter().filter(large).filter_map(|row| row.here).collect();
    if least.is_some() && !shares.is_empty() {
        let low = shares.iter().copied().reduce(f64::min);
        let high = shares.iter().copied().reduce(f64::max);
        rows.push(Row::new("least, of messages of 2 KB and more", UNIT, least, low));
        rows.push(Row::new("most, of messages of 2 KB and more", UNIT, most, high));
    }
    rows
}
