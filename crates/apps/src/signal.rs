//! SIGINT, SIGTERM and SIGHUP: as a flag that loops check, or to wait for.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signals that ask a program to end.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// A flag that is set once the program was asked to end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Makes SIGINT, SIGTERM and SIGHUP set the flag instead of ending the program.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn install() -> io::Result<Stop> {
        Stop::on(&ENDING)
    }

    /// As [`Stop::install`], for a daemon, which SIGHUP does not end.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn install_for_daemon() -> io::Result<Stop> {
        Stop::on(&[SIGINT, SIGTERM])
    }

    fn on(signals: &[i32]) -> io::Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in signals {
            signal_hook::flag::register(*signal, flag.clone())?;
        }
        Ok(Stop(flag))
    }

    /// Sets the flag, as a signal would.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true once the program was asked to end.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A signal's request to a daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// To end: SIGINT, SIGTERM.
    End,
    /// To read its configuration again: SIGHUP.
    Reload,
}

/// Lets a daemon's thread wait for SIGINT, SIGTERM or SIGHUP.
pub struct Waiter(Signals);

impl Waiter {
    /// Keeps these signals for [`Waiter::wait`] from now on, instead of ending the program.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn install() -> io::Result<Waiter> {
        Signals::new(ENDING).map(Waiter)
    }

    /// Sleeps until the daemon is asked for something.
    pub fn wait(&mut self) -> Asked {
        match self.0.forever().next() {
            Some(SIGHUP) => Asked::Reload,
            _ => Asked::End,
        }
    }
}
