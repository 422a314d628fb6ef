//! Finds processes of a program that run without the library. Their connections stay in the
//! kernel, and the library counts none of them. A process is found if it lives for a few checks.

use super::program;
use baton_apps::children::family;
use rustix::process::{Pid, getpid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(50);

/// Number of checks in which a process must be without the library: a process that has just
/// started has not loaded it yet.
const LOOKS: u32 = 3;

/// A thread that counts the program's processes that run without the library, and why.
pub struct Unreached {
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

/// A process: its id and the file that it runs.
type Process = (i32, PathBuf);

#[derive(Default)]
struct Seen {
    reached: BTreeSet<Process>,
    without: BTreeMap<Process, u32>,
    /// Processes known to run without the library, and why.
    why: BTreeMap<Process, String>,
}

impl Unreached {
    /// Starts to watch the descendants of this process, except `others`, for whether they have
    /// mapped `library`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn watch(library: PathBuf, others: impl Fn(Pid) -> bool + Send + 'static) -> io::Result<Unreached> {
        let (stop, stopped) = channel();
        let thread = thread::Builder::new().name("baton-look".into()).spawn(move || {
            let mut seen = Seen::default();
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let own = getpid();
                for pid in family(own).into_iter().filter(|pid| *pid != own && !others(*pid)) {
                    seen.look(pid, &library);
                }
            }
            seen
        })?;
        Ok(Unreached { stop, thread })
    }

    /// Stops watching, and returns lines for the user: how many processes ran without the
    /// library, and why.
    pub fn explain(self) -> Vec<String> {
        drop(self.stop);
        let Ok(seen) = self.thread.join() else { return Vec::new() };
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for why in seen.why.into_values() {
            *counts.entry(why).or_default() += 1;
        }
        let line = |(why, count): (String, usize)| {
            let processes = if count == 1 { "process" } else { "processes" };
            format!("  {count} {processes} ran without the library, with all connections in the kernel: {why}")
        };
        counts.into_iter().map(line).collect()
    }
}

impl Seen {
    fn look(&mut self, pid: Pid, library: &Path) {
        // The link cannot be read if the process has ended or is in execve.
        let Ok(file) = fs::read_link(format!("/proc/{pid}/exe")) else { return };
        let process = (pid.as_raw_nonzero().get(), file);
        if self.reached.contains(&process) || self.why.contains_key(&process) {
            return;
        }
        let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else { return };
        if maps.is_empty() {
            return;
        }
        if maps.lines().any(|line| line.ends_with(&*library.to_string_lossy())) {
            self.reached.insert(process);
            return;
        }
        let looks = self.without.entry(process.clone()).or_default();
        *looks += 1;
        if *looks == LOOKS {
            let why = why(pid, &process.1);
            self.why.insert(process, why);
        }
    }
}

fn why(pid: Pid, file: &Path) -> String {
    if let Ok(Some(why)) = program::unreached(file) {
        return why;
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let named = environment.split(|byte| *byte == 0).any(|word| word.starts_with(b"LD_PRELOAD="));
    let file = file.display();
    if named {
        format!("{file} did not load it")
    } else {
        format!("{file} was started with a different environment, without LD_PRELOAD")
    }
}
