//! Links to programs of this machine, and this program's bell; see [`pairs`](super::pairs).

use super::location::{InPair, LinkName};
use baton_pair::{End, Link};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// A link to another program, or one of two ends of a link of this program with itself.
pub(super) struct Joined {
    pub link: Link,
    /// The memory file that this program writes.
    pub memory: OwnedFd,
    /// The other program's bell.
    pub bell: Arc<OwnedFd>,
    /// The connection of each slot.
    pub names: BTreeMap<u32, u64>,
}

/// All links of this program.
#[derive(Default)]
pub(super) struct Pairs {
    links: BTreeMap<LinkName, Joined>,
    /// This program's bell.
    bell: Option<OwnedFd>,
    /// Somebody may have rung it since it was read.
    slept: bool,
    /// When all pairs were looked at last, by `CLOCK_MONOTONIC`.
    pub tended: Duration,
}

impl Joined {
    /// A link without connections, to the program whose bell this is.
    pub fn new(link: Link, memory: OwnedFd, bell: OwnedFd) -> Joined {
        Joined { link, memory, bell: Arc::new(bell), names: BTreeMap::new() }
    }
}

impl Pairs {
    /// Adds a link. The bell is this program's, and the same for all links.
    pub fn enter(&mut self, name: LinkName, joined: Joined, bell: OwnedFd) {
        self.bell.get_or_insert(bell);
        self.links.insert(name, joined);
    }

    /// Drops a link that no connection needs any more.
    pub fn forget(&mut self, name: LinkName) {
        self.links.remove(&name);
        if self.links.is_empty() {
            self.still_bell();
        }
    }

    /// Takes in that somebody may have rung the bell.
    fn still_bell(&mut self) {
        if std::mem::take(&mut self.slept)
            && let Some(bell) = &self.bell
        {
            // It does not block, and nobody may have rung it.
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
    }

    /// The link of this name.
    pub fn at(&mut self, name: LinkName) -> Option<&mut Joined> {
        self.links.get_mut(&name)
    }

    /// True if there is no link.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Rings this program's own bell, for a thread that is about to sleep on it.
    pub fn ring_own(&self) {
        if let Some(bell) = &self.bell {
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// The bell, while there is a link.
    pub fn bell(&self) -> Option<RawFd> {
        self.bell.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Has the bell rung at the next news. Returns false if there are some.
    pub fn prepare_sleep(&mut self) -> bool {
        self.slept |= !self.links.is_empty();
        self.links.values_mut().all(|joined| joined.link.prepare_sleep())
    }

    /// The connections of which there may be news.
    pub fn news(&mut self) -> Vec<u64> {
        self.still_bell();
        let mut told = Vec::new();
        for joined in self.links.values_mut() {
            let Joined { link, names, .. } = joined;
            link.news(|slot| told.extend(names.get(&slot)));
        }
        told
    }

    /// A connection has left its pair.
    pub fn leave(&mut self, pair: InPair) -> Option<End> {
        if let Some(joined) = self.links.get_mut(&pair.link) {
            joined.names.remove(&pair.slot);
        }
        pair.end.take()
    }
}
