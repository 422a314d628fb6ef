//! The service of the runs in a network namespace: the first starts it, others join it, and the last
//! ends it.
//!
//! Its processes come and go: a guardian that does not do its work is replaced by the broker, a
//! broker by the guardian. So they are known by their standard output ([`Place`]). Should a run be
//! killed, the service ends by itself, for it serves what descends from the runs that live. Should
//! all of the service be killed, the runs that live end what it had, and one of them starts another
//! ([`Watch`]).

use super::place::{Locked, Place, Setup};
use super::watch::Watch;
use anyhow::{Context, bail};
use baton_apps::background::{LOOK, last_words};
use baton_apps::fail::usage;
use baton_client::Service;
use baton_kernel::steer::{SteerError, Steering};
use baton_port::link;
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

/// Time that it may take to start, and to answer.
pub const TO_START: Duration = Duration::from_secs(10);

/// Time that it may take to end in form: it brings home what the program left open, thousands of
/// connections within a second.
const TO_END: Duration = Duration::from_secs(20);

/// Time that a killed process may take to exit.
const TO_EXIT: Duration = Duration::from_secs(2);

/// Time that others may take to start or end one.
const TO_WAIT: Duration = Duration::from_secs(40);

/// A run's part of the service.
pub struct Private {
    place: Place,
    /// Taken off before it is seen whether anybody is left.
    watch: Option<Watch>,
    member: Option<File>,
    joined: bool,
}

impl Private {
    /// Joins the service of this network namespace, or starts one for these interfaces (all of
    /// Ethernet, if none is named). It serves what descends from this process, whatever user that
    /// becomes; each user reaches its own connections only.
    ///
    /// # Errors
    /// What the service said when it ended at once; if one is there that does not answer.
    pub fn enter(home: &Path, mut setup: Setup) -> anyhow::Result<Private> {
        let place = Place::find(Path::new("/run"), home)?;
        let locked = place.lock(TO_WAIT).context("waiting for another run that starts or ends a service")?;
        let (service, joined) = match join(&place.socket()) {
            Ok(service) => (service, true),
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::PermissionDenied) => {
                bail!("the service of another baton run: {error}")
            }
            Err(_) => {
                if setup.interfaces.is_empty() {
                    setup.interfaces = ethernet()?;
                }
                await_end(&place)?;
                let left = bury(&setup.interfaces)?;
                if left > 0 {
                    bail!(
                        "{left} connections of a service that was killed go on inside programs, and have to end first"
                    );
                }
                let started = start(&place, &locked, &setup);
                (started.inspect_err(|_| abandon(&place, &locked))?, false)
            }
        };
        let member = place.enter().context("counting among the runs that use a service")?;
        let watch = Watch::start(place.clone(), service).context("watching the service")?;
        Ok(Private { place, watch: Some(watch), member: Some(member), joined })
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.place.socket()
    }

    /// Where all of it is.
    pub fn place(&self) -> Place {
        self.place.clone()
    }

    /// Whether another run had started it.
    pub fn was_joined(&self) -> bool {
        self.joined
    }

    /// Whether a process is of the service.
    pub fn has(&self, pid: Pid) -> bool {
        self.place.has(pid)
    }
}

impl Drop for Private {
    /// Ends the service if nobody else uses it, and waits for that.
    fn drop(&mut self) {
        drop(self.watch.take());
        // Without the lock it ends by itself, with the last process that it is there for.
        let Ok(locked) = self.place.lock(TO_WAIT) else { return };
        drop(self.member.take());
        if !self.place.is_used() {
            end(&self.place);
            self.place.remove(&locked);
        }
    }
}

/// The socket of this namespace's shared service, for users that may use it but neither start nor
/// join one.
pub fn usable() -> Option<PathBuf> {
    let namespace = fs::metadata("/proc/self/ns/net").ok()?;
    let ino = std::os::unix::fs::MetadataExt::ino(&namespace);
    let socket = Path::new("/run").join(format!("{}{ino}", super::place::PREFIX)).join("socket");
    connect(&socket, |_| Ok(())).is_ok().then_some(socket)
}

/// Has the service that listens there go on for as long as this process.
pub fn join(socket: &Path) -> io::Result<Service> {
    connect(socket, Service::join)
}

