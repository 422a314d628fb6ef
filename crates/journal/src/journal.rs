//! Where events go: past the limit into the log, and in a broker into its ring.

use crate::event::{Event, Kind, Level};
use crate::limit::{Limit, Suppressed};
use crate::ring::{Numbered, Ring};
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Instant;
use tracing::level_filters::LevelFilter;

/// Whether somebody hears events of this level: one atomic load.
pub fn is_on(level: Level) -> bool {
    LevelFilter::current() >= of(level)
}

fn of(level: Level) -> tracing::Level {
    match level {
        Level::Error => tracing::Level::ERROR,
        Level::Warn => tracing::Level::WARN,
        Level::Info => tracing::Level::INFO,
        Level::Debug => tracing::Level::DEBUG,
        Level::Trace => tracing::Level::TRACE,
    }
}

/// Tells the log of a process that has no ring. `describe` is called only if somebody hears it.
pub fn tell(level: Level, kind: Kind, describe: impl FnOnce(Event) -> Event) {
    static LIMIT: Mutex<Limit> = Mutex::new(Limit::new());
    if !is_on(level) {
        return;
    }
    let now = Instant::now();
    let (mut overdue, mut is_told) = (Vec::new(), true);
    if let Some(mut limit) = soon(&LIMIT) {
        overdue = limit.overdue(now);
        is_told = limit.admits(&kind, level, now);
    }
    overdue.into_iter().for_each(|suppressed| emit(&of_suppressed(suppressed)));
    if is_told {
        emit(&describe(Event::new(level, kind)));
    }
}

/// The lock. `None` if another thread holds it for long: in a child, a thread that the fork did not
/// take along may have held it, and an event without a limit is better than a wait without end.
fn soon<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..100 {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    None
}

fn of_suppressed(Suppressed { kind, level, count }: Suppressed) -> Event {
    Event::new(level, kind).reason("suppressed").text(format!("{count} more suppressed"))
}

/// Gives an event to whoever subscribed.
fn emit(event: &Event) {
    macro_rules! at {
        ($level:ident) => {
            tracing::event!(
                target: "baton",
                tracing::Level::$level,
                kind = &*event.kind.0,
                connection = event.connection(),
                reason = (!event.reason.is_empty()).then_some(&*event.reason),
                pid = event.program.map(|program| program.0),
                uid = event.program.map(|program| program.1),
                us = event.took_us,
                "{}",
                event.text
            )
        };
    }
    match event.level {
        Level::Error => at!(ERROR),
        Level::Warn => at!(WARN),
        Level::Info => at!(INFO),
        Level::Debug => at!(DEBUG),
        Level::Trace => at!(TRACE),
    }
}

struct State {
    limit: Limit,
    ring: Ring,
}

/// The journal of a broker: its log, and a ring of the last events. Clones are the same journal.
#[derive(Clone)]
pub struct Journal(Arc<Mutex<State>>);

impl Journal {
    /// An empty journal, whose first event gets the number after this.
    pub fn after(number: u64) -> Journal {
        Journal(Arc::new(Mutex::new(State { limit: Limit::new(), ring: Ring::after(number) })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the ring and the log. Events of [`Level::Trace`] go to the log only.
    pub fn tell(&self, level: Level, kind: Kind, describe: impl FnOnce(Event) -> Event) {
        if level == Level::Trace && !is_on(level) {
            return;
        }
        self.look();
        let is_told = self.state().limit.admits(&kind, level, Instant::now());
        if is_told {
            self.put(describe(Event::new(level, kind)));
        }
    }

    /// Tells of a step that failed, if it did, where the caller goes on all the same.
    pub fn tell_failed<T>(&self, during: &str, done: Result<T, impl Display>) {
        if let Err(error) = done {
            self.tell(Level::Warn, Kind::FAILED, |event| event.text(format!("{during}: {error}")));
        }
    }

    /// Tells how many events were suppressed in seconds that are over. To be called now and then.
    pub fn look(&self) {
        let overdue = self.state().limit.overdue(Instant::now());
        overdue.into_iter().for_each(|suppressed| self.put(of_suppressed(suppressed)));
    }

    fn put(&self, event: Event) {
        emit(&event);
        if event.level < Level::Trace {
            self.state().ring.push(event);
        }
    }

    /// The last `most` events whose numbers are above `after` and that `wanted` holds for, the
    /// oldest first; and the number of the last event of all.
    pub fn since(&self, after: u64, most: usize, wanted: impl Fn(&Event) -> bool) -> (Vec<Numbered>, u64) {
        let state = self.state();
        let mut found: Vec<Numbered> =
            state.ring.since(after, usize::MAX).filter(|numbered| wanted(&numbered.event)).collect();
        found.drain(..found.len().saturating_sub(most));
        (found, state.ring.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::PER_SECOND;

    #[test]
    fn a_flood_does_not_push_the_rest_out_of_the_ring() {
        let journal = Journal::after(0);
        journal.tell(Level::Error, Kind::ENGINE, |event| event.reason("engine-died"));
        let begun = Instant::now();
        for _ in 0..5000 {
            journal.tell(Level::Debug, Kind::STAYS, |event| event.reason("not-tcp"));
        }
        let seconds = begun.elapsed().as_secs() + 2;
        let (all, last) = journal.since(0, usize::MAX, |_| true);
        assert_eq!(all[0].event.reason, "engine-died");
        assert!(all.len() as u64 <= 1 + seconds * (PER_SECOND + 1), "{} in {seconds} s", all.len());
        assert_eq!(last, all.len() as u64);
    }

    #[test]
    fn what_is_not_wanted_does_not_count() {
        let journal = Journal::after(0);
        for pid in [1, 2, 1, 2, 1] {
            journal.tell(Level::Debug, Kind::MOVED, |event| event.program((pid, 0)));
        }
        let (found, last) = journal.since(0, 2, |event| event.program == Some((1, 0)));
        assert_eq!(found.iter().map(|numbered| numbered.number).collect::<Vec<_>>(), [3, 5]);
        assert_eq!(last, 5);
    }

    #[test]
    fn traces_are_for_the_log_only() {
        let journal = Journal::after(0);
        journal.tell(Level::Trace, Kind::MESSAGE, |event| event.text("Hello"));
        assert_eq!(journal.since(0, 10, |_| true).0, []);
    }
}
