//! The file in which the programs of a `baton run` count what moved, what did not, and why. All
//! of them map it, so that a program that is killed has told what it did.
//!
//! ```text
//!   file = [entry; ENTRIES]      entry = count (8 bytes) | name, ended by zero (120 bytes)
//! ```
//!
//! A count is in the byte order of the machine. An entry without a name is free; names are
//! entered under a lock of the file (`flock(2)`), and stay.

/// Bytes of a count.
pub const COUNT: usize = 8;

/// Bytes of a name, the zero at its end among them.
pub const NAME: usize = 120;

/// Bytes of an entry.
pub const ENTRY: usize = COUNT + NAME;

/// Entries of the file.
pub const ENTRIES: usize = 64;

/// Bytes of the file, all zero at first.
pub const BYTES: usize = ENTRIES * ENTRY;

/// The names of a file with their counts. A file that is cut short has the entries that are whole.
pub fn entries(bytes: &[u8]) -> Vec<(String, u64)> {
    let entry = |entry: &[u8]| {
        let (count, name) = entry.split_first_chunk::<COUNT>()?;
        let name = name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        Some((String::from_utf8_lossy(name).into_owned(), u64::from_ne_bytes(*count)))
    };
    bytes.chunks_exact(ENTRY).filter_map(entry).collect()
}
