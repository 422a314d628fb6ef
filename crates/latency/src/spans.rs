//! The histograms of a connection, or of all that are watched together.

use crate::{Counts, Histogram, LAYERS, Layer};

/// A histogram for each layer, by number. All zeros is an empty one; its layout is that of the memory which
/// processes share and BPF programs write.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Spans([Histogram; LAYERS]);

impl Spans {
    /// Records the time that a message spent in a layer, in nanoseconds. One thread at a time may record in
    /// a layer.
    pub fn record(&self, layer: Layer, ns: u64) {
        self.record_for(layer, ns, 1);
    }

    /// As [`Spans::record`], for a message that stands for `messages` like it.
    pub fn record_for(&self, layer: Layer, ns: u64, messages: u32) {
        self.0[layer as usize].record_for(ns, messages);
    }

    /// The times of a layer at this moment.
    pub fn read(&self, layer: Layer) -> Counts {
        self.0[layer as usize].read()
    }

    /// Forgets everything. For who records.
    pub fn clear(&self) {
        self.0.iter().for_each(Histogram::clear);
    }
}
