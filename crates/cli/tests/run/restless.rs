//! Moves connections back and forth all the time, whatever their programs do.

use baton_client::Service;
use baton_ipc::message::Selector;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Number of threads that move connections between kernel and engine: together they try 200 a second.
const MOVERS: usize = 4;

/// The same for pairs, of which more moves fail, each after a while: bytes are in flight all the time.
const PAIR_MOVERS: usize = 16;

/// Time between two moves of one of them.
const PACE: Duration = Duration::from_millis(20);

/// Moves connections until it is dropped.
pub struct Restless {
    shared: Arc<Shared>,
    movers: Vec<JoinHandle<()>>,
    started: Instant,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    moves: AtomicU64,
}

impl Restless {
    pub fn start(socket: &Path) -> Restless {
        Restless::start_some(socket, MOVERS)
    }

    /// For connections that are joined with their other ends.
    pub fn start_for_pairs(socket: &Path) -> Restless {
        Restless::start_some(socket, PAIR_MOVERS)
    }

    fn start_some(socket: &Path, movers: usize) -> Restless {
        let shared = Arc::new(Shared::default());
        let mover = |_| {
            let (admin, shared) = (Service::connect(socket).unwrap(), shared.clone());
            thread::spawn(move || shared.move_some(&admin))
        };
        Restless { movers: (0..movers).map(mover).collect(), shared, started: Instant::now() }
    }

    /// Moves a second so far.
    pub fn rate(&self) -> f64 {
        self.moves() as f64 / self.started.elapsed().as_secs_f64()
    }

    /// Moves so far.
    pub fn moves(&self) -> u64 {
        assert!(!self.movers.iter().any(JoinHandle::is_finished), "nobody moves any more");
        self.shared.moves.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Moves a connection to the other side, again and again.
    fn move_some(&self, admin: &Service) {
        while !self.stop.load(Ordering::Relaxed) {
            let mut entries = admin.list().unwrap();
            // Others are on their way already, or to their end.
            entries.retain(|entry| matches!(&*entry.place, "engine" | "pair" | "kernel"));
            if let Some(entry) = fastrand::choice(&entries) {
                let which = Selector::Tuple(entry.tuple);
                let away = entry.place != "kernel";
                let tally = if away { admin.bring_home(which) } else { admin.handoff(which) }.unwrap();
                self.moves.fetch_add(tally.count - tally.failed, Ordering::Relaxed);
            }
            thread::sleep(PACE);
        }
    }
}

impl Drop for Restless {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // A panic of a mover's was said already, and failed what waited for moves.
        self.movers.drain(..).for_each(|mover| drop(mover.join()));
    }
}
