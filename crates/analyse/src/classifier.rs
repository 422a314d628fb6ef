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

    /// The class of a frame, and the frame as it was classified: behind the ends of tunnels, where those are looked
    /// into.
    #[inline]
    pub fn classify<'a>(&mut self, frame: Frame<'a>) -> (Class, Frame<'a>) {
        let class = classify(&frame, self.checksums);
        if let Class::Bypass { reason: Reason::NotTcp | Reason::NotIp, .. } = class
            && tunnel::may_begin(&frame)
            && let Some(inner) = self.look_inside(frame)
        {
            return inner;
        }
        (class, frame)
    }

    /// The TCP segment that lies in a frame's tunnel, and its class, if it is to take the frame's place.
    fn look_inside<'a>(&mut self, frame: Frame<'a>) -> Option<(Class, Frame<'a>)> {
        let (tunnel, inner) = tunnel::around_tcp(frame)?;
        let Tunnelled { tunnels, inner: taken } = &mut self.tunnelled;
        *if self.inner { taken } else { tunnels }.entry(tunnel).or_default() += 1;
        self.inner.then(|| (classify(&inner, self.checksums), inner))
    }
}

/// Looks into no tunnel.
impl From<Checksums> for Classifier {
    fn from(checksums: Checksums) -> Classifier {
        Classifier::new(checksums, false)
    }
}
