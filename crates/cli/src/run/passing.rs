//! Forwards signals that `baton run` receives to its program or, once that has ended, to the
//! processes that it left behind.

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

/// Time after which the processes that are still waited for are printed.
const SOON: Duration = Duration::from_secs(1);

/// The current receivers of signals.
#[derive(Default)]
struct Meant {
    /// Children not yet reaped, so that no other process can have their ids.
    pids: Vec<Pid>,
    /// True if they are what the program left behind. Such processes may be outside the terminal's
    /// foreground group, so signals from its keys are forwarded too.
    left: bool,
}

/// Forwards signals on a thread of its own; holds their current receivers.
pub struct Passing(Arc<Mutex<Meant>>);

impl Passing {
    /// Installs the handlers and starts to forward signals.
    ///
    /// # Errors
    /// If the handlers cannot be installed or the thread cannot be started.
    pub fn start() -> anyhow::Result<Passing> {
        let signals = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT];
        let mut signals = Signals::new(signals).context("signals")?;
        let meant = Arc::new(Mutex::new(Meant::default()));
        let shared = meant.clone();
        std::thread::Builder::new().name("baton-signals".into()).spawn(move || {
            for number in signals.forever() {
                let meant = shared.lock().unwrap_or_else(PoisonError::into_inner);
                // The terminal sends these to its whole foreground group, so to the program too.
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
    /// If `waitid(2)` fails.
    pub fn until_end(&self, mut child: Child) -> anyhow::Result<ExitStatus> {
        let pid = Pid::from_child(&child);
        self.mean(vec![pid], false);
        let waited = has_ended(pid);
        self.mean(Vec::new(), false);
        waited.context("cannot wait for the program")?;
        child.wait().context("cannot wait for the program")
    }

    /// Waits for the processes that the program left behind, such as a daemon: all children
    /// except `others`. Prints their ids if that takes longer than a second.
    pub fn until_all_end(&self, others: impl Fn(Pid) -> bool) {
        let mut named = false;
        loop {
            let left: Vec<Pid> = children().into_iter().filter(|pid| !others(*pid)).collect();
            self.mean(left.clone(), true);
            let Some(&first) = left.first() else { return };
            if !ends_soon(first) {
                // A process that was forked just before may have become one of the others.
                if !named && !others(first) {
                    named = true;
                    let list = left.iter().map(|pid| pid.to_string()).collect::<Vec<_>>().join(", ");
                    let _ = writeln!(
                        io::stderr(),
                        "baton: the program has ended; waiting for the processes it left: {list}"
                    );
                }
                continue;
            }
            self.mean(Vec::new(), true);
            if waitpid(Some(first), WaitOptions::empty()).is_err() {
                return;
            }
        }
    }
}

/// Waits until a child has ended, without reaping it, so that its id stays its own.
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

/// Returns true if this process is in the foreground group of its terminal.
fn has_terminal() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}
