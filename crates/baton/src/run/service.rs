//! A service for one run: started with the program, ended after it.

use crate::background::{Background, LOOK, last_words};
use crate::fail::usage;
use anyhow::{Context, ensure};
use baton_port::link;
use baton_socket::service::Service;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time that it may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the file's head.
pub struct Private {
    child: Background,
    socket: PathBuf,
}

impl Private {
    /// Starts a service for these interfaces (all of Ethernet, if none is named), with all
    /// that it needs in `home`. It serves what descends from this process, whatever user that
    /// becomes; each user reaches its own connections only.
    ///
    /// # Errors
    /// What the service said when it ended at once.
    pub fn start(home: &Path, interfaces: &[String], steer: &str) -> anyhow::Result<Private> {
        let interfaces = if interfaces.is_empty() { ethernet()? } else { interfaces.to_vec() };
        let (socket, config, said) = (home.join("socket"), home.join("config.toml"), home.join("said"));
        let mut text = String::from("log = \"error\"\n[socket]\nmode = \"0666\"\n");
        writeln!(text, "[access]\ndescendants-of = {}", std::process::id())?;
        fs::write(&config, text)?;
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command.args(["service", "--steer", steer]).arg("--config").arg(&config).arg("--socket").arg(&socket);
        command.args(interfaces.iter().flat_map(|name| ["--interface", name]));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said)?);
        let child = Background::start(&mut command, PATIENCE).context("starting a service")?;
        let mut private = Private { child, socket };
        let begun = Instant::now();
        while Service::connect(&private.socket).is_err() {
            if private.child.has_ended()? {
                let last = last_words(&fs::read_to_string(&said).unwrap_or_default());
                return Err(usage(format!("no service could be started: {last}"), "baton doctor says what is missing"));
            }
            ensure!(begun.elapsed() < PATIENCE, "the service does not start");
            std::thread::sleep(LOOK);
        }
        Ok(private)
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
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
