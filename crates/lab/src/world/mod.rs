//! Two network namespaces, and their removal in every case.
//!
//! A namespace is named `baton-LABEL-PID-START-N` after the process that made it, the time that this
//! process started (clock ticks since boot, so that a reused process id is not mistaken for it), and a
//! number. Dropping a namespace removes it with its processes and devices. A killed process leaves its
//! namespaces; [`World::new`] recognizes them by their names and removes them.

pub mod cpu;
pub mod process;
pub mod serve;
pub mod service;
pub mod wire;

use anyhow::{Context, bail};
use process::output;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;

const PREFIX: &str = "baton-";
const DIRECTORY: &str = "/run/netns";

/// The reason why no namespaces can be made on this machine.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Impossible(String);

/// The two ends of the demo's wires.
#[derive(Debug)]
pub struct World {
    /// The clients' namespace, where programs use the kernel's TCP.
    pub client: Namespace,
    /// The services' namespace.
    pub server: Namespace,
}

impl World {
    /// Programs that the demo runs, with their packages.
    pub const PROGRAMS: [(&str, &str); 3] = [("ip", "iproute2"), ("ethtool", "ethtool"), ("curl", "curl")];

    /// Removes the namespaces of killed demos, and makes new ones. The kernel's congestion control in
    /// them is NewReno.
    ///
    /// # Errors
    /// [`Impossible`] with the reason: missing privileges or a missing program.
    pub fn new() -> Result<World, Impossible> {
        let impossible =
            |error: anyhow::Error| Impossible(format!("cannot make network namespaces: {error:#}; run as root"));
        for (name, package) in World::PROGRAMS {
            if find_program(name).is_none() {
                return Err(Impossible(format!("no program {name}: apt-get install {package}")));
            }
        }
        sweep().map_err(impossible)?;
        let world = World {
            client: Namespace::new("client", 0).map_err(impossible)?,
            server: Namespace::new("server", 1).map_err(impossible)?,
        };
        for namespace in [&world.client, &world.server] {
            // Every kernel has NewReno. BBR, the default of some machines, would pace.
            let line = "echo reno >/proc/sys/net/ipv4/tcp_congestion_control";
            succeed(namespace.command("sh").args(["-c", line]), line).map_err(impossible)?;
        }
        Ok(world)
    }
}

/// A network namespace of ours.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    fn new(label: &str, number: u32) -> anyhow::Result<Namespace> {
        let pid = std::process::id();
        let start = start_time(pid).context("cannot read the start time of this process from /proc")?;
        let name = format!("{PREFIX}{label}-{pid}-{start}-{number}");
        ip(&format!("netns add {name}"))?;
        let namespace = Namespace { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Its name for `ip netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Calls `f` on a thread inside the namespace. Sockets that it opens and programs that it starts
    /// are in the namespace.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        let path = format!("{DIRECTORY}/{}", self.name);
        let file = fs::File::open(&path).with_context(|| format!("cannot open {path}"))?;
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
                f()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `ip` with these words inside.
    pub fn ip(&self, words: &str) -> anyhow::Result<()> {
        ip(&format!("-n {} {words}", self.name))
    }

    /// Runs a line of words inside, to its end.
    pub fn run(&self, line: &str) -> anyhow::Result<()> {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().unwrap_or_default());
        succeed(command.args(words), line)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.name) {
            eprintln!(
                "baton: cannot remove namespace {}: {error:#}; remove it with: ip netns delete {}",
                self.name, self.name
            );
        }
    }
}

/// Finds a program in PATH, and in directories of daemons that are not in every user's PATH.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn ip(words: &str) -> anyhow::Result<()> {
    succeed(Command::new("ip").args(words.split_whitespace()), &format!("ip {words}"))
}

fn succeed(command: &mut Command, line: &str) -> anyhow::Result<()> {
    let output = output(command).with_context(|| format!("cannot run '{line}'"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("'{line}' failed: {}", said.trim().lines().next().unwrap_or("without output"));
    }
    Ok(())
}

/// Ends the processes in a namespace and removes it.
fn remove(name: &str) -> anyhow::Result<()> {
    let pids = output(Command::new("ip").args(["netns", "pids", name]))?;
    for pid in String::from_utf8_lossy(&pids.stdout).split_whitespace() {
        if let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw) {
            // It may have ended in the meantime.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    ip(&format!("netns delete {name}"))
}

/// Removes the namespaces of processes that no longer exist.
fn sweep() -> anyhow::Result<()> {
    let entries = match fs::read_dir(DIRECTORY) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context(format!("cannot read {DIRECTORY}")),
    };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        if maker(&name).is_some_and(|(pid, start)| start_time(pid) != Some(start)) {
            let removed = remove(&name);
            // Another demo may be removing it at the same time.
            if fs::exists(format!("{DIRECTORY}/{name}")).unwrap_or(true) {
                removed.with_context(|| format!("cannot remove the left-over namespace {name}"))?;
            }
        }
    }
    Ok(())
}

/// The process id and start time of the maker of a namespace, if the name is one of ours.
fn maker(name: &str) -> Option<(u32, u64)> {
    let mut fields = name.strip_prefix(PREFIX)?.split('-').skip(1);
    let pid = fields.next()?.parse().ok()?;
    let start = fields.next()?.parse().ok()?;
    fields.next()?;
    Some((pid, start))
}

/// The start time of a process in clock ticks since boot, or `None` if there is no such process.
fn start_time(pid: u32) -> Option<u64> {
    stat_field(pid, 22)
}

/// A number from `/proc/PID/stat`, by its field number in `proc_pid_stat(5)`, which must be at least 4.
/// `None` if there is no such process.
pub fn stat_field(pid: u32, field: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, in parentheses, may contain any characters.
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_whitespace().nth(field - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_maker() {
        assert_eq!(maker("baton-client-123-456789-0"), Some((123, 456789)));
        for other in ["baton-client", "baton-client-123-456789", "batons-a-1-2-3", "baton-a-b-c-d"] {
            assert_eq!(maker(other), None, "{other}");
        }
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(start_time(u32::MAX), None);
    }
}
