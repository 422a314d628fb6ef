//! Measures for how long the machine did not run its programs, as a virtual machine does whose host is busy. Such
//! time is not counted against a bound on the service's reaction.
//!
//! Two things show it: a thread that sleeps is woken late, while nothing runs at all; and the kernel counts the time
//! that the host took from each CPU (steal, proc_stat(5)), also in slices that are too short to be seen otherwise.

use crate::words::monotonic_ns;
use baton_apps::measure::Cpu;
use rustix::process::{getpriority_process, setpriority_process};
use std::sync::{Arc, Mutex};
use std::thread::{self, available_parallelism, sleep};
use std::time::{Duration, Instant};

/// Length of one sleep of the thread that measures.
const NAP: Duration = Duration::from_millis(2);

/// A sleep that takes longer by less than this is ordinary scheduling.
const ORDINARY: Duration = Duration::from_millis(20);

/// Sleeps between two looks at what was stolen, which the kernel counts in steps of 10 ms.
const NAPS: usize = 5;

/// The time that was lost until a moment, since the witness started.
struct Lost {
    at_ns: u64,
    late_ns: u64,
    /// The host took it, from each CPU.
    stolen_ns: Vec<u64>,
}

impl Lost {
    fn now(late_ns: u64) -> Lost {
        let cpus = available_parallelism().map_or(1, usize::from);
        let stolen = |number| Cpu::of(number).map_or(0, |cpu| (cpu.steal * 1e9) as u64);
        Lost { at_ns: monotonic_ns(), late_ns, stolen_ns: (0..cpus).map(stolen).collect() }
    }

    /// The time lost since `before`. A stall of the whole machine is seen both ways, and counted once.
    fn since(&self, before: &Lost) -> u64 {
        let stolen = self.stolen_ns.iter().zip(&before.stolen_ns).map(|(after, before)| after.saturating_sub(*before));
        stolen.max().unwrap_or(0).max(self.late_ns - before.late_ns)
    }
}

/// The measurement. It ends when this is dropped.
pub struct Witness {
    /// From the last mark on, in order of time; never empty.
    lost: Arc<Mutex<Vec<Lost>>>,
}

impl Witness {
    pub fn start() -> Witness {
        let lost = Arc::new(Mutex::new(vec![Lost::now(0)]));
        let held = Arc::downgrade(&lost);
        thread::spawn(move || {
            // Only this thread's priority changes. Without it, load would look like a stall.
            let usual = getpriority_process(None).unwrap();
            let _ = setpriority_process(None, usual - 15);
            let mut late_ns = 0;
            while let Some(lost) = held.upgrade() {
                for _ in 0..NAPS {
                    let begun = Instant::now();
                    sleep(NAP);
                    let late = begun.elapsed().saturating_sub(NAP);
                    if late > ORDINARY {
                        late_ns += late.as_nanos() as u64;
                    }
                }
                lost.lock().unwrap().push(Lost::now(late_ns));
            }
        });
        Witness { lost }
    }

    /// Begins anew.
    pub fn mark(&self) {
        let mut lost = self.lost.lock().unwrap();
        let last = lost.len() - 1;
        lost.drain(..last);
    }

    /// Time that the machine stood still in the first `ns` nanoseconds since the last mark, in nanoseconds.
    pub fn stalled_ns(&self, ns: u64) -> u64 {
        let lost = self.lost.lock().unwrap();
        let (first, last) = (&lost[0], &lost[lost.len() - 1]);
        lost.iter().find(|lost| lost.at_ns >= first.at_ns.saturating_add(ns)).unwrap_or(last).since(first)
    }
}
