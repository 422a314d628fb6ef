//! Conntrack's settings in this network namespace (`/proc/sys/net/netfilter`).

use std::time::{Duration, Instant};

const DIRECTORY: &str = "/proc/sys/net/netfilter/nf_conntrack_";

/// A setting that was read is reused for this long.
const FRESH: Duration = Duration::from_secs(10);

/// The number in a setting. `None` if there is no such file.
fn read(name: &str) -> Option<u32> {
    std::fs::read_to_string(format!("{DIRECTORY}{name}")).ok()?.trim().parse().ok()
}

/// Returns true if conntrack is loaded. While it is an unloaded module, nothing is tracked, and a
/// query would load it.
pub(super) fn is_loaded() -> bool {
    std::path::Path::new(&format!("{DIRECTORY}count")).exists()
}

/// The number of entries in this namespace.
pub(super) fn entries() -> Option<u32> {
    read("count")
}

/// Returns true if segments beyond a connection's window are valid in any case.
pub(super) fn is_liberal() -> bool {
    read("tcp_be_liberal") == Some(1)
}

/// For how many seconds an entry stays in each state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub established: u32,
    pub fin_wait: u32,
    pub close_wait: u32,
    pub time_wait: u32,
    pub close: u32,
    read: Instant,
}

impl Timeouts {
    /// Reads the settings. A setting that cannot be read gets the kernel's default (`tcp_timeouts`,
    /// `nf_conntrack_proto_tcp.c`).
    pub fn read() -> Timeouts {
        let setting = |state: &str, default| read(&format!("tcp_timeout_{state}")).unwrap_or(default);
        Timeouts {
            established: setting("established", 432_000),
            fin_wait: setting("fin_wait", 120),
            close_wait: setting("close_wait", 60),
            time_wait: setting("time_wait", 120),
            close: setting("close", 10),
            read: Instant::now(),
        }
    }

    /// The settings, read again if the last reading is old.
    pub fn renewed(self, now: Instant) -> Timeouts {
        if now.saturating_duration_since(self.read) < FRESH { self } else { Timeouts::read() }
    }
}
