//! Answers that count for more connections than the one that asked: this process does not ask again at once.
//!
//! A question costs a connection two changes of the program's epoll sets and a round trip to the service.
//! Thousands of connections in the kernel that asked each for itself would cost the program more than the
//! engine saves it.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Two keys in one slot wait for each other.
const SLOTS: usize = 64;

static BEGUN: LazyLock<(Instant, RandomState)> = LazyLock::new(|| (Instant::now(), RandomState::new()));

/// An engine let no connection of this address in. An engine changes its limit no sooner than this lasts
/// (`baton_policy::watermarks::WINDOW_NS`).
pub static FULL: Answers<Option<IpAddr>> = Answers::new(Duration::from_nanos(baton_policy::watermarks::WINDOW_NS));

/// No program that the service knows has the other end of this service's connections.
pub static ALONE: Answers<(Option<IpAddr>, u16)> = Answers::new(Duration::from_secs(10));

/// The last answers of one kind, by a key.
pub struct Answers<K> {
    /// For each slot the time of the last such answer, in nanoseconds since [`BEGUN`]; 0 for none.
    times: [AtomicU64; SLOTS],
    /// The time for which an answer counts.
    lasts: Duration,
    key: std::marker::PhantomData<fn(K)>,
}

impl<K: Hash> Answers<K> {
    const fn new(lasts: Duration) -> Answers<K> {
        Answers { times: [const { AtomicU64::new(0) }; SLOTS], lasts, key: std::marker::PhantomData }
    }

    /// There was such an answer for this key.
    pub fn note(&self, key: K) {
        self.slot(&key).store(now_ns(), Ordering::Relaxed);
    }

    /// Returns true if there was such an answer for this key a moment ago.
    pub fn lately(&self, key: K) -> bool {
        let answer = self.slot(&key).load(Ordering::Relaxed);
        answer != 0 && u128::from(now_ns() - answer) < self.lasts.as_nanos()
    }

    fn slot(&self, key: &K) -> &AtomicU64 {
        &self.times[BEGUN.1.hash_one(key) as usize % SLOTS]
    }
}

fn now_ns() -> u64 {
    // The first nanosecond stands for none.
    BEGUN.0.elapsed().as_nanos() as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_its_key_and_for_a_while() {
        let (one, begun) = (Some(IpAddr::from([10, 0, 0, 1])), Instant::now());
        let others = (2..=255).map(|host| Some(IpAddr::from([10, 0, 0, host])));
        let other = others.into_iter().find(|it| !std::ptr::eq(FULL.slot(it), FULL.slot(&one)));
        FULL.note(one);
        let asked = (FULL.lately(one), FULL.lately(other.unwrap()));
        assert!(asked == (true, false) || begun.elapsed() >= FULL.lasts, "{asked:?}");
        std::thread::sleep(FULL.lasts);
        assert!(!FULL.lately(one));
    }
}
