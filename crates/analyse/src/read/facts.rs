//! The facts that a capture states about itself: format, version, link types, snapshot length.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The most link types that are listed: more are in no capture but a hostile one.
const LINKS_MAX: usize = 16;

/// The facts of a capture's headers, as far as it was read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// `pcap` or `pcapng`.
    pub format: Cow<'static, str>,
    /// Major and minor version.
    pub version: (u16, u16),
    /// Byte order of the numbers.
    pub big_endian: bool,
    /// Link types of its interfaces, the first 16, as the tcpdump group numbers them.
    pub link_types: Vec<u16>,
    /// Most bytes that are kept of a frame, the largest number if there are several; `None` for no bound.
    pub snap_length: Option<u32>,
}

/// The facts of several interfaces, gathered one by one.
#[derive(Clone, Debug, Default)]
pub(super) struct Interfaces {
    link_types: Vec<u16>,
    snap_length: u32,
    unbounded: bool,
}

impl Interfaces {
    /// Adds an interface, whose snapshot length is 0 if there is no bound.
    pub fn add(&mut self, link: u16, snapshot: u32) {
        if self.link_types.len() < LINKS_MAX && !self.link_types.contains(&link) {
            self.link_types.push(link);
        }
        self.unbounded |= snapshot == 0;
        self.snap_length = self.snap_length.max(snapshot);
    }

    /// The facts that they state together.
    pub fn facts(self, format: &'static str, version: (u16, u16), big_endian: bool) -> Facts {
        let bound = (!self.unbounded && self.snap_length > 0).then_some(self.snap_length);
        Facts { format: format.into(), version, big_endian, link_types: self.link_types, snap_length: bound }
    }
}
