//! Several captures on several cores.
//!
//! Each thread takes the next free file, reads it to its end into a study of its own, and adds
//! that to its results; at the end these are added to one another. No count depends on the
//! order.

use crate::read::{Cut, Damage, Facts, Frame, Input, OpenError, Reader, Sink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// An analysis of the frames of captures.
pub trait Study: Sink + Send {
    /// A capture is at its end.
    fn end(&mut self);

    /// Adds another study's results for other captures.
    fn merge(&mut self, other: Self);
}

/// Two studies look at the same frames.
impl<A: Sink, B: Sink> Sink for (A, B) {
    fn frame(&mut self, frame: &Frame<'_>) {
        self.0.frame(frame);
        self.1.frame(frame);
    }

    fn reserved_bits(&mut self, bits: u32) {
        self.0.reserved_bits(bits);
        self.1.reserved_bits(bits);
    }
}

impl<A: Study, B: Study> Study for (A, B) {
    fn end(&mut self) {
        self.0.end();
        self.1.end();
    }

    fn merge(&mut self, other: (A, B)) {
        self.0.merge(other.0);
        self.1.merge(other.1);
    }
}

/// How far the work has come, for an observer, and a way to stop it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes read of the files, as they are on disk.
    pub bytes: Arc<AtomicU64>,
    /// Frames read.
    pub frames: AtomicU64,
    /// Set to end the work early.
    pub stop: Arc<AtomicBool>,
}

/// How the reading of one file went.
#[derive(Debug)]
pub struct Outcome<D> {
    /// The capture file.
    pub path: PathBuf,
    /// The error that stopped the reading before the file's end.
    pub trouble: Option<Trouble>,
    /// Its size on disk in bytes, if it is a regular file.
    pub bytes: Option<u64>,
    /// The facts that its headers state.
    pub facts: Option<Facts>,
    /// A digest of the study of this file alone; `None` if it could not be opened.
    pub digest: Option<D>,
}

/// An event that stops the reading of a file.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// It could not be opened: nothing counts.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It is damaged: the frames before the damage count.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// It was cut by another process: the frames that were read before count.
    #[error(transparent)]
    Cut(#[from] Cut),
    /// [`Progress::stop`]: what came before counts.
    #[error("stopped before its end")]
    Stopped,
}

/// Counts frames on their way.
struct Counting<'a, S> {
    study: &'a mut S,
    frames: u64,
}

impl<S: Sink> Sink for Counting<'_, S> {
    #[inline]
    fn frame(&mut self, frame: &Frame<'_>) {
        self.frames += 1;
        self.study.frame(frame);
    }

    fn reserved_bits(&mut self, bits: u32) {
        self.study.reserved_bits(bits);
    }
}

/// Reads one capture to its end into `study`.
///
/// # Errors
/// The event that stopped it before its end; the frames before that are in `study`.
pub fn read(input: Input, study: &mut impl Study, progress: &Progress) -> Result<(), Trouble> {
    read_from(&mut Reader::new(input), study, progress)
}

fn read_from(reader: &mut Reader, study: &mut impl Study, progress: &Progress) -> Result<(), Trouble> {
    let mut sink = Counting { study, frames: 0 };
    let outcome = loop {
        let before = sink.frames;
        let more = reader.read(&mut sink);
        progress.frames.fetch_add(sink.frames - before, Ordering::Relaxed);
        match more {
            Ok(true) if progress.stop.load(Ordering::Relaxed) => break Err(Trouble::Stopped),
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(damage) => break Err(reader.cut().map_or(damage.into(), Trouble::from)),
        }
    };
    sink.study.end();
    outcome
}

/// Reads all `files`, on `threads` threads at most, and gives the study of them all with
/// how each went, in their order. Only the `digest` of each file's own study is kept; `each`
/// is shown that study as soon as its file has been read. Threads call both at the same time.
pub fn read_all<S: Study, D: Send>(
    files: &[PathBuf],
    threads: usize,
    make: impl Fn() -> S + Sync,
    digest: impl Fn(&S) -> D + Sync,
    progress: &Progress,
    each: impl Fn(&Outcome<D>, &S) + Sync,
) -> (S, Vec<Outcome<D>>) {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        let mut all = make();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = files.get(at) else { return all };
            let mut study = make();
            let (mut facts, mut kept) = (None, None);
            let trouble = if progress.stop.load(Ordering::Relaxed) {
                Some(Trouble::Stopped)
            } else {
                let input = Input::open(path, &progress.bytes).map_err(Trouble::from);
                let read = input.and_then(|input| {
                    let mut reader = Reader::new(input);
                    let outcome = read_from(&mut reader, &mut study, progress);
                    (facts, kept) = (reader.facts(), Some(digest(&study)));
                    outcome
                });
                read.err()
            };
            let bytes = path.metadata().ok().filter(|facts| facts.is_file()).map(|facts| facts.len());
            let outcome = Outcome { path: path.clone(), trouble, bytes, facts, digest: kept };
            each(&outcome, &study);
            all.merge(study);
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((at, outcome));
        }
    };
    let all = thread::scope(|scope| {
        let others: Vec<_> = (1..threads.clamp(1, files.len().max(1))).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for other in others {
            all.merge(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_unstable_by_key(|(at, _)| *at);
    (all, outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}
