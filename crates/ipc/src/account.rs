//! The file in which the programs of a `baton run` count the connections that moved, those that did
//! not, and the reasons. All of them map it, so the counts of a program that is killed survive.
//!
//! ```text
//!  file = [entry; ENTRIES]      entry = count (8 bytes) | zero-terminated name (120 bytes)
//! ```
//!
//! A count is in the machine's byte order. An entry without a name is free. Names are added under a
//! lock on the file (`flock(2)`) and are never removed.

/// Size of a count in bytes.
pub const COUNT: usize = 8;

/// Size of a name in bytes, including the terminating zero.
pub const NAME: usize = 120;

/// Size of an entry in bytes.
pub const ENTRY: usize = COUNT + NAME;

/// Number of entries in the file.
pub const ENTRIES: usize = 64;

/// Size of the file in bytes. All bytes are zero at first.
pub const BYTES: usize = ENTRIES * ENTRY;

/// Returns the names in a file with their counts. Incomplete entries at the end of a truncated file
/// are ignored.
pub fn entries(bytes: &[u8]) -> Vec<(String, u64)> {
    let entry = |entry: &[u8]| {
        let (count, name) = entry.split_first_chunk::<COUNT>()?;
        let name = name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        Some((String::from_utf8_lossy(name).into_owned(), u64::from_ne_bytes(*count)))
    };
    bytes.chunks_exact(ENTRY).filter_map(entry).collect()
}
