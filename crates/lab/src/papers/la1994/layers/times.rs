//! Times of a slice of round trips by layer.

use super::paper::Part;
use baton_latency::{Direction, LAYERS, Layer, Table};

/// Mean time in each layer of the messages of a slice, in nanoseconds. Means add up to that of the whole,
/// as the paper's averages do.
#[derive(Clone, Debug)]
pub struct Means([Option<f64>; LAYERS]);

impl Means {
    /// The means of a slice's times. A layer has none if no message passed it.
    pub fn of(slice: &Table) -> Means {
        Means(Layer::ALL.map(|layer| {
            let (counts, whole) = (slice.layer(layer), slice.layer(Layer::whole(layer.direction())));
            // A message that skips a layer spends no time there.
            (counts.count > 0 && whole.count > 0).then(|| counts.sum as f64 / whole.count as f64)
        }))
    }

    /// The time in a layer.
    pub fn layer(&self, layer: Layer) -> Option<f64> {
        self.0[layer as usize]
    }

    /// The time of a whole way.
    pub fn whole(&self, way: Direction) -> Option<f64> {
        self.layer(Layer::whole(way))
    }

    /// The time in a part of a way; `None` if none of its layers was seen.
    pub fn part(&self, part: &Part) -> Option<f64> {
        let sum = part.ours.iter().filter_map(|layer| self.layer(*layer)).reduce(|sum, time| sum + time)?;
        Some(sum - part.without.and_then(|layer| self.layer(layer)).unwrap_or(0.0))
    }

    /// The time of a way in no layer, as waiting behind other messages of a turn. Negative if layers overlap.
    pub fn between(&self, way: Direction) -> Option<f64> {
        let parts = Layer::ALL.into_iter().filter(|layer| layer.direction() == way && layer.is_part());
        Some(self.whole(way)? - parts.filter_map(|layer| self.layer(layer)).sum::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::la1994::layers::paper::engine;
    use baton_latency::Spans;

    #[test]
    fn parts_and_what_is_between_them_add_up_to_the_whole() {
        let spans = Spans::default();
        for _ in 0..2 {
            let times = [(Layer::Write, 100), (Layer::Segment, 300), (Layer::SegmentCopy, 200), (Layer::Output, 40)];
            times.into_iter().for_each(|(layer, ns)| spans.record(layer, ns));
            spans.record(Layer::Transmit, 1000);
        }
        // One message has a time in this layer.
        spans.record(Layer::SendDevice, 500);
        let means = Means::of(&Table::of(&spans));
        let parts: Vec<_> = engine(Direction::Transmit).iter().map(|part| means.part(part)).collect();
        assert_eq!(parts, [Some(100.0), Some(200.0), Some(100.0), Some(290.0), None]);
        assert_eq!(means.between(Direction::Transmit), Some(310.0));
        assert_eq!((means.whole(Direction::Receive), means.between(Direction::Receive)), (None, None));
    }
}
