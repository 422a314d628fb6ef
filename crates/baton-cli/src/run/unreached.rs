//! Processes of a program that run without the library: what they connect stays in the kernel, and
//! nothing of theirs is counted. Seen are those that run for a few looks.

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

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Looks at which a process has to be without the library: one that has just begun has not loaded it.
const LOOKS: u32 = 3;

/// A thread that counts the program's processes that run without the library, and why.
pub struct Unreached {
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

/// What was seen of a process: its number and what it runs.
type Process = (i32, PathBuf);

#[derive(Default)]
struct Seen {
    reached: BTreeSet<Process>,
    without: BTreeMap<Process, u32>,
    /// Why, of those that are known to be without.
    why: BTreeMap<Process, String>,
}

impl Unreached {
    /// Looks from now on at what descends from this process, but for `others`. `library` is what is
    /// looked for.
    ///
    /// # Errors
    /// If there can be no thread.
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

    /// What was seen, in lines for people: how many processes, and why.
    pub fn explain(self) -> Vec<String> {
        drop(self.stop);
        let Ok(seen) = self.thread.join() else { return Vec::new() };
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for why in seen.why.into_values() {
            *counts.entry(why).or_default() += 1;
        }
        let line = |(why, count): (String, usize)| {
            let processes = if count == 1 { "process" } else { "processes" };
            format!("  {count} {processes} ran without the library, in the kernel only: {why}")
        };
        counts.into_iter().map(line).collect()
    }
}

impl Seen {
    fn look(&mut self, pid: Pid, library: &Path) {
        // One that has ended, or changes what it runs.
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
        format!("{file} was started with an environment of its own, without LD_PRELOAD")
    }
}
