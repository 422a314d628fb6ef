//! Moves connections back and forth all the time, whatever their programs do.

use baton_client::Service;
use baton_ipc::message::Selector;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Number of threads that move connections.
const MOVERS: usize = 4;

/// Time between two moves of one of them: together they try 200 a second.
const PACE: Duration = Duration::from_millis(20);

/// Moves connections until it is dropped.
pub struct Restless {
    shared: Arc<Shared>,
    movers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    moves: AtomicU64,
}

impl Restless {
    pub fn start(socket: &Path) -> Restless {
        let shared = Arc::new(Shared::default());
        let mover = |_| {
            let (admin, shared) = (Service::connect(socket).unwrap(), shared.clone());
            thread::spawn(move || shared.move_some(&admin))
        };
        Restless { movers: (0..MOVERS).map(mover).collect(), shared }
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
            entries.retain(|entry| matches!(&*entry.place, "engine" | "kernel"));
            if let Some(entry) = fastrand::choice(&entries) {
                let which = Selector::Tuple(entry.tuple);
                let away = entry.place == "engine";
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
