//! How much CPU time coalescing would save: a model of three numbers.
//!
//! Receiving has a cost per frame that the stack sees and a cost per byte; coalescing has a
//! cost per segment that it looks at:
//!
//! ```text
//!   without   frames_in  × frame_ns + bytes × byte_ns
//!   with      frames_out × frame_ns + bytes × byte_ns + segments × segment_ns
//! ```
//!
//! It is RA §5.2's reading of Figure 11 (x + y/k), plus the cost of coalescing. The defaults
//! stand for Linux receiving frames of 1500 bytes over veth, with and without GRO; other
//! machines and stacks have other numbers, so they are shown and can be set.

use serde::Serialize;

/// The model's numbers, all in nanoseconds of one CPU.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Prices {
    /// A frame or run through the stack.
    pub frame_ns: f64,
    /// A byte on the wire.
    pub byte_ns: f64,
    /// A data segment through the coalescer.
    pub segment_ns: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Prices { frame_ns: 1200.0, byte_ns: 1.0, segment_ns: 25.0 }
    }
}

/// The model's estimate for a capture.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// The numbers that the estimate was made with.
    pub prices: Prices,
    /// CPU time without coalescing, in seconds.
    pub without_seconds: f64,
    /// CPU time with it, in seconds.
    pub with_seconds: f64,
    /// The share that is saved, of 1; negative if coalescing costs more than it saves.
    pub saved: f64,
}

impl Prices {
    /// The estimate for frames in and out, bytes on the wire, and eligible segments.
    pub fn estimate(self, frames_in: u64, frames_out: u64, bytes: u64, segments: u64) -> Estimate {
        let bytes = bytes as f64 * self.byte_ns;
        let without = frames_in as f64 * self.frame_ns + bytes;
        let with = frames_out as f64 * self.frame_ns + bytes + segments as f64 * self.segment_ns;
        let saved = if without > 0.0 { (without - with) / without } else { 0.0 };
        Estimate { prices: self, without_seconds: without * 1e-9, with_seconds: with * 1e-9, saved }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_adds_up() {
        let prices = Prices { frame_ns: 100.0, byte_ns: 2.0, segment_ns: 10.0 };
        let estimate = prices.estimate(10, 5, 50, 6);
        assert_eq!(estimate.without_seconds, 1100e-9);
        assert_eq!(estimate.with_seconds, 660e-9);
        assert!((estimate.saved - 0.4).abs() < 1e-9);
        assert_eq!(prices.estimate(0, 0, 0, 0).saved, 0.0);
    }
}
