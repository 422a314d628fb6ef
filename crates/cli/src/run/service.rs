//! The service that the runs in a network namespace share: the first run starts it, others join
//! it, and the last one ends it.
//!
//! Its processes change: the broker replaces a guardian that fails, and the guardian a broker. So a
//! run identifies them by their standard output ([`Place`]). If all runs are killed, the service ends
//! by itself, since it serves only the descendants of live runs. If the whole service is killed, the
//! live runs end the connections that it had, and one of them starts another service ([`super::watch`]).

use super::place::{Locked, Place, Setup};
use anyhow::{Context, bail};
use baton_apps::background::{LOOK, last_words};
use baton_apps::fail::usage;
use baton_client::Service;
use baton_kernel::steer::{SteerError, Steering};
use baton_port::link;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Time that the service may take to start, and to answer.
pub const TO_START: Duration = Duration::from_secs(10);

/// Time that the service may take to end in order. It first restores the connections that the
/// program left open to the kernel, thousands per second.
const TO_END: Duration = Duration::from_secs(20);

/// Time that a killed process may take to exit.
const TO_EXIT: Duration = Duration::from_secs(2);

/// Time that other runs may take to start or end a service.
pub(super) const TO_WAIT: Duration = Duration::from_secs(40);

/// The socket of this namespace's shared service, for users that may use it but cannot start or
/// join one.
pub fn usable() -> Option<PathBuf> {
    let socket = private_socket(Path::new("/proc/self/ns/net"))?;
    reach(&socket).is_ok().then_some(socket)
}

/// Where the service that runs share listens, in the network namespace that this file of /proc names.
pub fn private_socket(namespace: &Path) -> Option<PathBuf> {
    let ino = std::os::unix::fs::MetadataExt::ino(&fs::metadata(namespace).ok()?);
    Some(Path::new("/run").join(format!("{}{ino}", super::place::PREFIX)).join("socket"))
}

/// True if the service at `socket` is in another network namespace than this process, as far as the process that
/// made the socket still shows.
pub fn is_elsewhere(socket: &Path) -> bool {
    let namespace = |process: &str| {
        let found = fs::metadata(format!("/proc/{process}/ns/net")).ok()?;
        Some((std::os::unix::fs::MetadataExt::dev(&found), std::os::unix::fs::MetadataExt::ino(&found)))
    };
    let theirs = listener(socket).ok().and_then(|pid| namespace(&pid.to_string()));
    theirs.is_some() && theirs != namespace("self")
}

/// The process that listens at a socket, or did so first.
fn listener(socket: &Path) -> rustix::io::Result<Pid> {
    let asking = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect_to(&asking, &SocketAddrUnix::new(socket)?)?;
    Ok(socket_peercred(&asking)?.pid)
}

/// Connects to the service at `socket`, without joining it.
///
/// # Errors
/// `TimedOut` if it does not answer; an error of connecting.
pub fn reach(socket: &Path) -> io::Result<Service> {
    connect(socket, |_| Ok(()))
}

/// Makes the service at `socket` continue for at least as long as this process lives.
///
/// # Errors
/// `TimedOut` if it does not answer; an error of connecting.
pub fn join(socket: &Path) -> io::Result<Service> {
    connect(socket, Service::join)
}

/// Connects and runs `first`. Gives up after [`TO_START`] on a service that does not answer.
fn connect(socket: &Path, first: impl FnOnce(&Service) -> io::Result<()> + Send + 'static) -> io::Result<Service> {
    let (say, hear) = channel();
    let socket = socket.to_owned();
    // A thread that gets no answer remains until the process ends.
    thread::Builder::new().name("baton-join".into()).spawn(move || {
        let service = Service::connect(&socket).and_then(|service| first(&service).map(|()| service));
        let _ = say.send(service);
    })?;
    let unanswered = |_| Err(io::Error::new(ErrorKind::TimedOut, "it does not answer"));
    hear.recv_timeout(TO_START).unwrap_or_else(unanswered)
}

