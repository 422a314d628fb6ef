//! The places where connections are looked at: the kernel, and engines.

mod engine;
mod frames;
mod kernel;
pub mod times;

use crate::run::service::{private_socket, reach};
use baton_apps::fail::{one_line, usage};
use baton_client::SOCKET;
use baton_ipc::engine::monotonic;
use baton_kernel::latency::{LatencyError, Wanted};
use baton_lab::report::latency::{Entry, Report};
use baton_port::capture::wall_clock_ns;
use baton_wire::addr::Tuple;
use engine::Engines;
pub use frames::Frames;
use kernel::Kernel;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Something that sees connections in one place.
pub trait Source {
    /// Takes up what would be gone at the next reading. To be called several times a second.
    fn look(&mut self);

    /// All that was seen since the source was opened: connections, sums of those no longer listed, and how
    /// many were left out. `notes` say what cannot be seen.
    fn read(&mut self) -> anyhow::Result<Report>;
}

/// The sources that can be had.
pub struct Sources {
    all: Vec<Box<dyn Source>>,
    /// Sentences about places that cannot be looked at, with the reason.
    notes: Vec<String>,
    started: Instant,
    /// The same, by `CLOCK_MONOTONIC`.
    started_ns: u64,
}

impl Sources {
    /// Starts to look at the kernel and at these engines.
    ///
    /// # Errors
    /// A usage error with the remedy, if the kernel's points cannot be had and there is no engine.
    pub fn open(wanted: &Wanted, services: Services) -> anyhow::Result<Sources> {
        let Services { found, mut notes } = services;
        let mut all: Vec<Box<dyn Source>> = Vec::new();
        match Kernel::open(wanted) {
            Ok(kernel) => all.push(Box::new(kernel)),
            Err(error) if found.is_empty() => return Err(error),
            Err(error) => notes.push(format!("kernel: {}", one_line(&error))),
        }
        all.extend(found.into_iter().map(|engines| Box::new(engines) as Box<dyn Source>));
        Ok(Sources { all, notes, started: Instant::now(), started_ns: monotonic() })
    }

    /// How long it is since they were opened, or since the last [`Sources::restart`].
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Begins to count seconds anew.
    pub fn restart(&mut self) {
        (self.started, self.started_ns) = (Instant::now(), monotonic());
    }

    /// Takes up what would be gone at the next reading.
    pub fn look(&mut self) {
        self.all.iter_mut().for_each(|source| source.look());
    }

    /// The readings of all together.
    ///
    /// # Errors
    /// Those of the sources.
    pub fn read(&mut self) -> anyhow::Result<Report> {
        let mut all = Report {
            notes: self.notes.clone(),
            began_ns: self.started_ns,
            unix_offset_ns: wall_clock_ns().saturating_sub(monotonic()),
            ..Report::default()
        };
        for source in &mut self.all {
            let report = source.read()?;
            all.entries.extend(report.entries);
            all.earlier.extend(report.earlier);
            all.left_out = all.left_out.saturating_add(report.left_out);
            all.notes.extend(report.notes);
        }
        name_by_engines(&mut all.entries);
        all.seconds = self.started.elapsed().as_secs_f64();
        Ok(all)
    }
}

/// Gives the kernel's entries of connections that an engine had the program that the engine knows: the first who
/// called on the socket may have been the broker, which moved the connection.
fn name_by_engines(entries: &mut [Entry]) {
    let of_engines = entries.iter().filter(|entry| entry.place == "engine");
    let known = of_engines.map(|entry| (entry.connection.clone(), (entry.pid, entry.program.clone())));
    let known: HashMap<_, _> = known.collect();
    for entry in entries.iter_mut().filter(|entry| entry.place == "kernel") {
        if let Some(program) = known.get(&entry.connection) {
            (entry.pid, entry.program) = program.clone();
        }
    }
}

/// The services whose engines can be looked at.
#[derive(Default)]
pub struct Services {
    found: Vec<Engines>,
    notes: Vec<String>,
}

impl Services {
    /// Asks the service at `socket` for every message. An error becomes a note.
    pub fn at(socket: &Path, wanted: &Wanted) -> Services {
        let mut services = Services::default();
        let engines = reach(socket).map_err(anyhow::Error::from).and_then(|service| Engines::open(service, wanted, 1));
        services.add(socket, engines);
        services
    }

    fn add(&mut self, socket: &Path, engines: anyhow::Result<Engines>) {
        match engines {
            Ok(engines) => self.found.push(engines),
            Err(error) => self.notes.push(format!("engine: {}: {}", socket.display(), one_line(&error))),
        }
    }

    /// Asks the service at `socket`; without, those that there are: the host's, and the one that `baton run`
    /// started in the network namespace of the wanted process or in ours. That there is none is no error then. One
    /// message in `every` is recorded.
    ///
    /// # Errors
    /// A usage error if the service that was named cannot be reached or does not show times.
    pub fn ask(socket: Option<&Path>, wanted: &Wanted, every: u32) -> anyhow::Result<Services> {
        let mut services = Services::default();
        if let Some(socket) = socket {
            let remedy = "check that 'baton service' is running and that its [access] section lists this user";
            let service = reach(socket).map_err(|error| usage(format!("{}: {error}", socket.display()), remedy))?;
            services.found.push(Engines::open(service, wanted, every)?);
            return Ok(services);
        }
        let namespace = match wanted {
            Wanted::Pid(pid) => format!("/proc/{pid}/ns/net"),
            _ => "/proc/self/ns/net".to_owned(),
        };
        for socket in [Some(PathBuf::from(SOCKET)), private_socket(Path::new(&namespace))].into_iter().flatten() {
            let engines = match reach(&socket) {
                Ok(service) => Engines::open(service, wanted, every),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => continue,
                Err(error) => Err(error.into()),
            };
            services.add(&socket, engines);
        }
        Ok(services)
    }

    /// True if one of them has this connection.
    pub fn know(&self, tuple: &Tuple) -> bool {
        self.found.iter().any(|engines| engines.knows(tuple))
    }
}

/// An error of the kernel's points, as the command reports it.
pub fn refuse(error: &LatencyError) -> anyhow::Error {
    let text = error.to_string();
    match text.split_once("; ") {
        Some((what, remedy)) => usage(what, remedy),
        None => anyhow::anyhow!(text),
    }
}
