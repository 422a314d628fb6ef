//! The servers: how each is started, and on which port it listens.

use super::place::Place;
use crate::world::process::output;
use anyhow::{Context, bail, ensure};
use baton_apps::background::{Background, LOOK, last_words};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time that one may take to listen, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// nginx with one worker, which serves the files of [`FILES`].
    Nginx,
    /// redis-server that saves nothing.
    Redis,
    /// iperf3.
    Iperf,
    /// Echo of `baton serve` over kernel sockets: an ordinary program to `baton run`.
    Echo,
}

/// Files that nginx serves: name and bytes.
pub const FILES: [(&str, usize); 6] =
    [("1k", 1 << 10), ("4k", 4 << 10), ("16k", 16 << 10), ("64k", 64 << 10), ("256k", 256 << 10), ("1m", 1 << 20)];

/// Bytes a second of what nginx serves under `/live/`, from the directory `live` beside its own.
pub const LIVE_RATE: u64 = 16 << 20;

/// What it writes of that at once. It sleeps afterwards for as long as that may take: for 8 ms
/// with this, for a quarter of a second with the 4 MB that a socket takes.
const LIVE_CHUNK: u64 = 128 << 10;

impl Kind {
    /// The program and the Debian package that brings it.
    pub fn program(self) -> (&'static str, &'static str) {
        match self {
            Kind::Nginx => ("nginx", "nginx"),
            Kind::Redis => ("redis-server", "redis-server"),
            Kind::Iperf => ("iperf3", "iperf3"),
            Kind::Echo => ("baton", "baton"),
        }
    }

    /// Where it listens.
    pub fn port(self) -> u16 {
        match self {
            Kind::Nginx => 8000,
            Kind::Redis => 7000,
            Kind::Iperf => 5201,
            Kind::Echo => 7,
        }
    }

    /// Its words, with what it needs in `home`.
    fn words(self, address: &str, home: &Path) -> anyhow::Result<Vec<String>> {
        let line = match self {
            Kind::Nginx => format!("nginx -p / -c {}", nginx_configuration(address, home)?.display()),
            Kind::Redis => {
                let dir = home.display();
                format!("redis-server --port 7000 --bind {address} --protected-mode no --dir {dir} --save")
            }
            Kind::Iperf => format!("iperf3 --server --bind {address}"),
            Kind::Echo => {
                let own = std::env::current_exe().context("cannot find this program")?;
                format!("{} serve --port kernel --addr {address} --service echo", own.display())
            }
        };
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if self == Kind::Redis {
            // An empty list of times: it saves nothing.
            words.push(String::new());
        }
        Ok(words)
    }
}

fn nginx_configuration(address: &str, home: &Path) -> anyhow::Result<PathBuf> {
    let (path, home) = (home.join("nginx.conf"), home.display());
    let temporary: String =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {home};")).concat();
    // As Debian's configuration has it, but for users, logs and places.
    let text = format!(
        "user root; worker_processes 1; daemon off; pid {home}/nginx.pid; error_log {home}/nginx.log;\n\
         events {{ }}\nhttp {{ sendfile on; tcp_nopush on; access_log off; {temporary}\n\
         server {{ listen {address}:8000; root {home}/..;\n\
         location /live/ {{ alias {home}/../live/; limit_rate {LIVE_RATE}; sendfile_max_chunk {LIVE_CHUNK}; }} }} }}\n"
    );
    fs::write(&path, text)?;
    Ok(path)
}

/// A server that runs; dropped, it ends.
pub struct Server {
    child: Background,
    said: PathBuf,
}

impl Server {
    /// Starts one, and waits until it listens.
    ///
    /// # Errors
    /// What it said when it ended at once.
    pub fn start(place: &Place<'_>, kind: Kind) -> anyhow::Result<Server> {
        let address = place.address.to_string();
        let words = kind.words(&address, &place.home)?;
        let said = place.home.join(format!("{}.said", kind.program().0));
        let mut command = place.command(&words)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said)?);
        // Not by `ip netns exec`, which hides the BPF file system.
        let start = || Background::start(&mut command, PATIENCE).with_context(|| format!("cannot start {}", words[0]));
        let child = place.world.server.enter(start)?;
        let mut server = Server { child, said };
        let begun = Instant::now();
        while !place.listens(kind.port())? {
            if server.child.has_ended()? {
                bail!("{}: {}", words[0], last_words(&fs::read_to_string(&server.said).unwrap_or_default()));
            }
            ensure!(begun.elapsed() < PATIENCE, "{} does not listen", words[0]);
            std::thread::sleep(LOOK);
        }
        Ok(server)
    }

    /// Its process, or `baton run`'s.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it; what `baton run` said of its connections, if it ran it.
    ///
    /// # Errors
    /// If it cannot be ended.
    pub fn end(mut self) -> anyhow::Result<Option<Moved>> {
        self.child.end()?;
        Ok(Moved::parse(&fs::read_to_string(&self.said)?))
    }
}

/// What `baton run --explain` said of a program's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Those that moved.
    pub moved: u64,
    /// All that there were.
    pub all: u64,
}

impl Moved {
    fn parse(said: &str) -> Option<Moved> {
        let line =
            said.lines().find_map(|line| line.strip_prefix("baton: ").filter(|line| line.contains(" moved to ")))?;
        let mut words = line.split(' ');
        let moved = words.next()?.parse().ok()?;
        Some(Moved { moved, all: words.nth(1)?.parse().ok()? })
    }
}

/// True once somebody listens on a port; seen without a connection, which would be counted.
pub(super) fn listens(command: &mut Command, port: u16) -> anyhow::Result<bool> {
    let out = output(command.args(["-Hltn", &format!("sport = :{port}")])).context("cannot run ss")?;
    Ok(!out.stdout.trim_ascii().is_empty())
}

/// Makes the files that nginx serves, in the directory above its own.
///
/// # Errors
/// If they cannot be written.
pub fn make_files(directory: &Path) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(251);
    for (name, len) in FILES {
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
        fs::write(directory.join(name), bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_read() {
        let said = "started\nbaton: 4 of 5 connections moved to the engine; 1 bytes sent and 2 received there\n";
        assert_eq!(Moved::parse(said), Some(Moved { moved: 4, all: 5 }));
        assert_eq!(Moved::parse("baton: nothing"), None);
    }
}
