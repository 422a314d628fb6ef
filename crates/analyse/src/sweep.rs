//! How much joining depends on the memory and time given to it: RSC Figures 4 to 8 for
//! any capture, in one pass.
//!
//! A frame is parsed once and shown to a coalescer for each point. The points vary one number
//! at a time and hold the others at the base. To vary connections, a point looks only at the
//! first connections of the capture, as many as its value says, as if there were no others;
//! `u32::MAX` stands for the whole capture, including frames of no connection.

use crate::classifier::{Classifier, Tunnelled};
use crate::gain::Gain;
use crate::link::{self, ReservedBits, UnknownLinks};
use crate::read::{self, Frame};
use crate::study::Study;
use baton_coalesce::{Class, Coalescer, Flow, Limits, Profile, Window};
use serde::Serialize;
use std::collections::HashMap;
use std::num::NonZeroU32;

/// The most connections that are numbered; later ones are only in points for the whole capture.
const CONNECTIONS_MAX: usize = 65_536;

/// The parameter that a point varies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// How many of the first connections are looked at (RSC Fig. 4 and 5).
    Connections,
    /// Runs held at a time (Fig. 6).
    Cache,
    /// Bytes of a run (Fig. 7).
    Buffer,
    /// Frames in a window (Fig. 8).
    Window,
    /// Segments in a run (RA Fig. 11).
    Limit,
}

impl Axis {
    /// All of them, in the order of the figures.
    pub const ALL: [Axis; 5] = [Axis::Connections, Axis::Cache, Axis::Buffer, Axis::Window, Axis::Limit];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Axis::Connections => "connections",
            Axis::Cache => "cache",
            Axis::Buffer => "buffer",
            Axis::Window => "window",
            Axis::Limit => "limit",
        }
    }

    /// The unit of its numbers.
    pub const fn about(self) -> &'static str {
        match self {
            Axis::Connections => "the capture's first connections, alone",
            Axis::Cache => "runs held at a time",
            Axis::Buffer => "bytes of payload in a run",
            Axis::Window => "frames in a moderation window",
            Axis::Limit => "segments in a run",
        }
    }

    /// The values that are looked at unless told otherwise.
    pub const fn values(self) -> &'static [u32] {
        match self {
            Axis::Connections => &[1, 2, 4, 8, 16, 30, 60, 90],
            Axis::Cache => &[1, 2, 3, 4, 5, 6, 8, 16, 64],
            Axis::Buffer => &[2048, 4096, 8192, 16_384, 32_768, 65_536],
            Axis::Window => &[8, 16, 20, 32, 64, 128, 256],
            Axis::Limit => &[1, 2, 3, 5, 10, 20, 44],
        }
    }

    /// True if it means something for `profile`.
    pub const fn is_of(self, profile: Profile) -> bool {
        !matches!((self, profile), (Axis::Buffer, Profile::Ra))
    }

    fn apply(self, base: Limits, value: u32) -> Option<Limits> {
        let number = NonZeroU32::new(value)?;
        Some(match self {
            Axis::Connections => base,
            Axis::Cache => Limits { cache: number, ..base },
            Axis::Buffer => Limits { buffer: value, ..base },
            Axis::Window => Limits { window: Window::Frames(number), ..base },
            Axis::Limit => Limits { segments: Some(number), ..base },
        })
    }
}

/// The result of one point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Point {
    /// The parameter that is varied.
    pub axis: Axis,
    /// Value of the swept parameter, in its unit.
    pub value: u32,
    /// The frames that it joined.
    #[serde(flatten)]
    pub gain: Gain,
}

/// One coalescer for each point.
pub struct Sweep {
    base: Limits,
    classifier: Classifier,
    points: Vec<(Point, Coalescer)>,
    numbers: HashMap<Flow, u32>,
    last_ns: u64,
    unknown_links: UnknownLinks,
    reserved_bits: ReservedBits,
}

impl Sweep {
    /// The default values of all axes around `base`.
    pub fn new(base: Limits, classifier: impl Into<Classifier>) -> Sweep {
        let axes = Axis::ALL.into_iter().filter(|axis| axis.is_of(base.profile));
        let points = axes.flat_map(|axis| axis.values().iter().map(move |&value| (axis, value)));
        Sweep::of(base, classifier, points)
    }

    /// These values, 0 left out.
    pub fn of(base: Limits, classifier: impl Into<Classifier>, points: impl IntoIterator<Item = (Axis, u32)>) -> Sweep {
        let point = |(axis, value): (Axis, u32)| {
            let limits = axis.apply(base, value)?;
            let point = Point { axis, value, gain: Gain::default() };
            Some((point, Coalescer::new(limits)))
        };
        let points = points.into_iter().filter_map(point).collect();
        Sweep {
            base,
            classifier: classifier.into(),
            points,
            numbers: HashMap::new(),
            last_ns: 0,
            unknown_links: UnknownLinks::default(),
            reserved_bits: ReservedBits::default(),
        }
    }

    /// The base values, which a point keeps for the axes that it does not vary.
    pub fn base(&self) -> &Limits {
        &self.base
    }

    /// The results of all points.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().map(|(point, _)| point)
    }

    /// Frames that no point could read.
    pub fn unknown_links(&self) -> &UnknownLinks {
        &self.unknown_links
    }

    /// Reserved bits above the link type.
    pub fn reserved_bits(&self) -> ReservedBits {
        self.reserved_bits
    }

    /// TCP segments in tunnels.
    pub fn tunnelled(&self) -> &Tunnelled {
        &self.classifier.tunnelled
    }

    /// The number of the connection that a frame belongs to, by order of appearance.
    fn number(&mut self, class: &Class) -> u32 {
        let flow = match class {
            Class::Data(segment) => segment.flow,
            Class::Bypass { flow: Some(flow), .. } => *flow,
            Class::Bypass { flow: None, .. } => return u32::MAX,
        };
        let connection = flow.min(flow.reversed());
        let next = self.numbers.len();
        if next >= CONNECTIONS_MAX {
            return self.numbers.get(&connection).copied().unwrap_or(u32::MAX);
        }
        *self.numbers.entry(connection).or_insert(next as u32)
    }
}

impl read::Sink for Sweep {
    fn frame(&mut self, frame: &Frame<'_>) {
        self.last_ns = frame.time_ns;
        self.unknown_links.note(frame.link);
        let class = self.classifier.classify(&mut link::frame(frame));
        let number = self.number(&class);
        for (point, coalescer) in &mut self.points {
            if point.axis != Axis::Connections || number < point.value || point.value == u32::MAX {
                coalescer.handle(&class, frame.time_ns, (), &mut ());
            }
        }
    }

    fn reserved_bits(&mut self, bits: u32) {
        self.reserved_bits.note(bits);
    }
}

impl Study for Sweep {
    fn end(&mut self) {
        for (point, coalescer) in &mut self.points {
            point.gain.take(coalescer, self.last_ns);
        }
        self.numbers.clear();
    }

    fn merge(&mut self, other: Sweep) {
        for ((ours, _), (theirs, _)) in self.points.iter_mut().zip(&other.points) {
            ours.gain.merge(&theirs.gain);
        }
        self.unknown_links.merge(&other.unknown_links);
        self.reserved_bits.merge(other.reserved_bits);
        self.classifier.tunnelled.merge(&other.classifier.tunnelled);
    }
}
