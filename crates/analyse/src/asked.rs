//! The rules as options ask for them: one place for the defaults, the bounds and what has no meaning together.

use crate::gro::{self, Lists};
use crate::rules::Given;
use baton_coalesce::{Limits, Profile, Window};
use std::num::{NonZeroU32, NonZeroU64};

/// Most runs held at a time. A run costs some hundred bytes; this bounds the memory.
pub const CACHE_MAX: u32 = 65_536;

/// The profiles that can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Receive side coalescing in a NIC with buffers (RSC §4).
    Rsc,
    /// Receive aggregation in front of a stack (RA §3).
    Ra,
    /// The generic receive offload of Linux.
    Gro,
}

/// Options, where they are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The profile that was chosen.
    pub kind: Kind,
    /// Most runs held at a time.
    pub cache: Option<u32>,
    /// Most bytes of payload in a run.
    pub buffer: Option<u32>,
    /// Most segments in a run.
    pub limit: Option<u32>,
    /// Frames in a window.
    pub window_packets: Option<u32>,
    /// Length of a window in microseconds.
    pub window_us: Option<u64>,
}

/// An option that is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The option's name, in words with underscores.
    pub option: &'static str,
    /// The reason, as it follows the name in a sentence.
    pub why: String,
    /// The remedy, as an imperative.
    pub remedy: &'static str,
}

fn refuse<T>(option: &'static str, why: impl Into<String>, remedy: &'static str) -> Result<T, Refusal> {
    Err(Refusal { option, why: why.into(), remedy })
}

impl Asked {
    /// The rules that these options ask for.
    ///
    /// # Errors
    /// The first option that is out of range, or has no meaning beside the others.
    pub fn given(&self) -> Result<Given, Refusal> {
        let cache = positive("cache", self.cache)?;
        if let Some(beyond) = cache.filter(|cache| cache.get() > CACHE_MAX) {
            return refuse("cache", format!("is {beyond}, more than {CACHE_MAX}"), "give a smaller number");
        }
        let (buffer, limit) = (positive("buffer", self.buffer)?, positive("limit", self.limit)?);
        let window = self.window()?;
        let profile = match self.kind {
            Kind::Rsc => Profile::Rsc,
            Kind::Ra => Profile::Ra,
            Kind::Gro => return self.gro(window),
        };
        if profile == Profile::Ra && buffer.is_some() {
            let why = "has no meaning with the profile ra, where a run is an IP packet of at most 65535 bytes";
            return refuse("buffer", why, "leave it out, or bound a run with limit");
        }
        let base = Limits::of(profile);
        let limits = Limits {
            cache: cache.unwrap_or(base.cache),
            buffer: buffer.map_or(base.buffer, NonZeroU32::get),
            segments: limit.or(base.segments),
            window: window.unwrap_or(base.window),
            ..base
        };
        Ok(limits.into())
    }

    fn gro(&self, window: Option<Window>) -> Result<Given, Refusal> {
        for (value, option) in [(self.buffer, "buffer"), (self.limit, "limit")] {
            if value.is_some() {
                let why = "has no meaning with the profile gro, where a run is an IP packet below 64 KiB";
                return refuse(option, why, "leave it out, or choose another profile");
            }
        }
        let known = [Lists::Hashed, Lists::One];
        let Some(lists) = known.into_iter().find(|lists| self.cache.is_none_or(|cache| cache == lists.held())) else {
            let why = "is 64 or 8 with the profile gro: Linux holds 8 packets in each of 8 lists";
            return refuse("cache", why, "give 8 for a device without receive hash (veth, TAP), else leave it out");
        };
        let base = gro::Rules::default();
        Ok(gro::Rules { window: window.unwrap_or(base.window), lists }.into())
    }

    fn window(&self) -> Result<Option<Window>, Refusal> {
        let frames = positive("window_packets", self.window_packets)?;
        match (frames, self.window_us) {
            (Some(_), Some(_)) => refuse("window_us", "and window_packets exclude each other", "give one of them"),
            (Some(frames), None) => Ok(Some(Window::Frames(frames))),
            (None, None) => Ok(None),
            (None, Some(us)) => match us.checked_mul(1000).and_then(NonZeroU64::new) {
                Some(ns) => Ok(Some(Window::Time(ns))),
                None => refuse("window_us", format!("is {us}, out of range"), "give a number of at least 1"),
            },
        }
    }
}

fn positive(option: &'static str, value: Option<u32>) -> Result<Option<NonZeroU32>, Refusal> {
    match value.map(NonZeroU32::new) {
        Some(None) => refuse(option, "is 0", "give a number of at least 1"),
        Some(number) => Ok(number),
        None => Ok(None),
    }
}
