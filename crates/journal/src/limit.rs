//! Each kind has a limit: [`PER_SECOND`] events are told in a second. The rest is counted, and the
//! count is told once that second is over.

use crate::event::{Kind, Level};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Events of one kind that are told in a second.
pub const PER_SECOND: u64 = 50;

/// The same for [`Level::Trace`], which is asked for to see each message.
const TRACES_PER_SECOND: u64 = 1000;

const SECOND: Duration = Duration::from_secs(1);

/// Events that were not told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suppressed {
    /// The kind that all of them have.
    pub kind: Kind,
    /// The gravest level among them.
    pub level: Level,
    /// How many.
    pub count: u64,
}

/// A second of one kind.
#[derive(Debug)]
struct Window {
    began: Instant,
    told: u64,
    /// How many were not told, and the gravest level among them.
    suppressed: Option<(u64, Level)>,
}

/// How many events of each kind were told in the current second.
#[derive(Default, Debug)]
pub struct Limit(BTreeMap<Kind, Window>);

impl Limit {
    /// A limit that has told nothing yet.
    pub const fn new() -> Limit {
        Limit(BTreeMap::new())
    }

    /// Whether an event of this kind is told now; else it is counted.
    pub fn admits(&mut self, kind: &Kind, level: Level, now: Instant) -> bool {
        let most = if level == Level::Trace { TRACES_PER_SECOND } else { PER_SECOND };
        let Some(window) = self.0.get_mut(kind) else {
            self.0.insert(kind.clone(), Window { began: now, told: 1, suppressed: None });
            return true;
        };
        if now.saturating_duration_since(window.began) >= SECOND {
            (window.began, window.told) = (now, 0);
        }
        if window.told < most {
            window.told += 1;
            return true;
        }
        let (count, gravest) = window.suppressed.unwrap_or((0, level));
        window.suppressed = Some((count + 1, gravest.min(level)));
        false
    }

    /// Counts of the events that were suppressed in seconds that are over. Each is given once.
    pub fn overdue(&mut self, now: Instant) -> Vec<Suppressed> {
        let over = |window: &Window| now.saturating_duration_since(window.began) >= SECOND;
        let due = self.0.iter_mut().filter(|(_, window)| over(window));
        due.filter_map(|(kind, window)| {
            let (count, level) = window.suppressed.take()?;
            Some(Suppressed { kind: kind.clone(), level, count })
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_kind_is_counted_and_leaves_others_alone() {
        let (mut limit, begun) = (Limit::new(), Instant::now());
        let flood =
            |limit: &mut Limit, now| (0..1000).filter(|_| limit.admits(&Kind::STAYS, Level::Debug, now)).count() as u64;
        assert_eq!(flood(&mut limit, begun), PER_SECOND);
        assert!(limit.admits(&Kind::ENGINE, Level::Error, begun));
        assert_eq!(limit.overdue(begun + SECOND / 2), []);
        let later = begun + SECOND;
        let expected = Suppressed { kind: Kind::STAYS, level: Level::Debug, count: 1000 - PER_SECOND };
        assert_eq!(limit.overdue(later), [expected]);
        assert_eq!(limit.overdue(later), [], "it is told once");
        assert_eq!(flood(&mut limit, later), PER_SECOND);
    }

    #[test]
    fn the_gravest_level_among_those_that_were_not_told_is_kept() {
        let (mut limit, begun) = (Limit::new(), Instant::now());
        for _ in 0..PER_SECOND {
            assert!(limit.admits(&Kind::STAYS, Level::Debug, begun));
        }
        for level in [Level::Debug, Level::Warn, Level::Debug] {
            assert!(!limit.admits(&Kind::STAYS, level, begun));
        }
        let overdue = limit.overdue(begun + SECOND);
        assert_eq!(overdue, [Suppressed { kind: Kind::STAYS, level: Level::Warn, count: 3 }]);
    }

    #[test]
    fn a_count_that_was_not_told_yet_goes_on_in_the_next_second() {
        let (mut limit, begun) = (Limit::new(), Instant::now());
        for second in 0..3 {
            for _ in 0..PER_SECOND + 10 {
                limit.admits(&Kind::HOME, Level::Debug, begun + SECOND * second);
            }
        }
        assert_eq!(limit.overdue(begun + SECOND * 3)[0].count, 30);
    }
}
