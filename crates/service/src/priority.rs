//! The service goes before the programs.
//!
//! What is neither here nor there waits for the broker, and the broker for the guardian, once
//! it has kept as much as the socket between them holds. An engine stands in for the kernel's
//! own receive path, for which no program keeps the processor either: frames that it does
//! not fetch in time are lost, and their senders wait longer each time.
//!
//! On Linux a child begins with its parent's priority: engines have the broker's, and so have
//! brokers and guardians that are started anew.

use rustix::process::{getpriority_process, setpriority_process};

/// The nice value of all processes of the service, unless it is lower.
const FIRST: i32 = -10;

/// This thread, and what it starts, goes before others. Without CAP_SYS_NICE it stays where
/// it is.
pub(crate) fn go_first() {
    if getpriority_process(None).is_ok_and(|nice| nice > FIRST) {
        let _ = setpriority_process(None, FIRST);
    }
}
