//! The three block types that a capture is written in
//! (draft-ietf-opsawg-pcapng §4.1–4.3), in this machine's byte order.
//!
//! Blocks are appended to a buffer in place: with the crate `pcap-file` each frame
//! costs an allocation for its options, and its release for Rust 1.88 is of 2022.

/// Direction of a frame (`epb_flags`, bits 0 and 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The port received it.
    Inbound = 1,
    /// It was sent through the port.
    Outbound = 2,
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINK_ETHERNET: u16 = 1;
const LINK_RAW: u16 = 101;
const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_INTERFACE_NAME: u16 = 2;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_FLAGS: u16 = 2;
const OPTION_DROP_COUNT: u16 = 4;
/// The most bytes of a comment.
pub const COMMENT_MAX: usize = 4096;
/// The most bytes of an enhanced packet block without a comment, in addition to the frame: fixed fields,
/// padding, flags, drop count, end of options, length.
pub const PACKET_OVERHEAD: usize = 28 + 3 + 8 + 12 + 4 + 4;

fn word(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_ne_bytes());
}

fn half(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_ne_bytes());
}

fn pad(out: &mut Vec<u8>, start: usize) {
    while !(out.len() - start).is_multiple_of(4) {
        out.push(0);
    }
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    half(out, code);
    half(out, value.len() as u16);
    let start = out.len();
    out.extend_from_slice(value);
    pad(out, start);
}

/// Appends a block whose body is written by `body`; both lengths are filled in.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    word(out, kind);
    word(out, 0);
    body(out);
    let len = (out.len() - start + 4) as u32;
    word(out, len);
    out[start + 4..start + 8].copy_from_slice(&len.to_ne_bytes());
}

/// Appends what a capture starts with: one section, one interface called `name`
/// (cut after 64 bytes) with times in nanoseconds.
pub fn start(out: &mut Vec<u8>, name: &str, ethernet: bool) {
    block(out, SECTION_HEADER, |out| {
        word(out, BYTE_ORDER);
        half(out, 1);
        half(out, 0);
        // Length of the section: not known.
        word(out, u32::MAX);
        word(out, u32::MAX);
    });
    block(out, INTERFACE_DESCRIPTION, |out| {
        half(out, if ethernet { LINK_ETHERNET } else { LINK_RAW });
        half(out, 0);
        // No limit to the length of frames.
        word(out, 0);
        option(out, OPTION_INTERFACE_NAME, &name.as_bytes()[..name.len().min(64)]);
        option(out, OPTION_TIME_RESOLUTION, &[9]);
        option(out, OPTION_END, &[]);
    });
}

/// When a frame passed, and what is said of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Whether it was received or sent.
    pub direction: Direction,
    /// Frames before it that are missing from the capture.
    pub dropped: u64,
    /// Text for its reader, cut after [`COMMENT_MAX`] bytes; empty for none.
    pub comment: &'a str,
}

/// The most bytes that a comment adds to a block.
pub fn comment_len(comment: &str) -> usize {
    if comment.is_empty() { 0 } else { 4 + comment.len().min(COMMENT_MAX) + 3 }
}

/// Appends a frame of `len` bytes, which `fill` writes.
pub fn packet(out: &mut Vec<u8>, about: &About<'_>, len: usize, fill: impl FnOnce(&mut [u8])) {
    block(out, ENHANCED_PACKET, |out| {
        word(out, 0);
        word(out, (about.time_ns >> 32) as u32);
        word(out, about.time_ns as u32);
        word(out, len as u32);
        word(out, len as u32);
        let start = out.len();
        out.resize(start + len, 0);
        fill(&mut out[start..]);
        pad(out, start);
        option(out, OPTION_FLAGS, &(about.direction as u32).to_ne_bytes());
        if about.dropped != 0 {
            option(out, OPTION_DROP_COUNT, &about.dropped.to_ne_bytes());
        }
        if !about.comment.is_empty() {
            let cut = about.comment.len().min(COMMENT_MAX);
            let end = (0..=cut).rev().find(|at| about.comment.is_char_boundary(*at)).unwrap_or(0);
            option(out, OPTION_COMMENT, &about.comment.as_bytes()[..end]);
        }
        option(out, OPTION_END, &[]);
    });
}
