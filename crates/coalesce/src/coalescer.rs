//! The decisions: what is appended, what is flushed, in what order.

use crate::cache::Cache;
use crate::classify::classify;
use crate::frame::{Checksums, Class, Frame, Segment};
use crate::profile::{Limits, Profile, Window};
use crate::run::Run;
use crate::verdict::{Cause, Counts, Reason, Verdict};

/// Receives what becomes of each frame. `H` is the caller's handle of a frame: an
/// index in a burst, a buffer, its time, or `()`.
///
/// A slot is a number below [`Limits::cache`]; its run begins with `start` and ends
/// with `flush`, and in between belongs to one connection.
pub trait Sink<H> {
    /// The frame goes on alone, unchanged, now.
    fn pass(&mut self, frame: H, reason: Reason);

    /// The frame is the first of a run.
    fn start(&mut self, slot: u32, segment: &Segment, frame: H);

    /// The frame is the next of a run.
    fn append(&mut self, slot: u32, segment: &Segment, frame: H);

    /// The run goes on, now: at `at_ns`, which for a window in time is its end.
    fn flush(&mut self, slot: u32, run: &Run, cause: Cause, at_ns: u64);
}

/// A sink for callers that need only the [`Counts`].
impl<H> Sink<H> for () {
    fn pass(&mut self, _: H, _: Reason) {}
    fn start(&mut self, _: u32, _: &Segment, _: H) {}
    fn append(&mut self, _: u32, _: &Segment, _: H) {}
    fn flush(&mut self, _: u32, _: &Run, _: Cause, _: u64) {}
}

/// A cache of runs and the rules by which they grow.
#[derive(Clone, Debug)]
pub struct Coalescer {
    limits: Limits,
    cache: Cache,
    counts: Counts,
    /// Most bytes of a run, by the profile's measure.
    max_bytes: u32,
    max_segments: u32,
    /// Frames since the window began.
    window_frames: u32,
    /// When it began, if a frame has come since.
    window_start_ns: Option<u64>,
    /// The run that the last frame went into, as long as it is held.
    last: Option<u32>,
}

impl Coalescer {
    /// An empty coalescer. It allocates only here (about 250 bytes a run).
    pub fn new(limits: Limits) -> Coalescer {
        Coalescer {
            limits,
            cache: Cache::new(limits.cache.get()),
            counts: Counts::default(),
            max_bytes: match limits.profile {
                Profile::Rsc => limits.buffer,
                Profile::Ra => Limits::RA_BYTES,
            },
            max_segments: limits.segments.map_or(u32::MAX, |segments| segments.get()),
            window_frames: 0,
            window_start_ns: None,
            last: None,
        }
    }

    /// The limits that it was made with.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts so far.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// True if no run is held.
    pub fn is_empty(&self) -> bool {
        self.cache.oldest().is_none()
    }

    /// Takes in a frame that arrived at `now_ns`.
    #[inline]
    pub fn handle_frame<H, S: Sink<H>>(
        &mut self,
        frame: &Frame<'_>,
        checksums: Checksums,
        now_ns: u64,
        handle: H,
        sink: &mut S,
    ) -> Verdict {
        self.handle(&classify(frame, checksums), now_ns, handle, sink)
    }

    /// The same for a frame that has been looked at: several coalescers can share one
    /// classification.
    #[inline]
    pub fn handle<H, S: Sink<H>>(&mut self, class: &Class, now_ns: u64, handle: H, sink: &mut S) -> Verdict {
        self.begin(now_ns, sink);
        let verdict = match class {
            Class::Data(segment) => self.on_segment(segment, now_ns, handle, sink),
            Class::Bypass { reason, flow } => {
                if let Some(slot) = flow.as_ref().and_then(|flow| self.cache.find(flow)) {
                    self.end(slot, Cause::Bypass, now_ns, sink);
                }
                self.pass(*reason, handle, sink);
                Verdict::Bypass(*reason)
            }
        };
        self.conclude(verdict, now_ns, sink);
        verdict
    }

    /// The same for a data segment with the headers of the frame handled last, but for sequence
    /// number and PSH: only the remaining facts are checked. This is header prediction (LA
    /// §3.2).
    #[inline]
    pub fn handle_next<H, S: Sink<H>>(&mut self, segment: &Segment, now_ns: u64, handle: H, sink: &mut S) -> Verdict {
        self.begin(now_ns, sink);
        let verdict = match self.last {
            Some(slot) if self.continues(slot, segment) => {
                self.append(slot, segment, now_ns, handle, sink);
                Verdict::Merge
            }
            _ => self.on_segment(segment, now_ns, handle, sink),
        };
        self.conclude(verdict, now_ns, sink);
        verdict
    }

    /// The work before a frame's verdict.
    #[inline]
    fn begin<H, S: Sink<H>>(&mut self, now_ns: u64, sink: &mut S) {
        if let Window::Time(_) = self.limits.window {
            self.expire(now_ns, sink);
            self.window_start_ns.get_or_insert(now_ns);
        }
    }

    /// The work after a frame's verdict.
    #[inline]
    fn conclude<H, S: Sink<H>>(&mut self, verdict: Verdict, now_ns: u64, sink: &mut S) {
        self.counts.note(verdict);
        if let Window::Frames(frames) = self.limits.window {
            self.window_frames += 1;
            if self.window_frames >= frames.get() {
                self.end_all(Cause::Window, now_ns, sink);
            }
        }
    }

