//! A second reader of captures, slow and obvious, sharing no code with the crate: the
//! whole file in memory, one record after another.

// Not every test that includes it uses all of it.
#![allow(dead_code)]

use crate::slow::Frame;
use flate2::read::MultiGzDecoder;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The frames of a capture without damage.
pub fn frames(path: &Path) -> Vec<Frame> {
    let mut bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        MultiGzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        bytes = plain;
    }
    if bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        bytes = zstd::decode_all(&bytes[..]).unwrap();
    }
    if bytes.starts_with(&[10, 13, 13, 10]) { pcapng(&bytes) } else { pcap(&bytes) }
}

fn number(bytes: &[u8], big: bool) -> u64 {
    let add = |sum: u64, byte: &u8| sum * 256 + u64::from(*byte);
    if big { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
}

/// Raw IP has three numbers, by the system that wrote the capture.
fn one_number(link_type: u32) -> u32 {
    if [12, 14].contains(&link_type) { 101 } else { link_type }
}

fn pcap(b: &[u8]) -> Vec<Frame> {
    let (big, unit) = match b[..4] {
        [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1000),
        [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1000),
        [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1),
        [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1),
        _ => panic!("magic {:?}", &b[..4]),
    };
    let word = |at: usize| number(&b[at..at + 4], big);
    let (mut at, mut frames) = (24, Vec::new());
    while at < b.len() {
        let len = word(at + 8) as usize;
        frames.push(Frame {
            bytes: b[at + 16..at + 16 + len].to_vec(),
            wire_len: (word(at + 12) as usize).max(len),
            time_ns: word(at) * 1_000_000_000 + word(at + 4) * unit,
            link_type: one_number(word(20) as u32 & 0xffff),
        });
        at += 16 + len;
    }
    frames
}

fn pcapng(b: &[u8]) -> Vec<Frame> {
    let (mut at, mut big, mut frames) = (0, false, Vec::new());
    // Link type, and units in a second, of each interface.
    let mut interfaces: Vec<(u32, f64)> = Vec::new();
    while at < b.len() {
        if b[at..at + 4] == [10, 13, 13, 10] {
            big = b[at + 8] == 0x1a;
            interfaces.clear();
        }
        let word = |place: usize| number(&b[at + place..at + place + 4], big);
        let len = word(4) as usize;
        match word(0) {
            1 => {
                let (mut units, mut option) = (1e6, 16);
                while option + 4 <= len - 4 {
                    let code = number(&b[at + option..at + option + 2], big);
                    let size = number(&b[at + option + 2..at + option + 4], big) as usize;
                    if code == 9 {
                        let value = b[at + option + 4];
                        units = if value < 128 { 10f64.powi(value.into()) } else { 2f64.powi((value - 128).into()) };
                    }
                    option += 4 + size.div_ceil(4) * 4;
                }
                interfaces.push((one_number(number(&b[at + 8..at + 10], big) as u32), units));
            }
            6 => {
                let (link_type, units) = interfaces[word(8) as usize];
                let size = word(20) as usize;
                let time = (word(12) << 32 | word(16)) as f64 / units;
                frames.push(Frame {
                    bytes: b[at + 28..at + 28 + size].to_vec(),
                    wire_len: word(24) as usize,
                    // In microseconds, which is as exact as a float of this size is.
                    time_ns: ((time * 1e6).round() as u64).saturating_mul(1000),
                    link_type,
                });
            }
            3 => {
                let wire_len = word(8) as usize;
                let size = wire_len.min(len - 16);
                frames.push(Frame {
                    bytes: b[at + 12..at + 12 + size].to_vec(),
                    wire_len,
                    time_ns: 0,
                    link_type: interfaces[0].0,
                });
            }
            _ => {}
        }
        at += len;
    }
    frames
}

/// Captures in a directory, in order of their names.
fn captures_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut paths: Vec<_> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| name(path).contains(".pcap")).collect();
    paths.sort();
    paths
}

/// The captures that are part of the repository, and those of the folder of larger ones
/// beside it, if that is there.
pub fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = captures_in(&root.join("crates/wire/tests/pcaps"));
    assert!(paths.len() > 20, "the captures are gone");
    // A worktree may stand one level deeper.
    let places = [root.join("../shared/pcaps"), root.join("../../shared/pcaps")];
    match places.iter().find(|place| place.is_dir()) {
        Some(place) => paths.extend(captures_in(place)),
        None => baton_testkit::note_skip!("no folder shared/pcaps beside the repository: only the captures in it"),
    }
    paths
}
