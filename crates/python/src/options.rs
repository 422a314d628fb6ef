//! The rules of coalescing from keyword arguments, with the defaults and bounds of `baton trace`.

use baton_analyse::asked::{Asked, Kind, Refusal};
use baton_analyse::classifier::Classifier;
use baton_analyse::coalesce::Checksums;
use baton_analyse::rules::Given;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The keyword arguments of `trace`.
pub struct Options<'a> {
    pub profile: &'a str,
    pub cache: Option<u32>,
    pub buffer: Option<u32>,
    pub limit: Option<u32>,
    pub window_packets: Option<u32>,
    pub window_us: Option<u64>,
    pub checksum: &'a str,
    pub inner: bool,
}

impl Options<'_> {
    /// The rules, and the classifier of frames.
    ///
    /// # Errors
    /// A `ValueError` if an argument is out of range, or has no meaning beside the others.
    pub fn rules(&self) -> PyResult<(Given, Classifier)> {
        let refuse = |message: String| Err(PyValueError::new_err(message));
        let kind = match self.profile {
            "rsc" => Kind::Rsc,
            "ra" => Kind::Ra,
            "gro" => Kind::Gro,
            other => return refuse(format!("profile is {other:?}; it can be \"rsc\", \"ra\" or \"gro\"")),
        };
        let checksums = match self.checksum {
            "trust" => Checksums::Trust,
            "verify" => Checksums::Verify,
            other => return refuse(format!("checksum is {other:?}; it can be \"trust\" or \"verify\"")),
        };
        let Options { cache, buffer, limit, window_packets, window_us, .. } = *self;
        match (Asked { kind, cache, buffer, limit, window_packets, window_us }).given() {
            Ok(given) => Ok((given, Classifier::new(checksums, self.inner))),
            Err(Refusal { option, why, remedy }) => refuse(format!("{option} {why}; {remedy}")),
        }
    }
}
