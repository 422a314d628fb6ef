//! Where segments go, and what they sum up to.

use super::segment::{Numbers, Segment};
use baton_port::Capture;
use baton_port::capture::{CaptureStatus, wall_clock_ns};
use baton_port::pcapng::{About, Direction};

/// Sums of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Segments.
    pub segments: u64,
    /// Bytes that they carry.
    pub bytes: u64,
    /// Bytes that were written over before they could be read.
    pub lost: u64,
}

/// A capture that is being written.
pub struct Sink {
    capture: Capture,
    sums: Sums,
    /// The most segments.
    most: u64,
    now_ns: u64,
    /// Something waits to be handed over.
    has_news: bool,
}

impl Sink {
    /// Writes up to `most` segments.
    pub fn new(mut capture: Capture, most: u64) -> Sink {
        capture.describe("baton pairs", false);
        capture.hand_over();
        Sink { capture, sums: Sums::default(), most, now_ns: 0, has_news: false }
    }

    /// True if so many bytes still fit. Those that do not are better left where they are.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.capture.has_room(bytes)
    }

    /// The sums so far.
    pub fn sums(&self) -> Sums {
        self.sums
    }

    /// True once it takes no more.
    pub fn is_full(&self) -> bool {
        self.sums.segments >= self.most
    }

    /// Segments have this moment's time from now on.
    pub fn tick(&mut self) {
        self.now_ns = wall_clock_ns();
    }

    /// Counts bytes that were lost.
    pub fn lose(&mut self, bytes: u64) {
        self.sums.lost = self.sums.lost.saturating_add(bytes);
    }

    /// Writes a segment. `missing` segments before it are not there.
    pub fn segment(&mut self, numbers: &Numbers, segment: &Segment, payload: &[u8], missing: u64, comment: &str) {
        if self.is_full() {
            return;
        }
        let direction = if segment.from == 0 { Direction::Outbound } else { Direction::Inbound };
        let about = About { time_ns: self.now_ns, direction, dropped: missing, comment };
        let len = numbers.packet_len(payload.len());
        self.capture.add_about(&about, len, |out| numbers.write(segment, payload, out));
        self.sums.segments += 1;
        self.sums.bytes += payload.len() as u64;
        self.has_news = true;
    }

    /// Has what was written so far go out.
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.has_news) {
            self.capture.hand_over();
        }
    }

    /// Whether it still can write, and why not.
    pub fn status(&self) -> CaptureStatus {
        self.capture.status()
    }

    /// Ends the capture once all of it is written, if its reader takes it.
    pub fn finish(self) -> (Sums, CaptureStatus) {
        (self.sums, self.capture.finish())
    }
}
