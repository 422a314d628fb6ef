//! How long the link to the service may go unused before it rests, and is closed if it can be.
//!
//! An unused link costs every call of the program something, and a new one costs a call milliseconds. A program
//! that soon needs the link again waits longer the next time, so that few of its calls pay for that.

use std::time::Duration;

/// The first span, and the longest.
const LEAST: Duration = Duration::from_secs(2);
const MOST: Duration = Duration::from_secs(256);

/// A link that is needed again within this time was closed too early.
const SOON: Duration = Duration::from_secs(30);

/// The time that a program waits before it lets the link go, by what it has seen. Times are nanoseconds of one clock.
pub struct Patience {
    span: Duration,
    /// When the link was last closed because it was not used.
    closed: Option<u64>,
}

impl Patience {
    pub const fn new() -> Patience {
        Patience { span: LEAST, closed: None }
    }

    /// True if a link that was last used at `used` has gone unused for long enough.
    pub fn is_over(&self, used: u64, now: u64) -> bool {
        Duration::from_nanos(now.saturating_sub(used)) > self.span
    }

    /// Called when such a link is closed.
    pub fn on_close(&mut self, now: u64) {
        self.closed = Some(now);
    }

    /// Called when a link is made.
    pub fn on_link(&mut self, now: u64) {
        if self.closed.take().is_some_and(|closed| Duration::from_nanos(now.saturating_sub(closed)) < SOON) {
            self.span = (self.span * 2).min(MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_link_that_is_needed_again_soon_is_kept_longer() {
        let (mut patience, mut now) = (Patience::new(), SECOND);
        patience.on_link(now);
        let mut spans = Vec::new();
        for _ in 0..10 {
            let used = now;
            while !patience.is_over(used, now) {
                now += SECOND / 2;
            }
            patience.on_close(now);
            spans.push((now - used) / SECOND);
            now += 29 * SECOND;
            patience.on_link(now);
        }
        assert_eq!(spans, [2, 4, 8, 16, 32, 64, 128, 256, 256, 256]);
    }

    #[test]
    fn one_that_is_needed_later_is_not() {
        let mut patience = Patience::new();
        assert!(!patience.is_over(0, 2 * SECOND));
        patience.on_close(3 * SECOND);
        patience.on_link(33 * SECOND);
        assert!(patience.is_over(33 * SECOND, 36 * SECOND));
        // Closed before a fork, it says nothing.
        let mut forked = Patience::new();
        forked.on_link(SECOND);
        forked.on_link(2 * SECOND);
        assert!(forked.is_over(2 * SECOND, 5 * SECOND));
    }
}
