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
        self.0[layer as usize].record(ns);
    }

    /// Reads a layer.
    pub fn read(&self, layer: Layer) -> Counts {
        self.0[layer as usize].read()
    }
}
