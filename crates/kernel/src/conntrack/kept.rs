//! The entries that are kept alive, and when each is due. This module reads no clock.

use baton_wire::addr::Tuple;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The longest time between two looks at an entry.
const LOOK: Duration = Duration::from_secs(5);

/// Connections that are away and tracked, by their tuple, with their zones.
#[derive(Debug, Default)]
pub(super) struct Kept {
    zones: BTreeMap<Tuple, (u16, Instant)>,
    due: BTreeSet<(Instant, Tuple)>,
}

impl Kept {
    /// Schedules an entry that expires in `left_s` seconds.
    pub fn put(&mut self, tuple: Tuple, zone: u16, left_s: u32, now: Instant) {
        self.remove(&tuple);
        let at = now + Duration::from_secs((left_s / 4).into()).clamp(Duration::from_secs(1), LOOK);
        self.zones.insert(tuple, (zone, at));
        self.due.insert((at, tuple));
    }

    /// Stops keeping an entry alive. Returns its zone, if it was kept.
    pub fn remove(&mut self, tuple: &Tuple) -> Option<u16> {
        let (zone, at) = self.zones.remove(tuple)?;
        self.due.remove(&(at, *tuple));
        Some(zone)
    }

    /// The zone of an entry.
    pub fn zone(&self, tuple: &Tuple) -> Option<u16> {
        self.zones.get(tuple).map(|(zone, _)| *zone)
    }

    /// The next entry that is due, and its zone. It stays due until it is [put](Kept::put) again or
    /// [removed](Kept::remove).
    pub fn next_due(&self, now: Instant) -> Option<(Tuple, u16)> {
        let (at, tuple) = self.due.first()?;
        (*at <= now).then(|| Some((*tuple, self.zone(tuple)?))).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_due_in_time_for_its_timeout() {
        let name = |port| Tuple::new(([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], 1).into());
        let (mut kept, start) = (Kept::default(), Instant::now());
        kept.put(name(1), 0, 432_000, start);
        kept.put(name(2), 7, 12, start);
        kept.put(name(3), 0, 0, start);
        let due = |kept: &Kept, seconds| kept.next_due(start + Duration::from_secs(seconds));
        assert_eq!(due(&kept, 0), None);
        assert_eq!(due(&kept, 1), Some((name(3), 0)));
        assert_eq!(kept.remove(&name(3)), Some(0));
        assert_eq!(kept.remove(&name(3)), None);
        assert_eq!((due(&kept, 2), due(&kept, 3)), (None, Some((name(2), 7))));
        kept.put(name(2), 7, 300, start + Duration::from_secs(3));
        assert_eq!((due(&kept, 4), due(&kept, 5)), (None, Some((name(1), 0))));
        assert_eq!(kept.zone(&name(2)), Some(7));
        kept.remove(&name(1));
        kept.remove(&name(2));
        assert!(kept.due.is_empty() && kept.zones.is_empty());
    }
}
