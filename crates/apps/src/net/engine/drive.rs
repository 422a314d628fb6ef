//! Drives the two halves of an engine: the caller drives both in turn, or the TCP Control Engine
//! (TCE) has a thread of its own.
//!
//! ```text
//!   Together   caller: Streamer, TCE, Streamer ...
//!   Apart      caller: Streamer <--event ring, order ring--> TCE: thread
//! ```
//!
//! In `Apart`, each side wakes the other. Before a side sleeps, it says so and checks its ring once
//! more. A side that has put an entry into a ring then checks whether the other sleeps. The caller's
//! side sleeps on descriptors, so a descriptor wakes it.

use baton_engine::counters::{StreamerCounters, TceCounters};
use baton_engine::engine::{Activity, Engine};
use baton_engine::frame_io::{BURST, FrameIo, PortError};
use baton_engine::streamer::Streamer;
use baton_engine::tce::Tce;
use baton_port::WaitSet;
use baton_tcp::time::Instant;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Most frames received from the port in one turn.
pub const RX_BUDGET: usize = BURST;

/// The halves of an engine, by how they are driven.
pub enum Drive {
    /// The caller drives both.
    Together(Box<Engine>),
    /// A thread of its own drives the TCE.
    Apart(Box<Apart>),
}

/// The Streamer, and the state that it shares with the thread that drives the TCE.
pub struct Apart {
    streamer: Streamer,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    clock: fn() -> u64,
    stop: AtomicBool,
    tce_asleep: AtomicBool,
    streamer_asleep: AtomicBool,
    /// Wakes the caller's side.
    bell: OwnedFd,
    noted: Mutex<Noted>,
}

/// Counters that the TCE's thread publishes whenever it pauses.
#[derive(Clone, Copy, Default)]
struct Noted {
    counters: TceCounters,
    events_high_water: usize,
}

impl Drive {
    /// Drives both halves in turn.
    pub fn together(engine: Engine) -> Drive {
        Drive::Together(Box::new(engine))
    }

    /// Starts a thread for the TCE. `clock` returns nanoseconds and is the same in every thread.
    ///
    /// # Errors
    /// If the thread, or the descriptor that wakes the caller, cannot be made.
    pub fn apart(engine: Engine, clock: fn() -> u64) -> io::Result<Drive> {
        let (streamer, tce) = engine.split();
        let shared = Arc::new(Shared {
            clock,
            stop: AtomicBool::new(false),
            tce_asleep: AtomicBool::new(false),
            streamer_asleep: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            noted: Mutex::default(),
        });
        let theirs = shared.clone();
        let thread = thread::Builder::new().name("baton-tce".into()).spawn(move || decide(&theirs, tce))?;
        Ok(Drive::Apart(Box::new(Apart { streamer, shared, thread: Some(thread) })))
    }

    /// Adds the other descriptors that the caller's side must sleep on.
    pub fn poll_fds(&self, set: &mut WaitSet) {
        if let Drive::Apart(apart) = self {
            set.add(&apart.shared.bell);
        }
    }

    /// Runs one turn.
    ///
    /// # Errors
    /// [`PortError`] if the device has disappeared.
    pub fn poll<P: FrameIo>(&mut self, now: Instant, port: &mut P, clock: fn() -> u64) -> Result<Activity, PortError> {
        match self {
            Drive::Together(engine) => engine.poll(now, port, clock),
            Drive::Apart(apart) => {
                let frames = apart.streamer.poll_receive(now, port, RX_BUDGET)?;
                let steps = apart.streamer.poll_transmit(now, port)?;
                if frames + steps > 0 {
                    apart.wake_tce_if_asleep();
                }
                let mut activity = Activity::default();
                (activity.frames, activity.steps) = (frames, steps);
                Ok(activity)
            }
        }
    }

    /// Sends what the consumer posted, without checking for received frames.
    ///
    /// # Errors
    /// [`PortError`] if the device has disappeared.
    pub fn send<P: FrameIo>(&mut self, now: Instant, port: &mut P, mut clock: fn() -> u64) -> Result<(), PortError> {
        match self {
            Drive::Together(engine) => {
                engine.streamer().poll_transmit(now, port)?;
                engine.tce().poll_timed(now, &mut clock);
            }
            Drive::Apart(apart) => {
                if apart.streamer.poll_transmit(now, port)? > 0 {
                    apart.wake_tce_if_asleep();
                }
            }
        }
        Ok(())
    }

    /// Call this before the caller's side sleeps. Returns the next time at which there is work to
    /// do; a time in the past means that there is work now.
    pub fn prepare_sleep(&mut self) -> Option<Instant> {
        match self {
            Drive::Together(engine) => {
                let doorbells = engine.streamer().has_doorbells();
                if doorbells { Some(Instant(0)) } else { engine.next_deadline() }
            }
            Drive::Apart(apart) => {
                apart.shared.streamer_asleep.store(true, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                if apart.streamer.has_work() || apart.streamer.has_doorbells() {
                    return Some(Instant(0));
                }
                apart.streamer.next_deadline()
            }
        }
    }

    /// Call this after the caller's side has slept, or has decided not to.
    pub fn awake(&mut self) {
        if let Drive::Apart(apart) = self {
            apart.shared.streamer_asleep.store(false, Ordering::SeqCst);
            // Empty the descriptor. It is fine if there is nothing to read.
            let _ = rustix::io::read(&apart.shared.bell, &mut [0; 8]);
        }
    }

    /// The counters of the Streamer and of the TCE (as of its last pause if it has a thread), and
    /// the largest numbers of events and orders that have waited at once.
    pub fn counters(&mut self) -> (StreamerCounters, TceCounters, [usize; 2]) {
        match self {
            Drive::Together(engine) => {
                let waited = [engine.tce().events_high_water(), engine.streamer().orders_high_water()];
                (*engine.streamer().counters(), *engine.tce().counters(), waited)
            }
            Drive::Apart(apart) => {
                let noted = *apart.shared.noted.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = [noted.events_high_water, apart.streamer.orders_high_water()];
                (*apart.streamer.counters(), noted.counters, waited)
            }
        }
    }
}

impl Apart {
    fn wake_tce_if_asleep(&self) {
        fence(Ordering::SeqCst);
        if self.shared.tce_asleep.swap(false, Ordering::SeqCst) {
            self.wake_tce();
        }
    }

    fn wake_tce(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake_tce();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

/// The body of the TCE's thread.
fn decide(shared: &Shared, mut tce: Tce) {
    let now = || Instant((shared.clock)());
    let mut ticks = shared.clock;
    while !shared.stop.load(Ordering::Acquire) {
        if tce.poll_timed(now(), &mut ticks) > 0 {
            fence(Ordering::SeqCst);
            if shared.streamer_asleep.swap(false, Ordering::SeqCst) {
                // The write fails only if the counter is at its maximum, and then the caller wakes too.
                let _ = rustix::io::write(&shared.bell, &1u64.to_ne_bytes());
            }
            continue;
        }
        *shared.noted.lock().unwrap_or_else(PoisonError::into_inner) =
            Noted { counters: *tce.counters(), events_high_water: tce.events_high_water() };
        shared.tce_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !tce.has_work() && !shared.stop.load(Ordering::Acquire) {
            match tce.next_deadline() {
                Some(at) => thread::park_timeout(Duration::from_nanos(at.since(now()).0)),
                None => thread::park(),
            }
        }
        shared.tce_asleep.store(false, Ordering::SeqCst);
    }
}
