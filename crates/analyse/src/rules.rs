//! The rules by which frames are joined, and how they are told.

use crate::gro;
use baton_coalesce::{Checksums, Limits, Profile, Window};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The rules that a joiner is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// Those of RSC §4 or RA §3.
    Paper(Limits),
    /// Those of Linux.
    Gro(gro::Rules),
}

impl Given {
    /// The name of the profile, as on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            Given::Paper(limits) => limits.profile.name(),
            Given::Gro(_) => "gro",
        }
    }
}

impl Given {
    /// The other profiles, by their defaults: they are shown beside.
    pub fn others(&self) -> Vec<Given> {
        let papers = [Profile::Rsc, Profile::Ra].map(|profile| Limits::of(profile).into());
        let all = papers.into_iter().chain([gro::Rules::default().into()]);
        all.filter(|rules: &Given| rules.name() != self.name()).collect()
    }
}

impl From<Limits> for Given {
    fn from(limits: Limits) -> Given {
        Given::Paper(limits)
    }
}

impl From<gro::Rules> for Given {
    fn from(rules: gro::Rules) -> Given {
        Given::Gro(rules)
    }
}

/// The rules that were applied.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The paper that the rules are from, or `gro` for Linux's.
    pub profile: Cow<'static, str>,
    /// Runs held at a time.
    pub cache: u32,
    /// Bytes of payload in a run; in `ra` of a run with its headers.
    pub buffer: u32,
    /// Segments in a run.
    pub limit: Option<u32>,
    /// Frames in a window.
    pub window_packets: Option<u32>,
    /// Length of a window, in microseconds.
    pub window_us: Option<f64>,
    /// `trust` or `verify`.
    pub checksum: Cow<'static, str>,
}

impl Rules {
    /// The rules in words and numbers.
    pub fn of(rules: &Given, checksums: Checksums) -> Rules {
        let window = match rules {
            Given::Paper(limits) => limits.window,
            Given::Gro(rules) => rules.window,
        };
        let (window_packets, window_us) = match window {
            Window::Frames(frames) => (Some(frames.get()), None),
            Window::Time(ns) => (None, Some(ns.get() as f64 / 1e3)),
            Window::Input => (None, None),
        };
        let (cache, buffer, limit) = match rules {
            Given::Paper(limits) => {
                let buffer = if limits.profile == Profile::Ra { Limits::RA_BYTES } else { limits.buffer };
                (limits.cache.get(), buffer, limits.segments.map(|segments| segments.get()))
            }
            Given::Gro(rules) => (rules.lists.held(), gro::BYTES, None),
        };
        Rules {
            profile: rules.name().into(),
            cache,
            buffer,
            limit,
            window_packets,
            window_us,
            checksum: if checksums == Checksums::Verify { "verify" } else { "trust" }.into(),
        }
    }
}
