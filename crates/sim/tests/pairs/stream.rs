//! The bytes of both streams.

/// The byte at a position of the stream that an end writes.
pub fn byte(end: usize, position: u64) -> u8 {
    ((position + 100 * end as u64) % 251) as u8
}

/// Bytes of that stream.
pub fn bytes(end: usize, from: u64, count: usize) -> Vec<u8> {
    (from..from + count as u64).map(|position| byte(end, position)).collect()
}
