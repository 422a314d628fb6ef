//! A report of where time goes, by layer.

use crate::{Counts, Direction, LAYERS, Layer, Spans, WORDS};

/// Times in each layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    layers: Vec<Counts>,
}

/// A line of the report.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Name of the layer, `between` for what is in none of them, or `whole`.
    pub name: &'static str,
    /// Messages that were counted in it.
    pub count: u64,
    /// Median, 90th, 99th and 99.9th percentile, in nanoseconds; none for `between`, which is a difference.
    pub quantiles: Option<[u64; 4]>,
    /// The longest, in nanoseconds.
    pub longest: Option<u64>,
    /// Its share of the sum of the whole way, 0 to 1. Negative for `between` if layers overlap.
    pub share: f64,
}

/// The quantiles of a row.
pub const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

impl Default for Table {
    fn default() -> Table {
        Table { layers: vec![Counts::default(); Layer::ALL.len()] }
    }
}

impl Table {
    /// The times of spans at this moment.
    pub fn of(spans: &Spans) -> Table {
        Table { layers: Layer::ALL.iter().map(|layer| spans.read(*layer)).collect() }
    }

    /// Reads a copy of the memory of spans, as words of the machine's byte order, a histogram a layer.
    pub fn of_words(words: &[[u64; WORDS]; LAYERS]) -> Table {
        Table { layers: words.iter().map(Counts::of_words).collect() }
    }

    /// Adds another's: of another connection, or of another part of the same way.
    pub fn add(&mut self, other: &Table) {
        self.layers.iter_mut().zip(&other.layers).for_each(|(here, there)| here.add(there));
    }

    /// The times that came since an earlier one of the same spans.
    pub fn since(&self, earlier: &Table) -> Table {
        Table { layers: self.layers.iter().zip(&earlier.layers).map(|(now, then)| now.since(then)).collect() }
    }

    /// The times of a layer.
    pub fn layer(&self, layer: Layer) -> &Counts {
        &self.layers[layer as usize]
    }

    /// The lines of a way: each layer that has anything, what lies between them, and the whole. Empty if
    /// nothing was counted.
    pub fn rows(&self, direction: Direction) -> Vec<Row> {
        let whole = self.layer(Layer::whole(direction));
        let share = |sum: f64| if whole.sum > 0 { sum / whole.sum as f64 } else { 0.0 };
        let row = |name, counts: &Counts| {
            let quantile = |q| counts.quantile(q).unwrap_or(0);
            Row {
                name,
                count: counts.count,
                quantiles: Some(QUANTILES.map(quantile)),
                longest: Some(counts.longest),
                share: share(counts.sum as f64),
            }
        };
        let counted = |layer: &Layer| layer.direction() == direction && self.layer(*layer).count > 0;
        let of_way = Layer::ALL.into_iter().filter(|layer| counted(layer));
        let mut rows: Vec<Row> = of_way
            .clone()
            .filter(|layer| layer.is_part() || layer.is_aside())
            .map(|layer| row(layer.name(), self.layer(layer)))
            .collect();
        if whole.count > 0 {
            let parts: f64 = of_way.filter(|layer| layer.is_part()).map(|layer| self.layer(layer).sum as f64).sum();
            let between = share(whole.sum as f64 - parts);
            rows.push(Row { name: "between", count: whole.count, quantiles: None, longest: None, share: between });
            rows.push(row("whole", whole));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_and_what_lies_between_them_add_up_to_the_whole() {
        let spans = Spans::default();
        let times = [(Layer::Write, 100), (Layer::Segment, 300), (Layer::SegmentCopy, 200), (Layer::SendDevice, 500)];
        for (layer, ns) in times {
            spans.record(layer, ns);
        }
        spans.record(Layer::Transmit, 1000);
        let table = Table::of(&spans);
        let rows = table.rows(Direction::Transmit);
        let shares: Vec<_> = rows.iter().map(|row| (row.name, (row.share * 100.0).round())).collect();
        let expected = [
            ("write", 10.0),
            ("segment", 30.0),
            ("copy-and-checksum", 20.0),
            ("send-device", 50.0),
            ("between", 10.0),
            ("whole", 100.0),
        ];
        assert_eq!(shares, expected);
        assert_eq!(table.rows(Direction::Receive), []);
        assert_eq!(table.since(&table).rows(Direction::Transmit), []);
    }
}
