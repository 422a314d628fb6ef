//! Notes of when frames arrived, which the steering program writes while an engine's connections are observed
//! (`bpf/programs/note.h`), for the frames that a port takes from its device later.
//!
//! ```text
//!   frame --> first 16 bytes of its TCP header --hash--> place, check
//!   place --> note: check (24 bits) | time (40 bits, ns) --> the frame's arrival, if the check is right
//! ```
//!
//! A frame that was not noted, or whose note had to make room for another's, has no arrival, but for one in
//! 2^24 of them.

mod memory_unsafe;

use std::io;
use std::os::fd::AsFd;

use arrayvec::ArrayVec;
use baton_engine::frame_io::{Arrival, BURST, FrameSink, RxFrame, RxMeta};
use baton_wire::packet::{Checks, Link, Packet};

use memory_unsafe::Words;

/// Notes of an engine; each is a word of 8 bytes.
pub const EACH: u32 = 1 << PLACE_BITS;

const PLACE_BITS: u32 = 13;
const CHECK_BITS: u32 = 24;
const TIME_BITS: u32 = 40;
/// Bytes of a TCP header that are hashed: ports, both numbers, flags and window.
const HASHED: usize = 16;

/// The notes of an engine, to be read.
pub struct Notes(Words);

impl Notes {
    /// Maps the array of notes that the owner of the steering program made.
    ///
    /// # Errors
    /// As `mmap(2)`'s: the file is no such array, or too short.
    pub fn open(file: impl AsFd) -> io::Result<Notes> {
        Words::map(file.as_fd(), EACH as usize).map(Notes)
    }

    /// When a frame arrived, if that was noted.
    fn of(&self, frame: &[u8]) -> Arrival {
        place(frame).map_or(Arrival::default(), |(place, check)| read(self.0.get(place), check))
    }
}

/// The place of a frame's note and the check in it. `None` for a frame that is no TCP segment.
fn place(frame: &[u8]) -> Option<(usize, u64)> {
    let checks = Checks { ip_checksum: false, whole: false };
    let packet = Packet::parse_with(frame, Link::Ethernet, checks).ok()?;
    let header: &[u8; HASHED] = packet.tcp_header(frame).first_chunk()?;
    let [a, b] = [0, HASHED / 2].map(|start| u64::from_ne_bytes(std::array::from_fn(|at| header[start + at])));
    let mut hash = a.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 32).wrapping_add(b).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let check = hash >> (u64::BITS - PLACE_BITS - CHECK_BITS) & ((1 << CHECK_BITS) - 1);
    Some(((hash >> (u64::BITS - PLACE_BITS)) as usize, check))
}

/// The arrival that a note says, if it has this check.
fn read(note: u64, check: u64) -> Arrival {
    match note & ((1 << TIME_BITS) - 1) {
        time @ 1.. if note >> TIME_BITS == check => Arrival::at(time),
        _ => Arrival::default(),
    }
}

/// A sink that gives each frame its arrival, and passes it on.
pub struct Dated<'n, S> {
    /// The notes of the engine's frames.
    pub notes: &'n Notes,
    /// The sink behind.
    pub sink: &'n mut S,
}

impl<S: FrameSink> FrameSink for Dated<'_, S> {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        for burst in frames.chunks(BURST) {
            let dated = burst.iter().map(|frame| {
                let meta = RxMeta { arrived: self.notes.of(frame.data), ..frame.meta };
                RxFrame { meta, ..*frame }
            });
            self.sink.burst(&dated.collect::<ArrayVec<_, BURST>>());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment from 10.0.0.2:80, with as many VLAN tags and bytes of IPv4 options.
    fn segment(seq: u32, tags: usize, options: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for _ in 0..tags {
            frame.extend([0x81, 0, 0, 5]);
        }
        frame.extend([8, 0, 0x45 + (options / 4) as u8, 0, 0, (40 + options) as u8, 0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 0, 2, 10, 0, 0, 1]);
        frame.extend(vec![1; options]);
        frame.extend([0, 80, 3, 232]);
        frame.extend(seq.to_be_bytes());
        frame.extend([0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        frame
    }

    #[test]
    fn a_segment_has_one_place_however_its_frame_is_made() {
        let plain = place(&segment(7, 0, 0)).unwrap();
        for (tags, options) in [(1, 0), (2, 0), (0, 8), (2, 40)] {
            assert_eq!(place(&segment(7, tags, options)), Some(plain));
        }
        // Each number has another place or check, and the places are spread.
        let all: Vec<_> = (0..4096).map(|seq| place(&segment(seq, 0, 0)).unwrap()).collect();
        let different: std::collections::HashSet<_> = all.iter().collect();
        let places: std::collections::HashSet<_> = all.iter().map(|(place, _)| place).collect();
        assert_eq!(different.len(), 4096);
        // 4096 balls in 8192 boxes hit 3223 of them.
        assert!(places.len() > 3000, "{}", places.len());
        assert!(all.iter().all(|(place, check)| *place < EACH as usize && check >> CHECK_BITS == 0));
    }

    #[test]
    fn frames_that_are_no_segments_or_cut_off_have_no_place() {
        let frame = segment(7, 2, 12);
        for len in 0..frame.len() {
            assert_eq!(place(&frame[..len]), None, "{len} bytes");
        }
        let udp = {
            let mut frame = segment(7, 0, 0);
            frame[23] = 17;
            frame
        };
        assert_eq!(place(&udp), None);
        // Lengths that lie lead nowhere outside of the frame.
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..100_000 {
            let mut frame = segment(7, random.usize(..4), 4 * random.usize(..11));
            let len = frame.len();
            for _ in 0..random.usize(1..4) {
                frame[random.usize(..len)] = random.u8(..);
            }
            let _ = place(&frame[..random.usize(..=len)]);
        }
    }

    #[test]
    fn a_note_without_a_time_or_with_another_check_says_nothing() {
        let none = Arrival::default();
        assert_eq!(read(0, 0), none);
        assert_eq!(read(0xabc << TIME_BITS, 0xabc), none);
        assert_eq!(read(0xabc << TIME_BITS | 5, 0xabd), none);
        assert_eq!(read(0xabc << TIME_BITS | 5, 0xabc), Arrival::at(5));
        assert_eq!(read(u64::MAX, 0xff_ffff), Arrival::at(u64::MAX));
    }
}
