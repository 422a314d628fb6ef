//! Measures for how long the machine ran nothing at all, as a virtual machine does whose host is
//! busy. Such time is not counted against a bound on the service's reaction.

use rustix::process::{getpriority_process, setpriority_process};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Length of one sleep of the thread that measures.
const NAP: Duration = Duration::from_millis(2);

/// A sleep that takes longer by less than this is ordinary scheduling.
const ORDINARY: Duration = Duration::from_millis(20);

/// The measurement. It ends when this is dropped.
pub struct Witness {
    stalled: Arc<AtomicU64>,
    marked: u64,
}

impl Witness {
    pub fn start() -> Witness {
        let stalled = Arc::new(AtomicU64::new(0));
        let held = Arc::downgrade(&stalled);
        thread::spawn(move || {
            // Only this thread's priority changes. Without it, load would look like a stall.
            let usual = getpriority_process(None).unwrap();
            let _ = setpriority_process(None, usual - 15);
            while let Some(stalled) = held.upgrade() {
                let begun = Instant::now();
                sleep(NAP);
                let late = begun.elapsed().saturating_sub(NAP);
                if late > ORDINARY {
                    stalled.fetch_add(late.as_nanos() as u64, Ordering::Relaxed);
                }
            }
        });
        Witness { stalled, marked: 0 }
    }

    /// Begins anew.
    pub fn mark(&mut self) {
        self.marked = self.stalled.load(Ordering::Relaxed);
    }

    /// Time that the machine stood still since the last mark, in nanoseconds.
    pub fn stalled_ns(&self) -> u64 {
        self.stalled.load(Ordering::Relaxed) - self.marked
    }
}
