//! Signals that `baton run` gets, and that its program is meant by; or, once that has ended,
//! whatever it left behind.

use anyhow::Context;
use baton_apps::children::children;
use baton_port::wait::WaitSet;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions};
use rustix::process::{getpgrp, kill_process, pidfd_open, waitid, waitpid};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time after which those are named that were left behind and are waited for.
const SOON: Duration = Duration::from_secs(1);

/// Who is meant by signals now.
#[derive(Default)]
struct Meant {
    /// Children that were not waited for, so that their numbers are their own.
    pids: Vec<Pid>,
    /// They are what was left behind: a terminal's keys, it may be, are not for them.
    left: bool,
}

/// See the file's head.
pub struct Passing(Arc<Mutex<Meant>>);

impl Passing {
    /// Passes signals on from now on.
    ///
    /// # Errors
    /// If there can be no handlers, or no thread.
    pub fn start() -> anyhow::Result<Passing> {
        let signals = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT];
        let mut signals = Signals::new(signals).context("signals")?;
        let meant = Arc::new(Mutex::new(Meant::default()));
        let shared = meant.clone();
        std::thread::Builder::new().name("baton-signals".into()).spawn(move || {
            for number in signals.forever() {
                let meant = shared.lock().unwrap_or_else(PoisonError::into_inner);
                // A terminal's go to the program too.
                if !meant.left && matches!(number, SIGINT | SIGQUIT | SIGWINCH | SIGCONT) && has_terminal() {
                    continue;
                }
                let Some(signal) = Signal::from_named_raw(number) else { continue };
                for pid in &meant.pids {
                    let _ = kill_process(*pid, signal);
                }
            }
        })?;
        Ok(Passing(meant))
    }

    fn mean(&self, pids: Vec<Pid>, left: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Meant { pids, left };
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    /// As `waitid(2)`'s.
    pub fn until_end(&self, mut child: Child) -> anyhow::Result<ExitStatus> {
        let pid = Pid::from_child(&child);
        self.mean(vec![pid], false);
        let waited = has_ended(pid);
        self.mean(Vec::new(), false);
        waited.context("waiting for the program")?;
        child.wait().context("waiting for the program")
    }

    /// Waits for what the program left behind: all children but `others`, a daemon and its
    /// children, say. They are named if that takes a while.
    pub fn until_all_end(&self, others: impl Fn(Pid) -> bool) {
        let mut named = false;
        loop {
            let left: Vec<Pid> = children().into_iter().filter(|pid| !others(*pid)).collect();
            let Some(&first) = left.first() else { return };
            self.mean(left.clone(), true);
            if !named && !ends_soon(first) {
                named = true;
                let list = left.iter().map(|pid| pid.to_string()).collect::<Vec<_>>().join(", ");
                let _ =
                    writeln!(io::stderr(), "baton: the program has ended; waiting for what it left: process {list}");
            }
            let ended = has_ended(first);
            self.mean(Vec::new(), true);
            if ended.is_err() || waitpid(Some(first), WaitOptions::empty()).is_err() {
                return;
            }
        }
    }
}

/// Waits until a child has ended; its number is its own until it is taken off.
fn has_ended(pid: Pid) -> rustix::io::Result<()> {
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

fn ends_soon(pid: Pid) -> bool {
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let mut set = WaitSet::new();
    set.add(&pidfd);
    set.wait(Some(SOON)).is_ok_and(|ready| ready > 0)
}

/// True if this process is what a terminal's keys are for.
fn has_terminal() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}
