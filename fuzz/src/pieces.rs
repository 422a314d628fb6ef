//! A file that comes in pieces.

use std::io::{self, Read};

/// Gives up to `step` bytes at once.
pub struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    step: usize,
}

impl Pieces {
    /// Of these bytes.
    pub fn of(data: &[u8], step: usize) -> Pieces {
        Pieces { bytes: data.to_vec(), at: 0, step }
    }
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.step.min(buf.len()).min(self.bytes.len() - self.at);
        buf[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
