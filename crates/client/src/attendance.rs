//! Responsibility for the devices of engines inside the program.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Last number given to a device list in this process. No two lists share a number.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Which of the threads is responsible for polling the devices; see [`direct`](super::direct).
#[derive(Default)]
pub(super) struct Attendance {
    /// Calls that are sleeping on the devices.
    pub sleepers: AtomicU32,
    /// How often calls have polled the devices.
    pub looks: AtomicU64,
    /// The thread leaves the devices to the calls that sleep on them.
    pub dozing: AtomicBool,
    /// When the thread's sleep ends, in nanoseconds of `CLOCK_MONOTONIC`.
    pub until: AtomicU64,
    /// The thread sleeps on the devices.
    pub thread_sleeps: AtomicBool,
    /// There is a link to another program, so one of the devices is this program's bell.
    pub rings: AtomicBool,
    /// Number of the current device list; it changes with the list.
    pub changes: AtomicU64,
}

impl Attendance {
    /// True if a thread sleeps on the devices, or is about to. A thread that is about to says so before it
    /// takes the lock to look a last time.
    pub fn somebody_sleeps(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) > 0 || self.thread_sleeps.load(Ordering::SeqCst)
    }

    /// Notes that the list of devices has changed.
    pub fn change(&self) {
        self.changes.store(CHANGES.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Release);
    }
}
