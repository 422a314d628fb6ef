//! One capture and one coalescer, with the fate of each frame.

use crate::classifier::{Classifier, Tunnelled};
use crate::clock::Clock;
use crate::delay::{Arrivals, Delays};
use crate::flows::{FlowCounts, Flows};
use crate::gro;
use crate::joiner::{Joiner, Outcome};
use crate::link::{self, ReservedBits, UnknownLinks};
use crate::names;
use crate::read::{self, Frame};
use crate::receiver::Acks;
use crate::rules::{Given, Rules};
use crate::sizes::Sizes;
use crate::study::Study;
use baton_coalesce::{Cause, Class, Flow, Reason, Run, Segment, Sink};
use baton_wire::seq::Seq;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Run lengths below this have a count of their own; longer ones share one for each
/// power of two.
const EXACT: u32 = 64;
/// The first shared count is of lengths from 2 to this power on.
const EXACT_POWER: u32 = EXACT.ilog2();
const BUCKETS: usize = (EXACT + 32 - EXACT_POWER) as usize;

/// How many runs of which length there were. Single segments count as runs of one.
///
/// Its serialized form is a list of shortest length and number of runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<(u32, u64)>", try_from = "Vec<(u32, u64)>")]
pub struct Lengths([u64; BUCKETS]);

impl Default for Lengths {
    fn default() -> Self {
        Lengths([0; BUCKETS])
    }
}

impl Lengths {
    #[inline]
    fn add(&mut self, segments: u32) {
        self.0[Self::bucket(segments)] += 1;
    }

    #[inline]
    fn bucket(segments: u32) -> usize {
        let bucket = if segments < EXACT { segments } else { EXACT + segments.ilog2() - EXACT_POWER };
        bucket as usize
    }

    fn merge(&mut self, other: &Lengths) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// Smallest and largest length, and the number of runs, where there are any.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        let bounds = |bucket: u32| match bucket.checked_sub(EXACT) {
            None => (bucket, bucket),
            Some(above) => {
                let first = EXACT << above;
                (first, first - 1 + first)
            }
        };
        self.0.into_iter().enumerate().filter(|(_, runs)| *runs > 0).map(move |(bucket, runs)| {
            let (first, last) = bounds(bucket as u32);
            (first, last, runs)
        })
    }
}

impl From<Lengths> for Vec<(u32, u64)> {
    fn from(lengths: Lengths) -> Self {
        lengths.iter().map(|(first, _, runs)| (first, runs)).collect()
    }
}

impl TryFrom<Vec<(u32, u64)>> for Lengths {
    type Error = String;

    fn try_from(counts: Vec<(u32, u64)>) -> Result<Lengths, String> {
        let mut lengths = Lengths::default();
        for (first, runs) in counts {
            if first > EXACT && !first.is_power_of_two() {
                return Err(format!("no count of runs begins at {first} segments"));
            }
            let count = &mut lengths.0[Self::bucket(first)];
            *count = count.saturating_add(runs);
        }
        Ok(lengths)
    }
}

/// The sums of everything a [`Sink`] is told.
#[derive(Default)]
struct Heard {
    arrivals: Arrivals,
    delays: Delays,
    lengths: Lengths,
    flows: Flows,
    acks: [Acks; 2],
}

/// A frame's handle is its time.
impl Sink<u64> for Heard {
    fn pass(&mut self, _: u64, _: Reason) {}

    fn start(&mut self, slot: u32, _: &Segment, time_ns: u64) {
        self.arrivals.start(slot);
        self.arrivals.add(slot, time_ns);
    }

    fn append(&mut self, slot: u32, _: &Segment, time_ns: u64) {
        self.arrivals.add(slot, time_ns);
    }

    fn flush(&mut self, slot: u32, run: &Run, _: Cause, at_ns: u64) {
        self.run(slot, at_ns, run.flow(), run.segments, run.first.seq, run.payload_len);
    }
}

impl gro::Sink for Heard {
    fn start(&mut self, slot: u32, time_ns: u64) {
        self.arrivals.start(slot);
        self.arrivals.add(slot, time_ns);
    }

    fn append(&mut self, slot: u32, time_ns: u64) {
        self.arrivals.add(slot, time_ns);
    }

    fn flush(&mut self, slot: u32, run: &gro::Run, at_ns: u64) {
        self.run(slot, at_ns, &run.flow, run.segments, run.first, run.payload_len);
    }
}

impl Heard {
    /// The run in `slot` goes on at `at_ns`.
    fn run(&mut self, slot: u32, at_ns: u64, flow: &Flow, segments: u32, first: Seq, payload_len: u32) {
        self.arrivals.flush(slot, segments, at_ns, &mut self.delays);
        self.lengths.add(segments);
        let counts = FlowCounts { frames_in: segments.into(), frames_out: 1, payload_bytes: payload_len.into() };
        let acks = self.flows.add(flow, counts).take(first, first + payload_len, segments);
        self.acks[usize::from(flow.is_v6())] += acks;
    }
}

