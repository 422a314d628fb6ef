//! Runs `baton service` as a child process, and kills its engine on request.

use crate::world::{Namespace, stat_field};
use anyhow::{Context, bail, ensure};
use baton_apps::background::{Background, LOOK, last_words};
use baton_client::Service;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time that the service may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running service. Dropping it ends it in order.
pub struct Running {
    child: Background,
    socket: PathBuf,
}

impl Running {
    /// Starts a service in `namespace`, with its files in `home`, which begin with `name`. `words` are the
    /// options that say what it serves, and `settings` the lines of its configuration file.
    ///
    /// # Errors
    /// The service's last message if it ended at once; an error if it does not start in time.
    pub fn start(
        namespace: &Namespace,
        name: &str,
        words: &[String],
        home: &Path,
        settings: &str,
    ) -> anyhow::Result<Running> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let file = |end: &str| home.join(format!("{name}.{end}"));
        let (socket, said, config) = (file("sock"), file("said"), file("toml"));
        fs::write(&config, settings)?;
        let mut command = Command::new(program);
        command.arg("service").args(words).arg("--socket").arg(&socket);
        command.arg("--config").arg(config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said)?);
        // This does not use `ip netns exec`, which hides the BPF file system.
        let child = namespace.enter(|| Background::start(&mut command, PATIENCE).context("cannot start a service"))?;
        let mut running = Running { child, socket };
        let begun = Instant::now();
        while Service::connect(&running.socket).is_err() {
            if running.child.has_ended()? {
                bail!("{}", last_words(&fs::read_to_string(&said).unwrap_or_default()));
            }
            ensure!(begun.elapsed() < PATIENCE, "the service has not started within {} s", PATIENCE.as_secs());
            std::thread::sleep(LOOK);
        }
        Ok(running)
    }

    /// The id of its first process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Path of its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Connects to it as a program does.
    ///
    /// # Errors
    /// The errors of [`Service::connect`].
    pub fn connect(&self) -> io::Result<Service> {
        Service::connect(&self.socket)
    }

    /// The process id of its engine.
    ///
    /// # Errors
    /// If it has none.
    pub fn engine(&self) -> anyhow::Result<u32> {
        let is_engine = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|&byte| byte == 0).nth(1) == Some(b"engine")
        };
        descendants(self.child.id())?.into_iter().find(is_engine).context("the service has no engine")
    }

    /// Kills its engine with SIGKILL.
    ///
    /// # Errors
    /// If it has no engine.
    pub fn kill_engine(&self) -> anyhow::Result<()> {
        let engine = Pid::from_raw(self.engine()?.cast_signed()).context("the service has no engine")?;
        Ok(kill_process(engine, Signal::KILL)?)
    }

    /// Kills it at once, so that no caller continues to wait for its answers.
    pub fn kill(&self) {
        self.child.signal(Signal::KILL);
    }
}

/// The live descendants of a process.
fn descendants(of: u32) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    let pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let parents: Vec<(u32, u64)> = pids.iter().filter_map(|&pid| Some((pid, stat_field(pid, 4)?))).collect();
    let (mut found, mut next) = (vec![of], 0);
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, of)| *of == u64::from(parent)).map(|(pid, _)| pid));
        next += 1;
    }
    found.remove(0);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    #[test]
    fn a_childs_child_is_a_descendant() {
        let own = std::process::id();
        let mut shell = Command::new("sh").args(["-c", "sleep 30 & wait"]).process_group(0).spawn().unwrap();
        let begun = Instant::now();
        let found = loop {
            let found = descendants(shell.id()).unwrap();
            if !found.is_empty() {
                break found;
            }
            assert!(begun.elapsed() < Duration::from_secs(20));
        };
        assert!(!found.contains(&shell.id()) && descendants(own).unwrap().contains(&found[0]));
        let group = Pid::from_child(&shell);
        rustix::process::kill_process_group(group, Signal::KILL).unwrap();
        shell.wait().unwrap();
    }
}
