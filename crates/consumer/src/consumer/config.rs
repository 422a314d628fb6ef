//! Sizes of a consumer.

use crate::buffers::PoolSizes;
use baton_engine::region::Layout;

/// Sizes of a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConsumerConfig {
    /// Size of a stream buffer in bytes, a power of two. Each direction of a connection that moves
    /// data has one.
    pub stream_buffer: u32,
    /// Most stream buffers.
    pub stream_buffers: u32,
    /// Size of a large stream buffer in bytes, a power of two. Streams that prove fast get one.
    pub large_buffer: u32,
    /// Most large stream buffers. With 0, streams keep the small ones.
    pub large_buffers: u32,
    /// Most connections and listeners at once.
    pub connections: u32,
}

impl Default for ConsumerConfig {
    fn default() -> ConsumerConfig {
        ConsumerConfig::for_connections(2048)
    }
}

/// Total size of all stream buffers in bytes, unless there are so many connections that each has
/// the smallest buffer.
const STREAM_MEMORY: u64 = 1 << 30;

/// Smallest and largest size of a stream buffer, in bytes.
const STREAM_BUFFER: (u64, u64) = (4 << 10, 256 << 10);

/// Size of a large stream buffer in bytes (the limit of Linux's `tcp_wmem`), and number of such
/// buffers.
const LARGE_BUFFERS: (u32, u32) = (4 << 20, 64);

impl ConsumerConfig {
    /// Returns sizes for this number of connections and listeners. Each connection has buffers for
    /// both directions, so none waits for another to release one. The more connections, the smaller
    /// the buffers.
    pub fn for_connections(connections: u32) -> ConsumerConfig {
        let stream_buffers = 2 * connections.max(1);
        let share = STREAM_MEMORY / u64::from(stream_buffers);
        let stream_buffer = (1 << share.max(1).ilog2()).clamp(STREAM_BUFFER.0, STREAM_BUFFER.1) as u32;
        let (large_buffer, large_buffers) = LARGE_BUFFERS;
        ConsumerConfig { stream_buffer, stream_buffers, large_buffer, large_buffers, connections }
    }

    /// Returns these sizes. Of stream buffers, the first number is the size in bytes, the second how
    /// many there are.
    pub const fn new(connections: u32, small: (u32, u32), large: (u32, u32)) -> ConsumerConfig {
        ConsumerConfig {
            stream_buffer: small.0,
            stream_buffers: small.1,
            large_buffer: large.0,
            large_buffers: large.1,
            connections,
        }
    }

    pub(super) fn pool_sizes(&self) -> PoolSizes {
        PoolSizes {
            small: self.stream_buffer,
            smalls: self.stream_buffers,
            large: self.large_buffer,
            larges: self.large_buffers,
        }
    }

    /// Longest queue, in bytes, that an adopted connection may bring.
    pub fn brings_at_most(&self) -> u32 {
        self.pool_sizes().largest()
    }

    /// Returns the layout of the region for these sizes.
    pub fn layout(&self) -> Layout {
        let data_bytes = self.pool_sizes().bytes();
        // A stream posts at most two laps of a ring.
        Layout { qps: self.connections, queue_depth: 2, requests: 256, data_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brought_queues_fit_an_existing_buffer() {
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