/// The outcome of other rules on the same frames.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// The rules that made it.
    pub rules: Rules,
    /// Frames and runs that came out.
    pub frames_out: u64,
    /// Frames that were appended to another.
    pub eliminated: u64,
    /// Runs of two segments or more.
    pub runs: u64,
    /// Eligible segments that were in a run, even if alone.
    pub segments: u64,
}

/// The counts of a capture, or of several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Packet records.
    pub frames_in: u64,
    /// Frames and runs that came out.
    pub frames_out: u64,
    /// Frames that were appended to another.
    pub eliminated: u64,
    /// Runs of two segments or more.
    pub runs: u64,
    /// Frames that went on alone, by reason.
    #[serde(deserialize_with = "names::reasons")]
    pub reasons: BTreeMap<&'static str, u64>,
    /// Runs of any length, by what ended them.
    #[serde(deserialize_with = "names::causes")]
    pub causes: BTreeMap<&'static str, u64>,
    /// Bytes on the wire.
    pub wire_bytes: u64,
    /// Eligible segments that were in a run, even if alone.
    pub segments: u64,
    /// Frames whose link type is not known, by link type.
    pub unknown_links: UnknownLinks,
    /// Reserved bits above the link type.
    pub reserved_bits: ReservedBits,
    /// Runs by length.
    pub lengths: Lengths,
    /// Flows.
    pub flows: Flows,
    /// Delays.
    pub delays: Delays,
    /// Acknowledgments over IPv4, and over IPv6.
    pub acks: [Acks; 2],
    /// Bytes on the wire of frames that only acknowledge (`no_payload`).
    pub ack_bytes: u64,
    /// The earliest of the captures' first stamps, in nanoseconds since 1970.
    pub start_ns: Option<u64>,
    /// Time that passed in the captures, in nanoseconds, each by itself.
    pub passed_ns: u64,
    /// Frames whose time stamps went back.
    pub stamps_back: u64,
    /// Records that claim a length which their IP header contradicts; their wire bytes are the header's.
    pub lengths_bounded: u64,
    /// Segments that were joined before the capture, or not cut yet: it was taken above GRO or TSO.
    pub joined_before: u64,
    /// TCP segments in tunnels. Those that a coalescer does not see are among the frames that went on alone.
    pub tunnelled: Tunnelled,
    /// Other rules on the same frames.
    pub beside: Vec<Beside>,
}

/// A coalescer over a capture, and others beside it that are only counted.
pub struct Analysis {
    joiner: Joiner,
    beside: Vec<(Rules, Joiner)>,
    classifier: Classifier,
    heard: Heard,
    wire_bytes: u64,
    ack_bytes: u64,
    unknown_links: UnknownLinks,
    reserved_bits: ReservedBits,
    lengths_bounded: u64,
    sizes: Sizes,
    clock: Clock,
    done: Tally,
}

impl Analysis {
    /// Nothing read yet.
    pub fn new(rules: impl Into<Given>, classifier: impl Into<Classifier>) -> Analysis {
        Analysis {
            joiner: Joiner::new(&rules.into()),
            beside: Vec::new(),
            classifier: classifier.into(),
            heard: Heard::default(),
            wire_bytes: 0,
            ack_bytes: 0,
            unknown_links: UnknownLinks::default(),
            reserved_bits: ReservedBits::default(),
            lengths_bounded: 0,
            sizes: Sizes::default(),
            clock: Clock::default(),
            done: Tally::default(),
        }
    }

    /// The same with other rules beside it, which see the same frames.
    pub fn beside(mut self, rules: &[Given]) -> Analysis {
        let checksums = self.classifier.checksums();
        self.beside = rules.iter().map(|rules| (Rules::of(rules, checksums), Joiner::new(rules))).collect();
        self
    }

    /// The counts. Runs that are still held are not included: call [`Study::end`] first.
    pub fn tally(&self) -> &Tally {
        &self.done
    }
}

