//! Rows of tables 2 and 3: the paper's, then those of each wire with the paper's beside.

use super::paper::{Breakdown, Part, engine, kernel};
use super::times::Means;
use crate::experiment::{Drawn, Row};
use baton_apps::measure::median;
use baton_kernel::latency::By;
use baton_latency::{Direction, Layer};

/// The paper's bar.
const PAPER: &str = "4.4BSD, ATM";

/// How the times of a wire were seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stack {
    /// The kernel's points, by way: out, in.
    Kernel([By; 2]),
    /// The engine's own.
    Engine,
}

/// The times of all slices of one size over one wire.
pub struct Seen<'a> {
    /// The wire's name.
    pub wire: &'a str,
    /// The stack of its server, by how it is seen.
    pub stack: Stack,
    /// Bytes of a message.
    pub bytes: usize,
    /// The mean times of each slice.
    pub slices: Vec<Means>,
}

impl Seen<'_> {
    fn parts(&self, way: Direction) -> &'static [Part] {
        match self.stack {
            Stack::Engine => engine(way),
            Stack::Kernel(by) => kernel(way, by[way as usize]),
        }
    }

    /// The median over the slices of a time in microseconds, and of its share of the way in percent.
    fn medians(&self, way: Direction, of: impl Fn(&Means) -> Option<f64>) -> [Option<f64>; 2] {
        let times: Vec<(f64, f64)> =
            self.slices.iter().filter_map(|means| Some((of(means)?, means.whole(way)?))).collect();
        let times_us: Vec<f64> = times.iter().map(|(time, _)| time / 1e3).collect();
        let shares: Vec<f64> = times.iter().map(|(time, whole)| 100.0 * time / whole).collect();
        [times_us, shares].map(|values| Some(median(&values)?.median))
    }
}

/// The table of a way: for each size a block of the paper's rows and one of each wire.
pub fn table(way: Direction, sizes: &[usize], seen: &[Seen<'_>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for &bytes in sizes {
        paper(&mut rows, way, bytes);
        for seen in seen.iter().filter(|seen| seen.bytes == bytes) {
            block(&mut rows, way, seen);
        }
    }
    rows
}

/// The paper's rows of a size; none if it does not have the size.
fn paper(rows: &mut Vec<Row>, way: Direction, bytes: usize) {
    let table = Breakdown::of(way);
    let Some(total) = table.total(bytes) else { return };
    let block = Block { bytes, bar: PAPER };
    for (name, _) in table.layers {
        let time = table.sum(&[name], bytes);
        rows.push(Row::new(block.name(name), "us", time, None).drawn(Drawn::Not));
        let share = time.map(|time| 100.0 * time / total);
        let drawn = block.part(kind(way, &[name]));
        rows.push(Row::new(block.share(name), "%", share, None).drawn(drawn));
    }
    rows.push(Row::new(block.name("total"), "us", Some(total), None).drawn(Drawn::Not));
}

/// The rows of a size over a wire.
fn block(rows: &mut Vec<Row>, way: Direction, seen: &Seen<'_>) {
    let (table, parts) = (Breakdown::of(way), seen.parts(way));
    if parts.is_empty() {
        return;
    }
    let block = Block { bytes: seen.bytes, bar: seen.wire };
    let found: Vec<[Option<f64>; 2]> = parts.iter().map(|part| seen.medians(way, |means| means.part(part))).collect();
    // The paper's shares and total are of what is seen here, so that both are of the same.
    let times = parts.iter().zip(&found).filter(|(_, here)| here[0].is_some());
    let total = times.filter_map(|(part, _)| table.sum(part.paper, seen.bytes)).reduce(|sum, time| sum + time);
    for (part, here) in parts.iter().zip(found) {
        let time = table.sum(part.paper, seen.bytes);
        let share = time.zip(total).filter(|_| here[0].is_some()).map(|(time, total)| 100.0 * time / total);
        block.both(rows, &part.name(), [time, share], here, kind(way, part.paper));
    }
    let between = seen.medians(way, |means| means.between(way));
    block.both(rows, "between these", [None; 2], between, None);
    if way == Direction::Receive
        && let [Some(beside), _] = seen.medians(way, |means| means.layer(Layer::DecideBeside))
    {
        let name = format!("within wake-up: {}", Layer::DecideBeside.name());
        rows.push(Row::new(block.name(&name), "us", None, Some(beside)).drawn(Drawn::Not));
    }
    let [whole, _] = seen.medians(way, |means| means.whole(way));
    rows.push(Row::new(block.name("total of these"), "us", total, whole).drawn(Drawn::Not));
}

/// The rows of one size and bar.
#[derive(Clone, Copy)]
struct Block<'a> {
    bytes: usize,
    bar: &'a str,
}

impl Block<'_> {
    fn name(&self, of: &str) -> String {
        format!("{} bytes · {} · {of}", self.bytes, self.bar)
    }

    fn share(&self, of: &str) -> String {
        self.name(of) + ", share"
    }

    fn part(&self, kind: Option<&'static str>) -> Drawn {
        Drawn::Part { group: format!("{} bytes", self.bytes), bar: self.bar.to_owned(), kind }
    }

    /// The rows of a part: its time and its share. A part that was not seen is not drawn.
    fn both(
        &self,
        rows: &mut Vec<Row>,
        name: &str,
        paper: [Option<f64>; 2],
        here: [Option<f64>; 2],
        kind: Option<&'static str>,
    ) {
        let names = [(self.name(name), "us"), (self.share(name), "%")];
        for ((name, unit), (paper, here)) in names.into_iter().zip(paper.into_iter().zip(here)) {
            let drawn = if here.is_some() { self.part(kind) } else { Drawn::Not };
            rows.push(Row::new(name, unit, paper, here).drawn(drawn));
        }
    }
}

