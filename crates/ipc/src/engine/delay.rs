//! The time for which the engine's thread could have run, but had no CPU.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Reads the delay of the thread that made it.
pub(super) struct Delay {
    /// `None` if the kernel does not count it (no `CONFIG_SCHED_INFO`).
    file: Option<File>,
    last_ns: u64,
}

impl Delay {
    pub fn new() -> Delay {
        let mut delay = Delay { file: File::open("/proc/thread-self/schedstat").ok(), last_ns: 0 };
        delay.since_last_ns();
        delay
    }

    /// The delay since the last call, in nanoseconds; 0 if it is not known.
    pub fn since_last_ns(&mut self) -> u64 {
        let mut bytes = [0; 64];
        let read = self.file.as_ref().and_then(|file| file.read_at(&mut bytes, 0).ok());
        let total = read.and_then(|len| run_delay(bytes.get(..len)?)).unwrap_or(self.last_ns);
        let delay = total.saturating_sub(self.last_ns);
        self.last_ns = total;
        delay
    }
}

/// The second field: nanoseconds on a run queue (`Documentation/scheduler/sched-stats.rst`).
fn run_delay(line: &[u8]) -> Option<u64> {
    std::str::from_utf8(line).ok()?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_field_is_the_delay() {
        assert_eq!(run_delay(b"12 345 6\n"), Some(345));
        assert_eq!([run_delay(b""), run_delay(b"12"), run_delay(b"1 x 3")], [None; 3]);
    }
}
