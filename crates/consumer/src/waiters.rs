//! Threads or tasks that wait for the same thing.

use std::task::{Context, Waker};

/// Most wakers kept. Those of abandoned tasks stay until the next wake-up.
const AT_MOST: usize = 64;

/// A set of waiting tasks. All are woken together and check again.
#[derive(Debug, Default)]
pub struct Waiters(Vec<Waker>);

impl Waiters {
    /// Adds this task, which is woken once.
    pub fn add(&mut self, cx: &Context<'_>) {
        if self.0.iter().any(|waker| waker.will_wake(cx.waker())) {
            return;
        }
        if self.0.len() == AT_MOST {
            // Tasks that still wait add themselves again.
            self.wake();
        }
        self.0.push(cx.waker().clone());
    }

    /// True if no task waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Wakes all tasks.
    pub fn wake(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::{AT_MOST, Waiters};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn everybody_is_woken_once() {
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
        let wakers: Vec<Waker> = counts.iter().map(|count| count.clone().into()).collect();
        let mut waiters = Waiters::default();
        for waker in wakers.iter().chain(&wakers) {
            waiters.add(&Context::from_waker(waker));
        }
        waiters.wake();
        waiters.wake();
        assert!(counts.iter().all(|count| count.0.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn those_that_were_given_up_do_not_pile_up() {
        let (first, mut waiters) = (Arc::<Count>::default(), Waiters::default());
        waiters.add(&Context::from_waker(&first.clone().into()));
        for _ in 0..10 * AT_MOST {
            waiters.add(&Context::from_waker(&Arc::<Count>::default().into()));
        }
        assert!(waiters.0.len() <= AT_MOST);
        assert_eq!(first.0.load(Ordering::Relaxed), 1);
    }
}