/// The colour of a part that stands for these layers of the paper: layers that are mostly one here have one
/// colour. `None` if the paper has none.
fn kind(way: Direction, paper: &[&'static str]) -> Option<&'static str> {
    let of = |name: &'static str| match (way, name) {
        (Direction::Transmit, "TCP checksum" | "TCP mcopy") => "TCP checksum, mcopy",
        (Direction::Receive, "ATM" | "IPQ") => "ATM, IPQ",
        _ => name,
    };
    let first = of(paper.first().copied()?);
    Some(if paper.iter().all(|name| of(name) == first) { first } else { "several in one" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_latency::{Spans, Table};
    use std::collections::BTreeSet;

    /// A slice in which each layer of both ways takes as many nanoseconds.
    fn slice(ns: u64) -> Means {
        let spans = Spans::default();
        for layer in Layer::ALL.into_iter().filter(|layer| layer.is_part() || layer.is_aside()) {
            spans.record(layer, if layer == Layer::SegmentCopy { ns / 2 } else { ns });
        }
        let parts = |way| Layer::ALL.iter().filter(|layer| layer.is_part() && layer.direction() == way).count() as u64;
        Direction::ALL.into_iter().for_each(|way| spans.record(Layer::whole(way), (parts(way) + 1) * ns));
        Means::of(&Table::of(&spans))
    }

    fn seen(stack: Stack) -> Seen<'static> {
        Seen { wire: "wire", stack, bytes: 500, slices: vec![slice(3000), slice(1000), slice(2000)] }
    }

    const TRACEPOINTS: Stack = Stack::Kernel([By::Tracepoints; 2]);
    const FUNCTIONS: Stack = Stack::Kernel([By::Functions; 2]);

    #[test]
    fn each_part_has_the_papers_time_and_share_beside_it() {
        let rows = table(Direction::Transmit, &[500], &[seen(Stack::Engine)]);
        let find = |name: &str| rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{name}: {rows:?}"));
        let row = find("500 bytes · 4.4BSD, ATM · TCP mcopy");
        assert_eq!((row.paper, row.here, &row.drawn), (Some(80.0), None, &Drawn::Not));
        let row = find("500 bytes · wire · TCP checksum, TCP mcopy: copy-and-checksum");
        assert_eq!((row.paper, row.here), (Some(170.0), Some(1.0)));
        let row = find("500 bytes · wire · TCP segment, IP: segment without copy-and-checksum, share");
        let (paper, here) = (row.paper.unwrap(), row.here.unwrap());
        assert!((paper - 100.0 * 107.0 / 469.0).abs() < 1e-9 && (here - 100.0 / 12.0).abs() < 1e-9, "{row:?}");
        assert_eq!(find("500 bytes · wire · no row: send-queue").paper, None);
        assert_eq!(find("500 bytes · wire · total of these").here, Some(12.0));
        assert!(table(Direction::Transmit, &[501], &[]).is_empty());
    }

    #[test]
    fn shares_of_a_bar_add_up_and_a_plot_has_a_colour_for_each_kind() {
        for way in Direction::ALL {
            let mut kinds = BTreeSet::new();
            for stack in [Stack::Engine, FUNCTIONS] {
                let rows = table(way, &[500], &[seen(stack)]);
                for bar in [PAPER, "wire"] {
                    let mine = |row: &&Row| matches!(&row.drawn, Drawn::Part { bar: known, .. } if known == bar);
                    let shares = rows.iter().filter(mine).filter(|row| row.unit == "%");
                    let sum: f64 = shares.filter_map(|row| row.here.or(row.paper)).sum();
                    // The kernel's send-device is in this slice, but in no part of the kernel's.
                    let whole =
                        if bar == "wire" && stack == FUNCTIONS && way == Direction::Transmit { 83.0 } else { 100.0 };
                    assert!((sum - whole).abs() < 1.0, "{way:?}, {stack:?}, {bar}: {sum}");
                }
            }
            for stack in [Stack::Engine, FUNCTIONS, TRACEPOINTS] {
                kinds.extend(table(way, &[500], &[seen(stack)]).into_iter().filter_map(|row| match row.drawn {
                    Drawn::Part { kind, .. } => kind,
                    _ => None,
                }));
            }
            assert!(kinds.len() <= crate::report::lines::COLOURS, "{kinds:?}");
        }
    }

    #[test]
    fn the_papers_shares_are_of_what_is_seen_here() {
        let rows = table(Direction::Transmit, &[500], &[seen(TRACEPOINTS)]);
        let of = |name: &str| {
            rows.iter()
                .filter(|row| row.name.starts_with("500 bytes · wire"))
                .find(|row| row.name.contains(name))
                .unwrap()
        };
        assert_eq!((of("send-queue, share").paper, of("ATM: not seen, share").paper), (Some(100.0), None));
        assert_eq!((of("ATM: not seen").paper, of("total of these").paper), (Some(71.0), Some(398.0)));
    }

    #[test]
    fn a_way_that_is_not_seen_has_no_rows_of_its_own() {
        let seen = [seen(Stack::Kernel([By::Tracepoints, By::Nothing]))];
        let wire = |way| table(way, &[500], &seen).iter().filter(|row| row.name.contains("wire")).count();
        assert!(wire(Direction::Transmit) > 0 && wire(Direction::Receive) == 0);
    }
}
