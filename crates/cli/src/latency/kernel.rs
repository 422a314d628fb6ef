//! Connections in the kernel.

use super::{Source, refuse};
use baton_kernel::latency::{SLOTS, Wanted, Watch, Watched};
use baton_lab::report::latency::{Earlier, Entry, Report};
use std::collections::HashMap;
use std::fs;

/// The connections that the kernel's own TCP has.
pub struct Kernel {
    watch: Watch,
    /// The programs' names, which are asked for while they run.
    programs: HashMap<u32, String>,
}

impl Kernel {
    /// Starts to watch.
    ///
    /// # Errors
    /// A usage error with the remedy if the kernel's points cannot be had or there is no such process.
    pub fn open(wanted: &Wanted) -> anyhow::Result<Kernel> {
        let slots = if matches!(wanted, Wanted::Tuple(_)) { 1 } else { SLOTS };
        let watch = Watch::start(wanted, slots).map_err(|error| refuse(&error))?;
        Ok(Kernel { watch, programs: HashMap::new() })
    }

    fn entry(&mut self, watched: Watched) -> Entry {
        let pid = watched.pid;
        let name = self.programs.entry(pid).or_insert_with(|| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.is_empty() { String::new() } else { format!("{}[{pid}]", name.trim_end()) }
        });
        Entry {
            connection: format!("{},{}", watched.tuple.local_addr(), watched.tuple.remote_addr()),
            program: name.clone(),
            pid,
            place: "kernel",
            closed: watched.closed,
            skipped: [watched.transmit.skipped, watched.receive.skipped],
            lost: [watched.transmit.lost, watched.receive.lost],
            one_in: 1,
            table: watched.table,
            slowest: watched.slowest,
        }
    }
}

impl Source for Kernel {
    fn look(&mut self) {}

    fn read(&mut self) -> anyhow::Result<Report> {
        let reading = self.watch.read().map_err(|error| refuse(&error))?;
        // A program that has gone takes its name along, unless a connection of its is shown still.
        self.programs.retain(|pid, _| reading.connections.iter().any(|watched| watched.pid == *pid));
        let sights = self.watch.sights().iter().filter(|sight| !sight.note.is_empty());
        let notes = sights.map(|sight| format!("kernel, {}: {}", sight.way.name(), sight.note)).collect();
        let entries = reading.connections.into_iter().map(|watched| self.entry(watched)).collect();
        let earlier = Earlier { place: "kernel", table: reading.earlier, count: reading.earlier_count };
        Ok(Report { entries, earlier: vec![earlier], left_out: reading.left_out, notes, ..Report::default() })
    }
}
