//! The rules of coalescing from keyword arguments, with the defaults and bounds of `baton trace`.

use baton_analyse::coalesce::{Checksums, Limits, Profile, Window};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::num::{NonZeroU32, NonZeroU64};

/// Most runs held at a time. A run costs some hundred bytes; this bounds the memory.
const CACHE_MAX: u32 = 65_536;

/// The keyword arguments of `trace`.
pub struct Options<'a> {
    pub profile: &'a str,
    pub cache: u32,
    pub buffer: Option<u32>,
    pub limit: Option<u32>,
    pub window_packets: Option<u32>,
    pub window_us: Option<u64>,
    pub checksum: &'a str,
}

impl Options<'_> {
    /// The rules.
    ///
    /// # Errors
    /// A `ValueError` if an argument is out of range, or has no meaning beside the others.
    pub fn rules(&self) -> PyResult<(Limits, Checksums)> {
        let refuse = |message: String| Err(PyValueError::new_err(message));
        let profile = match self.profile {
            "rsc" => Profile::Rsc,
            "ra" => Profile::Ra,
            other => return refuse(format!("profile is {other:?}; it can be \"rsc\" or \"ra\"")),
        };
        let checksums = match self.checksum {
            "trust" => Checksums::Trust,
            "verify" => Checksums::Verify,
            other => return refuse(format!("checksum is {other:?}; it can be \"trust\" or \"verify\"")),
        };
        let Some(cache) = NonZeroU32::new(self.cache).filter(|cache| cache.get() <= CACHE_MAX) else {
            return refuse(format!("cache is {}; it can be from 1 to {CACHE_MAX}", self.cache));
        };
        if profile == Profile::Ra && self.buffer.is_some() {
            return refuse("buffer has no meaning with profile \"ra\"; bound a run with limit".to_owned());
        }
        let base = Limits::of(profile);
        let window = match (self.window_packets, self.window_us) {
            (Some(_), Some(_)) => return refuse("give window_packets or window_us, not both".to_owned()),
            (Some(frames), None) => Window::Frames(positive("window_packets", frames)?),
            (None, Some(us)) => {
                let ns = us.checked_mul(1000).and_then(NonZeroU64::new);
                Window::Time(ns.ok_or_else(|| PyValueError::new_err(format!("window_us is {us}: out of range")))?)
            }
            (None, None) => base.window,
        };
        let limits = Limits {
            cache,
            buffer: self.buffer.map_or(Ok(base.buffer), |bytes| positive("buffer", bytes).map(NonZeroU32::get))?,
            segments: self.limit.map(|limit| positive("limit", limit)).transpose()?.or(base.segments),
            window,
            ..base
        };
        Ok((limits, checksums))
    }
}

fn positive(name: &str, value: u32) -> PyResult<NonZeroU32> {
    NonZeroU32::new(value).ok_or_else(|| PyValueError::new_err(format!("{name} is 0; it can be 1 or more")))
}
