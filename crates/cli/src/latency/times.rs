//! Where the time of a program's messages goes, in the kernel and in engines: looked at by a thread while
//! `baton run --latency` waits for the program.

use super::{Services, Sources};
use baton_apps::children::family;
use baton_kernel::latency::Wanted;
use baton_lab::report::latency::Report;
use rustix::process::{Pid, getpid};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval between two looks. Nothing is shown of a process that lives shorter and is not the program itself.
const LOOK: Duration = Duration::from_millis(50);

/// The thread that looks.
pub struct Times {
    /// Names the program's process; dropped, it ends the thread.
    program: Sender<Pid>,
    thread: JoinHandle<anyhow::Result<Report>>,
}

impl Times {
    /// Looks at the kernel's connections in this network namespace and at those in the engines of the service at
    /// `socket`, from now on.
    ///
    /// # Errors
    /// If neither the kernel's points nor the service's can be had, or no thread can be started.
    pub fn start(socket: &Path) -> anyhow::Result<Times> {
        let (program, named) = channel();
        let (tell, opened) = channel();
        let socket = socket.to_owned();
        let thread = thread::Builder::new().name("baton-times".into()).spawn(move || {
            let wanted = Wanted::All;
            let mut sources = match Sources::open(&wanted, Services::at(&socket, &wanted)) {
                Ok(sources) => sources,
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return Ok(Report::default());
                }
            };
            let _ = tell.send(Ok(()));
            let mut ours = BTreeMap::new();
            loop {
                match named.recv_timeout(LOOK) {
                    Ok(pid) => drop(ours.insert(number(pid), name(pid))),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                ours.extend(family(getpid()).into_iter().map(|pid| (number(pid), name(pid))));
                sources.look();
            }
            sources.read().map(|report| of_processes(report, &ours))
        })?;
        let ended = |_| io::Error::other("the thread that looks ended");
        opened.recv().map_err(ended)??;
        Ok(Times { program, thread })
    }

    /// Names the process whose messages, and those of its descendants, are shown.
    pub fn of(&self, program: Pid) {
        // The thread ends early only if it failed, which the end tells.
        let _ = self.program.send(program);
    }

    /// Ends the look, and returns what was seen.
    ///
    /// # Errors
    /// Those of reading the kernel's tables.
    pub fn end(self) -> anyhow::Result<Report> {
        drop(self.program);
        self.thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that looks panicked")))
    }
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// As reports name a process.
fn name(pid: Pid) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{}[{pid}]", name.trim_end())
}

/// The report of these processes' connections. Sums of connections that are no longer listed may be of other
/// processes too, and are left out.
fn of_processes(mut report: Report, ours: &BTreeMap<u32, String>) -> Report {
    report.entries.retain(|entry| ours.contains_key(&entry.pid));
    for entry in report.entries.iter_mut().filter(|entry| entry.program.is_empty()) {
        entry.program.clone_from(&ours[&entry.pid]);
    }
    let earlier = report.earlier_count();
    report.earlier.clear();
    if earlier > 0 {
        report.notes.push(format!("{earlier} connections of this namespace closed before, and are not shown"));
    }
    report
}
