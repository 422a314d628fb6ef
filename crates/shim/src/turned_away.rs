//! Engines that let no more connections in: this process does not ask them again at once.
//!
//! A question costs a connection two changes of the program's epoll sets and a round trip to the service.
//! Thousands of connections in the kernel that asked each for itself would cost the program more than the
//! engine saves it. So an answer counts for all connections of the same address, for a while.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time for which an answer counts: an engine changes its limit no sooner
/// (`baton_policy::watermarks::WINDOW_NS`).
const LASTS: Duration = Duration::from_nanos(baton_policy::watermarks::WINDOW_NS);

/// Two addresses in one slot wait for each other.
const SLOTS: usize = 64;

/// For each slot the time of the last such answer, in nanoseconds since [`BEGUN`]; 0 for none.
static ANSWERS: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

static BEGUN: LazyLock<(Instant, RandomState)> = LazyLock::new(|| (Instant::now(), RandomState::new()));

/// An engine let no connection of this address in.
pub fn note(local: Option<IpAddr>) {
    slot(local).store(now_ns(), Ordering::Relaxed);
}

/// Returns true if an engine let no connection of this address in a moment ago.
pub fn lately(local: Option<IpAddr>) -> bool {
    let answer = slot(local).load(Ordering::Relaxed);
    answer != 0 && u128::from(now_ns() - answer) < LASTS.as_nanos()
}

fn slot(local: Option<IpAddr>) -> &'static AtomicU64 {
    &ANSWERS[BEGUN.1.hash_one(local) as usize % SLOTS]
}

fn now_ns() -> u64 {
    // The first nanosecond stands for none.
    BEGUN.0.elapsed().as_nanos() as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_its_address_and_for_a_while() {
        let (one, begun) = (Some(IpAddr::from([10, 0, 0, 1])), Instant::now());
        let other =
            (2..=255).map(|host| Some(IpAddr::from([10, 0, 0, host]))).find(|it| !std::ptr::eq(slot(*it), slot(one)));
        note(one);
        let asked = (lately(one), lately(other.unwrap()));
        assert!(asked == (true, false) || begun.elapsed() >= LASTS, "{asked:?}");
        std::thread::sleep(LASTS);
        assert!(!lately(one));
    }
}
