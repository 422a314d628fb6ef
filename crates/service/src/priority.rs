//! The broker and the engines go first. What is neither here nor there waits for the broker;
//! and an engine stands in for the kernel's own receive path, for which no program keeps the
//! processor either: frames that it does not fetch in time are lost, and their senders wait
//! longer each time.
//!
//! Scheduling is a thread's affair on Linux, and a child's begins as its parent's: so the
//! broker's engines have it from the broker, and a guardian is started with the usual one.

use rustix::process::{getpriority_process, setpriority_process};
use std::cell::Cell;

/// Steps of nice value before the programs, whose load must keep neither waiting.
const BEFORE: i32 = 10;

thread_local! {
    /// This thread's nice value before [`go_first`].
    static USUAL: Cell<Option<i32>> = const { Cell::new(None) };
}

/// This thread goes before others. Without CAP_SYS_NICE it stays where it is.
pub(crate) fn go_first() {
    if let Ok(usual) = getpriority_process(None)
        && setpriority_process(None, usual - BEFORE).is_ok()
    {
        USUAL.set(Some(usual));
    }
}

/// Runs something that does not go first, nor does what it starts.
pub(crate) fn as_usual<R>(run: impl FnOnce() -> R) -> R {
    let Some(usual) = USUAL.get() else { return run() };
    // What was allowed before is so still.
    let _ = setpriority_process(None, usual);
    let result = run();
    let _ = setpriority_process(None, usual - BEFORE);
    result
}
