//! How large a consumer is.

use crate::buffers::PoolSizes;
use baton_engine::region::Layout;

/// Sizes of a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConsumerConfig {
    /// Bytes of each stream buffer, a power of two; each direction of a
    /// connection that moves data has one.
    pub stream_buffer: u32,
    /// Stream buffers at most.
    pub stream_buffers: u32,
    /// Bytes of each large stream buffer, a power of two, for streams that prove fast.
    pub large_buffer: u32,
    /// Large stream buffers at most; with none, streams keep what they begin with.
    pub large_buffers: u32,
    /// Connections and listeners at most that the program holds at once.
    pub connections: u32,
}

impl Default for ConsumerConfig {
    fn default() -> ConsumerConfig {
        ConsumerConfig::for_connections(2048)
    }
}

/// Bytes of all stream buffers together, unless there are so many connections that
/// each buffer is the smallest.
const STREAM_MEMORY: u64 = 1 << 30;

/// Bytes of the smallest and the largest stream buffer.
const STREAM_BUFFER: (u64, u64) = (4 << 10, 256 << 10);

/// Bytes of a large stream buffer (what Linux's `tcp_wmem` lets a buffer grow to), and
/// how many there are.
const LARGE_BUFFERS: (u32, u32) = (4 << 20, 64);

impl ConsumerConfig {
    /// Sizes for so many connections and listeners at once. Each connection has
    /// buffers for both directions, so that none waits for another's to come free;
    /// the more connections, the smaller they are.
    pub fn for_connections(connections: u32) -> ConsumerConfig {
        let stream_buffers = 2 * connections.max(1);
        let share = STREAM_MEMORY / u64::from(stream_buffers);
        let stream_buffer = (1 << share.max(1).ilog2()).clamp(STREAM_BUFFER.0, STREAM_BUFFER.1) as u32;
        let (large_buffer, large_buffers) = LARGE_BUFFERS;
        ConsumerConfig { stream_buffer, stream_buffers, large_buffer, large_buffers, connections }
    }

    pub(super) fn pool_sizes(&self) -> PoolSizes {
        PoolSizes {
            small: self.stream_buffer,
            smalls: self.stream_buffers,
            large: self.large_buffer,
            larges: self.large_buffers,
        }
    }

    /// Bytes that a queue of a connection that is adopted may bring along at most.
    pub fn brings_at_most(&self) -> u32 {
        self.pool_sizes().largest()
    }

    /// The region that a consumer of these sizes needs.
    pub fn layout(&self) -> Layout {
        let data_bytes = self.pool_sizes().bytes();
        // A stream posts two laps of a ring at most.
        Layout { qps: self.connections, queue_depth: 2, requests: 256, data_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_brought_fits_a_buffer_that_there_is() {
        let config = ConsumerConfig::for_connections(1);
        assert_eq!(config.brings_at_most(), 4 << 20);
        assert_eq!(ConsumerConfig { large_buffers: 0, ..config }.brings_at_most(), 256 << 10);
    }

    #[test]
    fn every_connection_has_buffers_for_both_directions() {
        for (connections, stream_buffer) in
            [(1, 256 << 10), (2048, 256 << 10), (2049, 128 << 10), (10_000, 32 << 10), (1_000_000, 4 << 10)]
        {
            let config = ConsumerConfig::for_connections(connections);
            assert_eq!((config.connections, config.stream_buffers), (connections, 2 * connections));
            assert_eq!(config.stream_buffer, stream_buffer);
        }
    }
}
