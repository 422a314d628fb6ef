//! However long a capture is, reading it takes the same memory; lengths that a capture
//! claims are not allocated.

mod make;

use baton_analyse::Analysis;
use baton_analyse::coalesce::{Checksums, Limits, Profile};
use baton_analyse::read::Input;
use baton_analyse::study::{self, Progress};
use baton_analyse::sweep::Sweep;
use make::{MICROS, Order, ethernet, pcap_header, pcap_record, segment};
use std::io::{self, Read};

#[path = "sys/counting.rs"]
mod sys;

use sys::{live, peak, reset};

/// A capture that never was: many connections, made as it is read.
struct Endless {
    left: u64,
    made: u64,
    waiting: Vec<u8>,
    at: usize,
}

impl Endless {
    fn new(frames: u64) -> Endless {
        let header = pcap_header(Order { big: false }, MICROS, 1);
        Endless { left: frames, made: 0, waiting: header, at: 0 }
    }
}

impl Read for Endless {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.waiting.len() && self.left > 0 {
            let n = self.made;
            // A new connection for every second frame; addresses change as well as ports.
            let mut packet = segment((n / 2) as u16, (n * 100) as u32, 100);
            packet[12..16].copy_from_slice(&((n >> 10) as u32).to_be_bytes());
            let frame = ethernet(&[], 0x0800, &packet);
            self.waiting = pcap_record(Order { big: false }, n as u32, 0, frame.len() as u32, &frame);
            (self.at, self.made, self.left) = (0, n + 1, self.left - 1);
        }
        let rest = &self.waiting[self.at..];
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        self.at += len;
        Ok(len)
    }
}

/// Bytes that reading so many frames needs at once.
fn needs(frames: u64) -> usize {
    let before = live();
    reset();
    let mut analysis = Analysis::new(Limits::of(Profile::Rsc), Checksums::Trust);
    study::read(Input::read(Endless::new(frames)).unwrap(), &mut analysis, &Progress::default()).unwrap();
    assert_eq!(analysis.tally().frames_in, frames);
    peak() - before
}

#[test]
fn memory_does_not_grow_with_a_capture() {
    let (short, long) = (needs(20_000), needs(1_000_000));
    assert!(long < 16 << 20, "{long} bytes");
    assert!(long < short + (64 << 10), "{short} bytes for a short capture, {long} for a long one");

    // A sweep numbers connections, up to a bound.
    let before = live();
    reset();
    let mut sweep = Sweep::new(Limits::of(Profile::Rsc), Checksums::Trust);
    study::read(Input::read(Endless::new(300_000)).unwrap(), &mut sweep, &Progress::default()).unwrap();
    assert!(peak() - before < 48 << 20, "{} bytes for a sweep", peak() - before);

    // A record and blocks that claim to be longer than memory.
    let order = Order { big: false };
    let record = [pcap_header(order, MICROS, 1), order.words(&[0, 0, 0xffff_fff0, 60])].concat();
    let block = [make::section(order), order.words(&[6, 0xffff_fff0, 0, 0])].concat();
    let unknown = [make::section(order), order.words(&[99, 0xffff_fff0, 0, 0])].concat();
    for capture in [record, block, unknown] {
        let before = live();
        reset();
        let mut analysis = Analysis::new(Limits::of(Profile::Rsc), Checksums::Trust);
        let input = Input::read(io::Cursor::new(capture)).unwrap();
        study::read(input, &mut analysis, &Progress::default()).unwrap_err();
        assert!(peak() - before < 16 << 20);
    }
}

#[global_allocator]
static COUNTING: sys::Counting = sys::Counting;
