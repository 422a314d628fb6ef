//! One line for each frame of a capture: what becomes of it.
//!
//! ```text
//!   number,time,verdict,reason,run
//!   1,1700000000.000012000,start,,1
//!   2,1700000000.000024000,append,,1
//!   3,1700000000.000030000,alone,no_payload,
//!   4,1700000000.000036000,start,sequence,2
//! ```
//!
//! Frames are numbered from 1, as Wireshark does, and runs by their beginning. The time is in seconds since 1970. A
//! frame that goes on alone has its [`Reason`]; one that starts a run because it did not fit
//! the one of its connection has the [`Cause`] that ended that.
//!
//! Lines are written as frames come; nothing of them is kept.

use crate::classifier::Classifier;
use crate::gro;
use crate::joiner::Joiner;
use crate::link;
use crate::read::{self, Frame};
use crate::rules::Given;
use crate::study::Study;
use baton_coalesce::{Cause, Reason, Run, Segment, Sink};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// The first line.
const HEADER: &str = "number,time,verdict,reason,run\n";
/// Bytes of lines that are written at once.
const PIECE: usize = 64 << 10;
const SECOND_NS: u64 = 1_000_000_000;

/// The place that the lines of all studies go to. Behind the first error nothing more is written.
struct Lines<W> {
    out: W,
    failed: Option<io::Error>,
}

/// A way to the lines, from which studies are made.
pub struct Output<W>(Arc<Mutex<Lines<W>>>);

impl<W: Write> Output<W> {
    /// Begins with the line that names the columns.
    ///
    /// # Errors
    /// The line cannot be written.
    pub fn new(mut out: W) -> io::Result<Output<W>> {
        out.write_all(HEADER.as_bytes())?;
        Ok(Output(Arc::new(Mutex::new(Lines { out, failed: None }))))
    }

    /// A study that writes the lines of one capture at a time.
    pub fn study(&self, rules: &Given, classifier: Classifier) -> Verdicts<W> {
        Verdicts {
            lines: self.0.clone(),
            classifier,
            joiner: Joiner::new(rules),
            runs: Runs::default(),
            frames: 0,
            text: String::new(),
        }
    }

    /// Writes what is still in a buffer of the output.
    ///
    /// # Errors
    /// The first that writing met.
    pub fn finish(self) -> io::Result<()> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match lines.failed.take() {
            Some(error) => Err(error),
            None => lines.out.flush(),
        }
    }
}

/// The numbers of the runs that are held.
#[derive(Default)]
struct Runs {
    by_slot: Vec<u64>,
    begun: u64,
    /// The run of the last frame that is in one.
    last: u64,
}

impl Sink<u64> for Runs {
    fn pass(&mut self, _: u64, _: Reason) {}

    fn start(&mut self, slot: u32, _: &Segment, _: u64) {
        self.begin(slot);
    }

    fn append(&mut self, slot: u32, _: &Segment, _: u64) {
        self.last = self.by_slot[slot as usize];
    }

    fn flush(&mut self, _: u32, _: &Run, _: Cause, _: u64) {}
}

impl gro::Sink for Runs {
    fn start(&mut self, slot: u32, _: u64) {
        self.begin(slot);
    }

    fn append(&mut self, slot: u32, _: u64) {
        self.last = self.by_slot[slot as usize];
    }

    fn flush(&mut self, _: u32, _: &gro::Run, _: u64) {}
}

impl Runs {
    fn begin(&mut self, slot: u32) {
        let slot = slot as usize;
        if slot >= self.by_slot.len() {
            self.by_slot.resize(slot + 1, 0);
        }
        self.begun += 1;
        (self.by_slot[slot], self.last) = (self.begun, self.begun);
    }
}

/// Writes a line for each frame.
pub struct Verdicts<W> {
    lines: Arc<Mutex<Lines<W>>>,
    classifier: Classifier,
    joiner: Joiner,
    runs: Runs,
    frames: u64,
    text: String,
}

impl<W: Write> Verdicts<W> {
    fn write(&mut self) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.failed.is_none() {
            lines.failed = lines.out.write_all(self.text.as_bytes()).err();
        }
        self.text.clear();
    }
}

impl<W: Write> read::Sink for Verdicts<W> {
    fn frame(&mut self, frame: &Frame<'_>) {
        self.frames += 1;
        let mut seen = link::frame(frame);
        let class = self.classifier.classify(&mut seen);
        let fate = self.joiner.handle(&seen, &class, frame.time_ns, &mut self.runs);
        let run = if fate.is_alone() { String::new() } else { self.runs.last.to_string() };
        let (word, reason) = fate.words();
        let (seconds, ns) = (frame.time_ns / SECOND_NS, frame.time_ns % SECOND_NS);
        let _ = writeln!(self.text, "{},{seconds}.{ns:09},{word},{reason},{run}", self.frames);
        if self.text.len() >= PIECE {
            self.write();
        }
    }
}

impl<W: Write + Send> Study for Verdicts<W> {
    fn end(&mut self) {
        self.write();
    }

    fn merge(&mut self, _: Verdicts<W>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_type;
    use baton_coalesce::{Checksums, Limits, Profile};

    /// A writer that is full from the beginning on, but for the line with the names.
    struct Full(bool);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_of_writing_comes_out_at_the_end() {
        let output = Output::new(Full(false)).unwrap();
        let mut study = output.study(&Limits::of(Profile::Rsc).into(), Checksums::Trust.into());
        for n in 0..10_000 {
            read::Sink::frame(
                &mut study,
                &Frame { data: &[0; 60], wire_len: 60, time_ns: n, link: link_type::ETHERNET },
            );
        }
        assert!(study.text.len() < PIECE, "lines are kept");
        study.end();
        drop(study);
        assert_eq!(output.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
