//! The captures of `tests/pcaps`, read as far as these tests need.

use std::path::Path;

/// A frame, as much as was captured of it.
pub struct Frame {
    /// The captured bytes, from the first header on.
    pub data: Vec<u8>,
    /// The capture kept only its beginning.
    pub snapped: bool,
}

/// A capture file.
pub struct Capture {
    /// File name.
    pub name: String,
    /// Frames start with an Ethernet header (link type 1); else with IP.
    pub ethernet: bool,
    /// The frames in order.
    pub frames: Vec<Frame>,
}

/// All captures, by name.
pub fn captures() -> Vec<Capture> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pcaps");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

/// One capture by file name.
pub fn capture(name: &str) -> Capture {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pcaps").join(name))
}

/// Reads a classic pcap file: a header of 24 bytes, records with one of 16.
fn read(path: &Path) -> Capture {
    let bytes = std::fs::read(path).unwrap();
    let little = bytes[0] == 0xd4 || bytes[0] == 0x4d;
    let word = |at: usize| {
        let word = <[u8; 4]>::try_from(&bytes[at..at + 4]).unwrap();
        if little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) }
    };
    let mut frames = Vec::new();
    let mut at = 24;
    while at + 16 <= bytes.len() {
        let (kept, len) = (word(at + 8) as usize, word(at + 12) as usize);
        frames.push(Frame { data: bytes[at + 16..at + 16 + kept].to_vec(), snapped: kept < len });
        at += 16 + kept;
    }
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    Capture { name, ethernet: word(20) & 0xffff == 1, frames }
}