impl read::Sink for Analysis {
    #[inline]
    fn frame(&mut self, frame: &Frame<'_>) {
        let mut seen = link::frame(frame);
        let wire_len = link::wire_len(&seen);
        self.wire_bytes += u64::from(wire_len);
        self.lengths_bounded += u64::from(wire_len != frame.wire_len);
        self.clock.on(frame.time_ns);
        self.unknown_links.note(frame.link);
        let class = self.classifier.classify(&mut seen);
        if let Class::Data(segment) = &class {
            self.sizes.add(segment.payload_len);
        }
        for (_, joiner) in &mut self.beside {
            joiner.handle(&seen, &class, frame.time_ns, &mut ());
        }
        if let Class::Bypass { reason: Reason::NoPayload, .. } = class {
            self.ack_bytes += u64::from(wire_len);
        }
        let alone = self.joiner.handle(&seen, &class, frame.time_ns, &mut self.heard).is_alone();
        if alone && let Some(flow) = flow_of(&class) {
            let receiver = self.heard.flows.add(flow, counts_alone(&class));
            if let Class::Data(segment) = &class {
                let acks = receiver.take(segment.seq, segment.seq + segment.payload_len, 1);
                self.heard.acks[usize::from(flow.is_v6())] += acks;
            }
        }
    }

    fn reserved_bits(&mut self, bits: u32) {
        self.reserved_bits.note(bits);
    }
}

fn flow_of(class: &Class) -> Option<&Flow> {
    match class {
        Class::Data(segment) => Some(&segment.flow),
        Class::Bypass { flow, .. } => flow.as_ref(),
    }
}

/// The counts that a frame that goes on alone adds to its flow.
fn counts_alone(class: &Class) -> FlowCounts {
    let payload_bytes = match class {
        Class::Data(segment) => segment.payload_len.into(),
        Class::Bypass { .. } => 0,
    };
    FlowCounts { frames_in: 1, frames_out: 1, payload_bytes }
}

impl Study for Analysis {
    fn end(&mut self) {
        let clock = std::mem::take(&mut self.clock);
        let outcome = self.joiner.finish(clock.last_ns(), &mut self.heard);
        let heard = std::mem::take(&mut self.heard);
        let beside = self.beside.iter_mut().map(|(rules, joiner)| {
            let Outcome { frames_out, eliminated, runs, segments, .. } = joiner.finish(clock.last_ns(), &mut ());
            Beside { rules: rules.clone(), frames_out, eliminated, runs, segments }
        });
        self.done.merge(&Tally {
            frames_in: outcome.frames_in,
            frames_out: outcome.frames_out,
            eliminated: outcome.eliminated,
            runs: outcome.runs,
            reasons: outcome.reasons,
            causes: outcome.causes,
            segments: outcome.segments,
            beside: beside.collect(),
            wire_bytes: std::mem::take(&mut self.wire_bytes),
            unknown_links: std::mem::take(&mut self.unknown_links),
            reserved_bits: std::mem::take(&mut self.reserved_bits),
            lengths_bounded: std::mem::take(&mut self.lengths_bounded),
            tunnelled: std::mem::take(&mut self.classifier.tunnelled),
            joined_before: std::mem::take(&mut self.sizes).joined(),
            lengths: heard.lengths,
            flows: heard.flows,
            delays: heard.delays,
            acks: heard.acks,
            ack_bytes: std::mem::take(&mut self.ack_bytes),
            start_ns: clock.first_ns,
            passed_ns: clock.passed_ns,
            stamps_back: clock.back,
        });
    }

    fn merge(&mut self, other: Analysis) {
        self.done.merge(&other.done);
    }
}

impl Tally {
    /// Adds the counts of other captures.
    pub fn merge(&mut self, other: &Tally) {
        self.frames_in += other.frames_in;
        self.frames_out += other.frames_out;
        self.eliminated += other.eliminated;
        self.runs += other.runs;
        self.wire_bytes += other.wire_bytes;
        self.segments += other.segments;
        for (ours, theirs) in [(&mut self.reasons, &other.reasons), (&mut self.causes, &other.causes)] {
            for (name, count) in theirs {
                *ours.entry(name).or_default() += count;
            }
        }
        self.unknown_links.merge(&other.unknown_links);
        self.reserved_bits.merge(other.reserved_bits);
        self.tunnelled.merge(&other.tunnelled);
        self.lengths.merge(&other.lengths);
        self.flows.merge(&other.flows);
        self.delays.merge(&other.delays);
        self.acks.iter_mut().zip(other.acks).for_each(|(ours, theirs)| *ours += theirs);
        self.ack_bytes += other.ack_bytes;
        self.start_ns = self.start_ns.into_iter().chain(other.start_ns).min();
        self.passed_ns = self.passed_ns.saturating_add(other.passed_ns);
        self.stamps_back += other.stamps_back;
        self.lengths_bounded += other.lengths_bounded;
        self.joined_before += other.joined_before;
        if self.beside.is_empty() {
            self.beside.clone_from(&other.beside);
            return;
        }
        for (ours, theirs) in self.beside.iter_mut().zip(&other.beside) {
            ours.frames_out += theirs.frames_out;
            ours.eliminated += theirs.eliminated;
            ours.runs += theirs.runs;
            ours.segments += theirs.segments;
        }
    }
}
