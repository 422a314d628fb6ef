//! Whatever joins frames: a coalescer by the rules of a paper, or a model of Linux's.

use crate::gro::{self, Flush, Gro};
use crate::rules::Given;
use baton_coalesce::{self as coalesce, Cause, Class, Coalescer, Frame, Reason, Verdict};
use std::collections::BTreeMap;

/// A coalescer of either kind.
#[derive(Debug)]
pub enum Joiner {
    Paper(Coalescer),
    Gro(Gro),
}

/// The fate of a frame under the rules of either kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Paper(Verdict),
    Gro(gro::Fate),
}

impl Fate {
    /// True if the frame goes on alone.
    #[inline]
    pub fn is_alone(self) -> bool {
        matches!(self, Fate::Paper(Verdict::Bypass(_)) | Fate::Gro(gro::Fate::Alone(_)))
    }

    /// Whether the frame begins a run (`start`), is appended to one (`append`) or goes on alone (`alone`), and why it
    /// goes on alone or did not fit the run before; empty without a reason.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Fate::Paper(Verdict::Start) | Fate::Gro(gro::Fate::Held(None)) => ("start", ""),
            Fate::Paper(Verdict::Flush(cause)) => ("start", cause.name()),
            Fate::Gro(gro::Fate::Held(Some(cause))) => ("start", cause.name()),
            Fate::Paper(Verdict::Merge) | Fate::Gro(gro::Fate::Joined) => ("append", ""),
            Fate::Paper(Verdict::Bypass(reason)) => ("alone", reason.name()),
            Fate::Gro(gro::Fate::Alone(alone)) => ("alone", alone.name()),
        }
    }
}

/// Counts of the fates of all frames.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    pub frames_in: u64,
    pub frames_out: u64,
    pub eliminated: u64,
    pub runs: u64,
    /// Segments that were held, even if alone.
    pub segments: u64,
    pub reasons: BTreeMap<&'static str, u64>,
    pub causes: BTreeMap<&'static str, u64>,
}

impl Joiner {
    pub fn new(rules: &Given) -> Joiner {
        match rules {
            Given::Paper(limits) => Joiner::Paper(Coalescer::new(*limits)),
            Given::Gro(rules) => Joiner::Gro(Gro::new(*rules)),
        }
    }

    /// Takes in a frame that arrived at `now_ns`.
    #[inline]
    pub fn handle<S>(&mut self, frame: &Frame<'_>, class: &Class, now_ns: u64, sink: &mut S) -> Fate
    where
        S: coalesce::Sink<u64> + gro::Sink,
    {
        match self {
            Joiner::Paper(coalescer) => Fate::Paper(coalescer.handle(class, now_ns, now_ns, sink)),
            Joiner::Gro(gro) => Fate::Gro(gro.handle(frame, class, now_ns, sink)),
        }
    }

    /// Ends all runs, and begins anew.
    pub fn finish<S>(&mut self, now_ns: u64, sink: &mut S) -> Outcome
    where
        S: coalesce::Sink<u64> + gro::Sink,
    {
        match self {
            Joiner::Paper(coalescer) => {
                coalescer.flush(now_ns, sink);
                let counts = *coalescer.counts();
                *coalescer = Coalescer::new(*coalescer.limits());
                let ended = Cause::ALL.map(|cause| (cause.name(), counts.flushed(cause)));
                Outcome {
                    frames_in: counts.frames_in(),
                    frames_out: counts.frames_out(),
                    eliminated: counts.eliminated(),
                    runs: counts.runs,
                    segments: ended.iter().map(|(_, runs)| runs).sum::<u64>() + counts.eliminated(),
                    reasons: named(
                        Reason::ALL.map(|reason| (reason.name(), counts.of(Verdict::Bypass(reason)))).into_iter(),
                    ),
                    causes: named(ended.into_iter()),
                }
            }
            Joiner::Gro(gro) => {
                gro.flush(now_ns, sink);
                let counts = *gro.counts();
                *gro = Gro::new(*gro.rules());
                Outcome {
                    frames_in: counts.frames_out() + counts.joined,
                    frames_out: counts.frames_out(),
                    eliminated: counts.joined,
                    runs: counts.runs,
                    segments: counts.packets() + counts.joined,
                    reasons: named(counts.alone()),
                    causes: named(Flush::ALL.map(|cause| (cause.name(), counts.flushed(cause))).into_iter()),
                }
            }
        }
    }
}

/// The ones that occurred.
fn named(all: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<&'static str, u64> {
    all.filter(|(_, count)| *count > 0).collect()
}