/// Waits until the service of earlier runs has ended.
pub(super) fn await_end(place: &Place) -> anyhow::Result<()> {
    let begun = Instant::now();
    while place.is_alive() {
        if begun.elapsed() > TO_END {
            bail!("the service of earlier runs does not end");
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Ends the connections that a killed service left on these interfaces. Returns the number of
/// connections that programs' own engines still have.
///
/// # Errors
/// If another service steers one of the interfaces; its connections are left alone.
pub fn bury(interfaces: &[String]) -> anyhow::Result<usize> {
    let mut left = 0;
    for name in interfaces {
        match once_free(|| Steering::reap(name)) {
            Ok(buried) => left += buried.left,
            Err(error @ SteerError::Occupied { .. }) => return Err(error.into()),
            // The service will report what is wrong with the interface when it starts.
            Err(_) => {}
        }
    }
    Ok(left)
}

/// Retries a step for up to [`TO_EXIT`] while another process steers the interface: a killed process
/// closes its descriptors one by one, and the lock on its steering may be the last.
fn once_free<T>(mut step: impl FnMut() -> Result<T, SteerError>) -> Result<T, SteerError> {
    let begun = Instant::now();
    loop {
        match step() {
            Err(SteerError::Occupied { .. }) if begun.elapsed() < TO_EXIT => thread::sleep(LOOK),
            done => return done,
        }
    }
}

/// Starts a service in place of one that has ended.
///
/// # Errors
/// The service's last message if it ended; an error if it does not start in time.
pub fn start(place: &Place, _locked: &Locked, setup: &Setup) -> anyhow::Result<Service> {
    let Setup { steer, rules, pair, interfaces, log } = setup;
    place.keep_with(setup)?;
    let (socket, config, said) = (place.socket(), place.file("config.toml"), place.file("said"));
    let mut text = String::from("log = \"error\"\n[socket]\nmode = \"0666\"\n");
    writeln!(text, "[access]\ndescendants-of = {}", std::process::id())?;
    writeln!(text, "[firewall]\nrules = \"{}\"", rules.word())?;
    writeln!(text, "[pair]\nusers = \"{}\"", pair.word())?;
    fs::write(&config, text)?;
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(["service", "--steer", steer]).arg("--config").arg(&config).arg("--socket").arg(&socket);
    command.args(log.words().context("finding the log")?);
    command.args(interfaces.iter().flat_map(|name| ["--interface", name]));
    command.args(interfaces.is_empty().then_some("--no-interface"));
    command.stdin(Stdio::null()).stdout(place.begin_life()?).stderr(File::create(&said)?);
    // In a process group of its own, so that a terminal's Ctrl-C does not reach it.
    command.process_group(0).spawn().context("cannot start a service")?;
    // From here on only the service's processes hold the lock that marks it as alive.
    drop(command);
    let begun = Instant::now();
    loop {
        match join(&socket) {
            Ok(service) => return Ok(service),
            Err(_) if place.is_alive() && begun.elapsed() < TO_START => thread::sleep(LOOK),
            Err(_) if place.is_alive() => {
                bail!("the service has not answered within {} s of its start", TO_START.as_secs())
            }
            Err(_) => {
                let last = last_words(&fs::read_to_string(&said).unwrap_or_default());
                return Err(usage(
                    format!("no service could be started: {last}"),
                    "run 'baton doctor' to see what is missing",
                ));
            }
        }
    }
}

/// Removes a service that could not be started, unless another run uses it.
pub(super) fn abandon(place: &Place, locked: &Locked) {
    if !place.is_used() {
        end(place);
        place.remove(locked);
    }
}

/// Sends SIGTERM to all processes of the service and waits until they have ended; sends SIGKILL
/// after [`TO_END`].
pub(super) fn end(place: &Place) {
    let (begun, mut asked) = (Instant::now(), Vec::new());
    while place.is_alive() {
        for pid in place.processes() {
            if begun.elapsed() > TO_END {
                let _ = kill_process(pid, Signal::KILL);
            } else if !asked.contains(&pid) {
                let _ = kill_process(pid, Signal::TERM);
                asked.push(pid);
            }
        }
        thread::sleep(LOOK);
    }
    // A process that was killed has left its steering behind.
    for name in place.with().into_iter().flat_map(|setup| setup.interfaces) {
        let _ = once_free(|| Steering::reap_all(&name));
    }
}

/// Ethernet interfaces in this network namespace, without loopback. Without any, a service joins both ends of
/// connections on this machine, and nothing else.
pub(super) fn ethernet() -> anyhow::Result<Vec<String>> {
    // Unlike sysfs, this file always shows the namespace that this process is in.
    let table = fs::read_to_string("/proc/self/net/dev").context("listing interfaces")?;
    let names = table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    let found: Vec<String> = names.filter(|name| link::is_ethernet(name).unwrap_or(false)).collect();
    Ok(found)
}