    /// Flushes all runs if a window in time has ended by `now_ns`. Frames do this themselves;
    /// call it when none arrive. If the clock was set back to before the window, that has ended, too.
    #[inline]
    pub fn expire<H, S: Sink<H>>(&mut self, now_ns: u64, sink: &mut S) {
        let (Window::Time(length), Some(start)) = (self.limits.window, self.window_start_ns) else { return };
        if now_ns < start {
            self.end_all(Cause::Window, start, sink);
        } else if now_ns - start >= length.get() {
            self.end_all(Cause::Window, start.saturating_add(length.get()), sink);
        }
    }

    /// Flushes all runs: the input is empty for now, or at its end.
    #[inline]
    pub fn flush<H, S: Sink<H>>(&mut self, now_ns: u64, sink: &mut S) {
        self.end_all(Cause::Input, now_ns, sink);
    }

    #[inline]
    fn on_segment<H, S: Sink<H>>(&mut self, segment: &Segment, now_ns: u64, handle: H, sink: &mut S) -> Verdict {
        let verdict = match self.cache.find(&segment.flow) {
            Some(slot) => match self.refusal(slot, segment) {
                None => {
                    self.append(slot, segment, now_ns, handle, sink);
                    return Verdict::Merge;
                }
                Some(cause) => {
                    let alone = self.alone(segment);
                    self.end(slot, if alone.is_some() { Cause::Bypass } else { cause }, now_ns, sink);
                    alone.map_or(Verdict::Flush(cause), Verdict::Bypass)
                }
            },
            None => self.alone(segment).map_or(Verdict::Start, Verdict::Bypass),
        };
        match verdict {
            Verdict::Bypass(reason) => self.pass(reason, handle, sink),
            _ => self.start(segment, now_ns, handle, sink),
        }
        verdict
    }

    #[inline]
    fn pass<H, S: Sink<H>>(&mut self, reason: Reason, handle: H, sink: &mut S) {
        self.last = None;
        sink.pass(handle, reason);
    }

    /// Why a segment cannot be appended to the run of its connection.
    #[inline]
    fn refusal(&self, slot: u32, segment: &Segment) -> Option<Cause> {
        let run = self.cache.run(slot);
        run.refuses(segment).or((!self.has_room(run, segment)).then_some(Cause::Size))
    }

    /// True if a segment with the headers of a run's last, but for sequence number and PSH, can
    /// be appended.
    #[inline]
    fn continues(&self, slot: u32, segment: &Segment) -> bool {
        let run = self.cache.run(slot);
        let continues = segment.seq == run.end() && self.has_room(run, segment);
        debug_assert!(!continues || run.flow() == &segment.flow && run.refuses(segment).is_none());
        continues
    }

    #[inline]
    fn has_room(&self, run: &Run, segment: &Segment) -> bool {
        let bytes = self.overhead(&run.first) + u64::from(run.payload_len) + u64::from(segment.payload_len);
        bytes <= u64::from(self.max_bytes)
    }

    /// Why a segment that cannot be appended does not start a run either.
    #[inline]
    fn alone(&self, segment: &Segment) -> Option<Reason> {
        if self.limits.profile == Profile::Rsc && segment.push {
            return Some(Reason::PshAlone);
        }
        let bytes = self.overhead(segment) + u64::from(segment.payload_len);
        (bytes > u64::from(self.max_bytes)).then_some(Reason::TooBig)
    }

    /// Bytes besides payload that count towards a run's size.
    #[inline]
    fn overhead(&self, first: &Segment) -> u64 {
        match self.limits.profile {
            Profile::Rsc => 0,
            Profile::Ra => u64::from(first.headers_len()),
        }
    }

    #[inline]
    fn append<H, S: Sink<H>>(&mut self, slot: u32, segment: &Segment, now_ns: u64, handle: H, sink: &mut S) {
        self.last = Some(slot);
        self.cache.touch(slot);
        let run = self.cache.run_mut(slot);
        run.append(segment);
        let full = run.segments >= self.max_segments;
        sink.append(slot, segment, handle);
        if self.limits.profile == Profile::Rsc && segment.push {
            self.end(slot, Cause::Push, now_ns, sink);
        } else if full {
            self.end(slot, Cause::Limit, now_ns, sink);
        }
    }

    #[inline]
    fn start<H, S: Sink<H>>(&mut self, segment: &Segment, now_ns: u64, handle: H, sink: &mut S) {
        if self.cache.is_full()
            && let Some(oldest) = self.cache.oldest()
        {
            self.end(oldest, Cause::Evicted, now_ns, sink);
        }
        let slot = self.cache.insert(Run::new(*segment, now_ns));
        self.last = Some(slot);
        sink.start(slot, segment, handle);
        if self.max_segments == 1 {
            self.end(slot, Cause::Limit, now_ns, sink);
        }
    }

    /// Flushes a run.
    #[inline]
    fn end<H, S: Sink<H>>(&mut self, slot: u32, cause: Cause, at_ns: u64, sink: &mut S) {
        let run = self.cache.run(slot);
        self.counts.note_flush(cause, run.segments);
        sink.flush(slot, run, cause, at_ns);
        self.cache.remove(slot);
        self.last = None;
    }

    /// Flushes all runs, the one least recently appended to first, and ends the window.
    fn end_all<H, S: Sink<H>>(&mut self, cause: Cause, at_ns: u64, sink: &mut S) {
        (self.window_frames, self.window_start_ns, self.last) = (0, None, None);
        for (slot, run) in self.cache.runs() {
            self.counts.note_flush(cause, run.segments);
            sink.flush(slot, run, cause, at_ns);
        }
        self.cache.clear();
    }
}
