//! SIGINT, SIGTERM and SIGHUP: as a flag that loops look at, or waited for.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What asks a program to end.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Set once the program was asked to end.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on SIGINT, SIGTERM and SIGHUP set the flag instead of ending the program.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn install() -> io::Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in ENDING {
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Stop(flag))
    }

    /// Sets the flag, as a signal would.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once the program was asked to end.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whoever has nothing else to do than to wait for SIGINT, SIGTERM or SIGHUP.
pub struct Waiter(Signals);

impl Waiter {
    /// From now on those signals are kept for [`Waiter::wait`] instead of ending the program.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn install() -> io::Result<Waiter> {
        Signals::new(ENDING).map(Waiter)
    }

    /// Sleeps until the program was asked to end.
    pub fn wait(&mut self) {
        self.0.forever().next();
    }
}
