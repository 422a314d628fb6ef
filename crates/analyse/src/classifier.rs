//! From a captured frame to its class, in front of the ends of tunnels or behind them.

use crate::{names, tunnel};
use baton_coalesce::{Checksums, Class, Frame, Reason, classify};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// TCP segments in tunnels, by the tunnel's kind ([`tunnel`]).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tunnelled {
    /// Those that a coalescer does not see.
    #[serde(deserialize_with = "names::tunnels")]
    pub tunnels: BTreeMap<&'static str, u64>,
    /// Those that were taken out of the tunnel, as a coalescer behind its end sees them.
    #[serde(deserialize_with = "names::tunnels")]
    pub inner: BTreeMap<&'static str, u64>,
}

impl Tunnelled {
    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Tunnelled) {
        for (ours, theirs) in [(&mut self.tunnels, &other.tunnels), (&mut self.inner, &other.inner)] {
            theirs.iter().for_each(|(kind, count)| *ours.entry(kind).or_default() += count);
        }
    }

    /// A sentence for each kind of tunnel.
    pub fn cautions(&self) -> impl Iterator<Item = String> {
        let unseen = self.tunnels.iter().map(|(kind, count)| {
            format!(
                "TCP segments that lie in {kind}, where a coalescer does not see them: {count}; look inside with --inner"
            )
        });
        let taken =
            self.inner.iter().map(|(kind, count)| format!("TCP segments that were taken out of {kind}: {count}"));
        unseen.chain(taken)
    }
}

/// A classifier of frames.
#[derive(Clone, Debug)]
pub struct Classifier {
    checksums: Checksums,
    inner: bool,
    /// TCP segments in tunnels that it has met.
    pub tunnelled: Tunnelled,
}

impl Classifier {
    /// If `inner`, a TCP segment that lies in tunnels is classified in place of its frame; otherwise it is only
    /// counted.
    pub fn new(checksums: Checksums, inner: bool) -> Classifier {
        Classifier { checksums, inner, tunnelled: Tunnelled::default() }
    }

    /// How it treats checksums.
    pub const fn checksums(&self) -> Checksums {
        self.checksums
    }

    /// The class of a frame. Where tunnels are looked into, the frame becomes the one behind their ends.
    #[inline]
    pub fn classify(&mut self, frame: &mut Frame<'_>) -> Class {
        let class = classify(frame, self.checksums);
        if let Class::Bypass { reason: Reason::NotTcp | Reason::NotIp, .. } = class
            && tunnel::may_begin(frame)
            && self.looks_inside(frame)
        {
            return classify(frame, self.checksums);
        }
        class
    }

    /// Counts the TCP segment that lies in a frame's tunnel; true if it takes the frame's place.
    fn looks_inside(&mut self, frame: &mut Frame<'_>) -> bool {
        let Some((tunnel, inner)) = tunnel::around_tcp(*frame) else { return false };
        let Tunnelled { tunnels, inner: taken } = &mut self.tunnelled;
        *if self.inner { taken } else { tunnels }.entry(tunnel).or_default() += 1;
        if self.inner {
            *frame = inner;
        }
        self.inner
    }
}

/// Looks into no tunnel.
impl From<Checksums> for Classifier {
    fn from(checksums: Checksums) -> Classifier {
        Classifier::new(checksums, false)
    }
}
