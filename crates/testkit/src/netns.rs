//! Network namespaces for tests.
//!
//! A namespace is named `baton-LABEL-PID-START-N`: the process that made it, the
//! time it started (clock ticks since boot, so that a reused process id is not
//! taken for it), and a number. A process that is killed leaves its namespaces
//! behind; the next one to make any sees by the name that their maker is gone,
//! and removes them.

use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io, process, thread};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::{Running, output, run};

const PREFIX: &str = "baton-";
const DIRECTORY: &str = "/run/netns";

/// A network namespace with its loopback up. Dropped, also by a panic, it is
/// removed with all devices and processes in it.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// Makes a namespace; `label` is a short word that tells people what it is for.
    ///
    /// # Panics
    /// If it cannot be made; call [`need_root!`](crate::need_root) first.
    #[track_caller]
    pub fn new(label: &str) -> Netns {
        static SWEPT: Once = Once::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        SWEPT.call_once(sweep);
        assert!(label.chars().all(|c| c.is_ascii_alphanumeric()), "a label is letters and digits: {label}");
        let pid = process::id();
        let start = start_time(pid).expect("this process has a start time");
        let name = format!("{PREFIX}{label}-{pid}-{start}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        run(Command::new("ip").args(["netns", "add", &name]));
        let netns = Netns { name };
        netns.run("ip link set lo up");
        netns
    }

    /// Its name, as in `ip netns exec NAME`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a line of words (split at spaces, no shell) inside and returns what
    /// it printed.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn run(&self, line: &str) -> String {
        run(&mut self.split(line))
    }

    /// Starts a line of words (split at spaces, no shell) inside, in the
    /// background.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start(&self, line: &str) -> Running {
        Running::start(&mut self.split(line))
    }

    fn split(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().expect("a line has a program"));
        command.args(words);
        command
    }

    /// Calls `f` on a new thread inside the namespace: sockets and devices that
    /// it opens belong there, also after it has returned them.
    ///
    /// # Panics
    /// If the namespace cannot be entered, and with the panic of `f`.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let path = format!("{DIRECTORY}/{}", self.name);
        let body = || {
            let file = fs::File::open(&path).unwrap_or_else(|e| panic!("cannot open {path}: {e}"));
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .unwrap_or_else(|e| panic!("cannot enter {path}: {e}"));
            f()
        };
        // The thread keeps the test's name, under which a skip inside it is counted.
        let name = thread::current().name().unwrap_or("netns").to_owned();
        thread::scope(|scope| {
            let thread = thread::Builder::new().name(name).spawn_scoped(scope, body).expect("cannot start a thread");
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Puts a wire between two namespaces: a veth pair whose ends are called
/// `a_device` and `b_device`, up, without addresses.
///
/// # Panics
/// If it cannot be made.
#[track_caller]
pub fn veth(a: &Netns, a_device: &str, b: &Netns, b_device: &str) {
    run(Command::new("ip")
        .args(["link", "add", a_device, "netns", &a.name, "type", "veth"])
        .args(["peer", "name", b_device, "netns", &b.name]));
    a.run(&format!("ip link set {a_device} up"));
    b.run(&format!("ip link set {b_device} up"));
}

/// Ends what runs in a namespace and removes it. Never panics: it runs in drops.
fn remove(name: &str) {
    let pids = output(Command::new("ip").args(["netns", "pids", name]));
    for pid in String::from_utf8_lossy(&pids.stdout).split_whitespace() {
        // A thread of this process inside `enter` would show up as ourselves.
        if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw).filter(|pid| *pid != rustix::process::getpid()) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let out = output(Command::new("ip").args(["netns", "delete", name]));
    if !out.status.success() {
        eprintln!("cannot remove namespace {name}: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
}

/// Removes the namespaces of processes that are gone.
fn sweep() {
    let entries = match fs::read_dir(DIRECTORY) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => panic!("cannot read {DIRECTORY}: {e}"),
    };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        if maker(&name).is_some_and(|(pid, start)| start_time(pid) != Some(start)) {
            remove(&name);
        }
    }
}

/// Process id and start time of the maker of a namespace of ours.
fn maker(name: &str) -> Option<(u32, u64)> {
    let mut fields = name.strip_prefix(PREFIX)?.split('-').skip(1);
    let pid = fields.next()?.parse().ok()?;
    let start = fields.next()?.parse().ok()?;
    fields.next()?;
    Some((pid, start))
}

/// When a process started, in clock ticks since boot (`proc_pid_stat(5)`, field
/// 22), or `None` if there is none.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, in parentheses, may hold anything.
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;

    fn exists(name: &str) -> bool {
        Path::new(DIRECTORY).join(name).exists()
    }

    #[test]
    fn a_name_tells_its_maker() {
        assert_eq!(maker("baton-kernel-123-456789-0"), Some((123, 456789)));
        for other in ["baton-kernel", "baton-kernel-123-456789", "batons-a-1-2-3", "baton-a-b-c-d"] {
            assert_eq!(maker(other), None, "{other}");
        }
    }

    #[test]
    fn start_times_tell_processes_apart() {
        let own = start_time(process::id());
        assert!(own.is_some());
        assert_eq!(own, start_time(process::id()));
        assert_eq!(start_time(u32::MAX), None);
    }

    #[test]
    fn a_namespace_goes_away_with_a_panic_and_what_runs_in_it() {
        crate::need_root!();
        let name = std::sync::Mutex::new(String::new());
        let result = std::panic::catch_unwind(|| {
            let netns = Netns::new("panic");
            *name.lock().unwrap() = netns.name().to_owned();
            assert!(exists(netns.name()));
            // Left running on purpose: the namespace has to end it.
            std::mem::forget(netns.start("sleep 1000"));
            panic!("as tests do");
        });
        assert!(result.is_err());
        let name = name.into_inner().unwrap_or_else(|e| e.into_inner());
        assert!(!exists(&name), "{name}");
    }

    #[test]
    fn leftovers_of_dead_processes_are_removed() {
        crate::need_root!();
        let gone = format!("{PREFIX}dead-{}-1-0", process::id());
        run(Command::new("ip").args(["netns", "add", &gone]));
        sweep();
        assert!(!exists(&gone));
    }

    #[test]
    fn bytes_cross_a_wire_between_two_namespaces() {
        crate::need_root!();
        let (a, b) = (Netns::new("left"), Netns::new("right"));
        veth(&a, "wire", &b, "wire");
        a.run("ip addr add 10.77.0.1/24 dev wire");
        b.run("ip addr add 10.77.0.2/24 dev wire");
        let listener = b.enter(|| TcpListener::bind("10.77.0.2:7").unwrap());
        let stream = a.enter(|| TcpStream::connect("10.77.0.2:7").unwrap());
        assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
    }
}
