//! A service for one run: started with the program, ended after it.
//!
//! Its processes come and go: a guardian that does not do its work is replaced by the broker, a
//! broker by the guardian. So they are known by their standard output, the one end of a pipe that
//! nobody else has: at its other end it is seen when the last has gone. And should this process be
//! killed, the service ends by itself, for it serves what descends from this process.

use super::children::children;
use crate::background::{LOOK, last_words};
use crate::fail::usage;
use anyhow::{Context, ensure};
use baton_host::Rules;
use baton_port::link;
use baton_socket::service::Service;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, PipeReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time that it may take to start.
const TO_START: Duration = Duration::from_secs(10);

/// Time that it may take to end in form: it brings home what the program left open, thousands of
/// connections within a second.
const TO_END: Duration = Duration::from_secs(20);

/// See the file's head.
pub struct Private {
    /// What was started.
    first: Child,
    /// The end of the pipe that is ours.
    output: PipeReader,
    /// What a link to the pipe reads (`proc_pid_fd(5)`).
    pipe: PathBuf,
    socket: PathBuf,
}

impl Private {
    /// Starts a service for these interfaces (all of Ethernet, if none is named), with all
    /// that it needs in `home`. It serves what descends from this process, whatever user that
    /// becomes; each user reaches its own connections only.
    ///
    /// # Errors
    /// What the service said when it ended at once.
    pub fn start(home: &Path, interfaces: &[String], steer: &str, rules: Rules) -> anyhow::Result<Private> {
        let interfaces = if interfaces.is_empty() { ethernet()? } else { interfaces.to_vec() };
        let (socket, config, said) = (home.join("socket"), home.join("config.toml"), home.join("said"));
        let mut text = String::from("log = \"error\"\n[socket]\nmode = \"0666\"\n");
        writeln!(text, "[access]\ndescendants-of = {}", std::process::id())?;
        writeln!(text, "[firewall]\nrules = \"{}\"", rules.word())?;
        fs::write(&config, text)?;
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command.args(["service", "--steer", steer]).arg("--config").arg(&config).arg("--socket").arg(&socket);
        command.args(interfaces.iter().flat_map(|name| ["--interface", name]));
        let (output, theirs) = io::pipe().context("making a pipe")?;
        let pipe = fs::read_link(format!("/proc/self/fd/{}", output.as_raw_fd())).context("reading a pipe's name")?;
        command.stdin(Stdio::null()).stdout(theirs).stderr(File::create(&said)?);
        // A terminal's Ctrl-C does not reach it.
        let first = command.process_group(0).spawn().context("starting a service")?;
        // It has the pipe's other end.
        drop(command);
        let private = Private { first, output, pipe, socket };
        let begun = Instant::now();
        while Service::connect(&private.socket).is_err() {
            if private.is_gone_after(LOOK) {
                let last = last_words(&fs::read_to_string(&said).unwrap_or_default());
                let remedy = "baton doctor says what is missing; programs that run at a time share one baton service";
                return Err(usage(format!("no service could be started: {last}"), remedy));
            }
            ensure!(begun.elapsed() < TO_START, "the service does not start");
        }
        Ok(private)
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether a process is of the service.
    pub fn has(&self, pid: Pid) -> bool {
        // Of one that has ended the kernel says nothing.
        fs::read_link(format!("/proc/{pid}/fd/1")).is_ok_and(|link| link == self.pipe)
    }

    /// Waits so long for the end of the last of its processes, and says whether that came.
    fn is_gone_after(&self, span: Duration) -> bool {
        let span = Timespec::try_from(span).expect("a short time");
        let mut waited = [PollFd::new(&self.output, PollFlags::empty())];
        poll(&mut waited, Some(&span)).is_ok() && waited[0].revents().contains(PollFlags::HUP)
    }

    /// All of its processes.
    fn processes(&self) -> impl Iterator<Item = Pid> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
        pids.filter(|pid| self.has(*pid))
    }
}

impl Drop for Private {
    /// Asks it to end, and waits for that; makes all of its processes end after a while.
    fn drop(&mut self) {
        let (begun, mut asked) = (Instant::now(), Vec::new());
        while !self.is_gone_after(LOOK) {
            if begun.elapsed() > TO_END {
                for pid in self.processes() {
                    let _ = kill_process(pid, Signal::KILL);
                }
                continue;
            }
            // One that loses its guardian, or its broker, becomes ours.
            for pid in children() {
                if self.has(pid) && !asked.contains(&pid) {
                    let _ = kill_process(pid, Signal::TERM);
                    asked.push(pid);
                }
            }
        }
        let _ = self.first.wait();
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
