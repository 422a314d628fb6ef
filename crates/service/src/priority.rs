//! The service runs before the programs.
//!
//! Connections that are being moved wait for the broker, and the broker waits for the guardian once
//! the socket between them is full. An engine stands in for the kernel's own receive path, which no
//! program can keep off the processor either: frames that the engine does not fetch in time are
//! lost, and their senders wait longer each time.
//!
//! On Linux a child starts with its parent's priority, so engines have the broker's, and so do
//! restarted brokers and guardians.

use rustix::process::{getpriority_process, setpriority_process};

/// The nice value of all processes of the service, unless theirs is lower already.
const FIRST: i32 = -10;

/// Lets this thread, and the processes that it starts, run before others. Without CAP_SYS_NICE the
/// priority stays as it is.
pub(crate) fn go_first() {
    if getpriority_process(None).is_ok_and(|nice| nice > FIRST) {
        let _ = setpriority_process(None, FIRST);
    }
}
