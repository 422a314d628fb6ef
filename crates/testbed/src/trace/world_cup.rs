//! The World Cup's records: 20 bytes each, big endian.
//!
//! ```text
//!   0         4         8         12        16      17      18     19
//!   seconds   client    object    size      method  status  type   server
//! ```

use super::{Damage, Item, Record, Why};
use std::io::{self, BufRead};

/// Length of a record, in bytes.
pub const RECORD_BYTES: usize = 20;

/// Methods from GET to "other".
const METHODS: u8 = 9;

/// A size that the server did not write down.
const NO_SIZE: u32 = u32::MAX;

/// Reads records.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    number: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads from the input's position on.
    pub fn new(input: R) -> Reader<R> {
        Reader { input, number: 0 }
    }

    /// Reads up to a whole record, and returns the number of bytes read: fewer at the end of the input.
    fn fill(&mut self, record: &mut [u8; RECORD_BYTES]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < RECORD_BYTES {
            match self.input.read(&mut record[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = io::Result<Item>;

    fn next(&mut self) -> Option<io::Result<Item>> {
        let mut record = [0; RECORD_BYTES];
        let filled = match self.fill(&mut record) {
            Ok(0) => return None,
            Ok(filled) => filled,
            Err(error) => return Some(Err(error)),
        };
        self.number += 1;
        let damage = |why| {
            let offset = (self.number - 1) * RECORD_BYTES as u64;
            Some(Ok(Item::Damage(Damage { number: self.number, offset, why })))
        };
        if filled < RECORD_BYTES {
            return damage(Why::Cut);
        }
        let word = |at: usize| u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        if record[16] >= METHODS {
            return damage(Why::Method);
        }
        let bytes = if word(12) == NO_SIZE { 0 } else { word(12) };
        let (seconds, client) = (u64::from(word(0)), u64::from(word(4)));
        Some(Ok(Item::Record(Record { seconds, client, file: word(8), bytes })))
    }
}