/// Connects, and does what has to be done first; a service that stands still is not waited for.
fn connect(socket: &Path, first: impl FnOnce(&Service) -> io::Result<()> + Send + 'static) -> io::Result<Service> {
    let (say, hear) = channel();
    let socket = socket.to_owned();
    // One that gets no answer stays until the process ends.
    thread::Builder::new().name("baton-join".into()).spawn(move || {
        let service = Service::connect(&socket).and_then(|service| first(&service).map(|()| service));
        let _ = say.send(service);
    })?;
    let unanswered = |_| Err(io::Error::new(ErrorKind::TimedOut, "it does not answer"));
    hear.recv_timeout(TO_START).unwrap_or_else(unanswered)
}

/// Waits until the service of earlier runs has ended.
fn await_end(place: &Place) -> anyhow::Result<()> {
    let begun = Instant::now();
    while place.is_alive() {
        if begun.elapsed() > TO_END {
            bail!("a service that runs before had started does not end");
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Ends what a killed service left on these interfaces. Returns the number of connections that
/// programs' own engines still have.
///
/// # Errors
/// If another service steers one of them: what that has is not ended.
pub fn bury(interfaces: &[String]) -> anyhow::Result<usize> {
    let mut left = 0;
    for name in interfaces {
        match once_free(|| Steering::reap(name)) {
            Ok(buried) => left += buried.left,
            Err(error @ SteerError::Occupied { .. }) => return Err(error.into()),
            // The service says what is wrong with the interface when it starts.
            Err(_) => {}
        }
    }
    Ok(left)
}

/// Repeats a step for a while where another process steers the interface: a killed process closes
/// its descriptors one after the other, and the lock on its steering may go last.
fn once_free<T>(mut step: impl FnMut() -> Result<T, SteerError>) -> Result<T, SteerError> {
    let begun = Instant::now();
    loop {
        match step() {
            Err(SteerError::Occupied { .. }) if begun.elapsed() < TO_EXIT => thread::sleep(LOOK),
            done => return done,
        }
    }
}

/// Starts a service, in place of one that has ended.
///
/// # Errors
/// What it said when it ended.
pub fn start(place: &Place, _locked: &Locked, setup: &Setup) -> anyhow::Result<Service> {
    let Setup { steer, rules, interfaces, log } = setup;
    place.keep_with(setup)?;
    let (socket, config, said) = (place.socket(), place.file("config.toml"), place.file("said"));
    let mut text = String::from("log = \"error\"\n[socket]\nmode = \"0666\"\n");
    writeln!(text, "[access]\ndescendants-of = {}", std::process::id())?;
    writeln!(text, "[firewall]\nrules = \"{}\"", rules.word())?;
    fs::write(&config, text)?;
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(["service", "--steer", steer]).arg("--config").arg(&config).arg("--socket").arg(&socket);
    command.args(log.words().context("finding the log")?);
    command.args(interfaces.iter().flat_map(|name| ["--interface", name]));
    command.stdin(Stdio::null()).stdout(place.begin_life()?).stderr(File::create(&said)?);
    // A terminal's Ctrl-C does not reach it.
    command.process_group(0).spawn().context("starting a service")?;
    // They have the file that says that they live.
    drop(command);
    let begun = Instant::now();
    loop {
        match join(&socket) {
            Ok(service) => return Ok(service),
            Err(_) if place.is_alive() && begun.elapsed() < TO_START => thread::sleep(LOOK),
            Err(_) if place.is_alive() => bail!("the service does not start"),
            Err(_) => {
                let last = last_words(&fs::read_to_string(&said).unwrap_or_default());
                return Err(usage(format!("no service could be started: {last}"), "baton doctor says what is missing"));
            }
        }
    }
}

/// A service that could not be started is not left behind.
fn abandon(place: &Place, locked: &Locked) {
    if !place.is_used() {
        end(place);
        place.remove(locked);
    }
}

/// Asks all of its processes to end, waits for that, and makes them after a while.
fn end(place: &Place) {
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
    // One that was killed has left its steering.
    for name in place.with().into_iter().flat_map(|setup| setup.interfaces) {
        let _ = once_free(|| Steering::reap_all(&name));
    }
}

/// Interfaces of Ethernet in this network namespace, but for loopback.
fn ethernet() -> anyhow::Result<Vec<String>> {
    // Unlike sysfs it is of the namespace that this process is in.
    let table = fs::read_to_string("/proc/self/net/dev").context("listing interfaces")?;
    let names = table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    let found: Vec<String> = names.filter(|name| link::is_ethernet(name).unwrap_or(false)).collect();
    if found.is_empty() {
        return Err(usage("there is no Ethernet interface", "name one that there is: --interface NAME"));
    }
    Ok(found)
}
