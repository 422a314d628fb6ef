//! The servers: how each is started, and on which port it listens.

use super::account::Account;
use super::at::At;
use crate::world::Namespace;
use crate::world::process::output;
use anyhow::{Context, bail, ensure};
use baton_apps::background::{Background, LOOK, last_words};
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time that a server may take to start listening, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The servers that loads can run against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// nginx with one worker, which serves the files of [`FILES`].
    Nginx,
    /// nginx for thousands of connections that last. It counts its requests.
    Crowd,
    /// redis-server, without persistence.
    Redis,
    /// iperf3.
    Iperf,
    /// The echo service of `baton serve` over kernel sockets, which `baton run` treats as any program.
    Echo,
}

/// Files that nginx serves: name and size in bytes.
pub const FILES: [(&str, usize); 6] =
    [("1k", 1 << 10), ("4k", 4 << 10), ("16k", 16 << 10), ("64k", 64 << 10), ("256k", 256 << 10), ("1m", 1 << 20)];

/// Rate in bytes per second at which nginx serves `/live/`, from the directory `live` next to its own.
pub const LIVE_RATE: u64 = 16 << 20;

/// Bytes per write of nginx under `/live/`. After a write it sleeps for as long as the rate requires:
/// 8 ms with this size, but a quarter of a second with the 4 MB that a socket accepts.
const LIVE_CHUNK: u64 = 128 << 10;

impl Kind {
    /// The program and the Debian package that brings it.
    pub fn program(self) -> (&'static str, &'static str) {
        match self {
            Kind::Nginx | Kind::Crowd => ("nginx", "nginx"),
            Kind::Redis => ("redis-server", "redis-server"),
            Kind::Iperf => ("iperf3", "iperf3"),
            Kind::Echo => ("baton", "baton"),
        }
    }

    /// The port that it listens on.
    pub fn port(self) -> u16 {
        match self {
            Kind::Nginx | Kind::Crowd => 8000,
            Kind::Redis => 7000,
            Kind::Iperf => 5201,
            Kind::Echo => 7,
        }
    }

    /// Its Unix domain socket, if servers listen at such.
    pub fn socket(self, at: &At) -> Option<PathBuf> {
        match at {
            At::Ip(_) => None,
            At::Unix(directory) => Some(directory.join(format!("{}.socket", self.program().0))),
        }
    }

    /// Its command line; makes the files that it needs in `home`.
    fn words(self, at: &At, home: &Path) -> anyhow::Result<Vec<String>> {
        let own = || std::env::current_exe().context("cannot find this program");
        let redis =
            |listen: String| format!("redis-server {listen} --protected-mode no --dir {} --save", home.display());
        let line = match (self, at) {
            (Kind::Nginx, At::Ip(address)) => nginx(&nginx_configuration(address, home, ["", "", ""]), home)?,
            (Kind::Crowd, At::Ip(address)) => nginx(&nginx_configuration(address, home, CROWD), home)?,
            (Kind::Redis, At::Ip(address)) => redis(format!("--port 7000 --bind {address}")),
            (Kind::Iperf, At::Ip(address)) => format!("iperf3 --server --bind {address}"),
            (Kind::Echo, At::Ip(address)) => {
                format!("{} serve --port kernel --addr {address} --service echo", own()?.display())
            }
            (_, At::Unix(_)) => {
                let socket = self.socket(at).context("no socket")?;
                match self {
                    Kind::Redis => redis(format!("--port 0 --unixsocket {}", socket.display())),
                    Kind::Echo => {
                        format!("{} serve --port unix:{} --service echo", own()?.display(), socket.display())
                    }
                    _ => bail!("no client reaches {} at a Unix domain socket", self.program().0),
                }
            }
        };
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if self == Kind::Redis {
            // An empty list for --save turns persistence off.
            words.push(String::new());
        }
        Ok(words)
    }
}

/// More options of nginx for thousands of connections: of the program, of its events and of a server.
const CROWD: [&str; 3] =
    ["worker_rlimit_nofile 16384;", "worker_connections 8192;", "keepalive_requests 1000000000; keepalive_timeout 1h;"];

/// The port at which [`Kind::Crowd`] tells how many requests it had.
pub const COUNTS: u16 = 8001;

fn nginx(configuration: &str, home: &Path) -> anyhow::Result<String> {
    let path = home.join("nginx.conf");
    fs::write(&path, configuration)?;
    Ok(format!("nginx -p / -c {}", path.display()))
}

fn nginx_configuration(address: &IpAddr, home: &Path, [program, events, server]: [&str; 3]) -> String {
    let home = home.display();
    let temporary: String =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {home};")).concat();
    // Debian's configuration, except for users, logs and paths.
    format!(
        "user root; worker_processes 1; daemon off; pid {home}/nginx.pid; error_log {home}/nginx.log; {program}\n\
         events {{ {events} }}\nhttp {{ sendfile on; tcp_nopush on; access_log off; {temporary}\n\
         server {{ listen {address}:8000 backlog=4096; root {home}/..; {server}\n\
         location /live/ {{ alias {home}/../live/; limit_rate {LIVE_RATE}; sendfile_max_chunk {LIVE_CHUNK}; }} }}\n\
         server {{ listen {address}:{COUNTS}; location / {{ stub_status; }} }} }}\n"
    )
}

/// A running server, which ends when this value is dropped.
pub struct Server {
    child: Background,
    said: PathBuf,
}

impl Server {
    /// Starts a server in `namespace`, and waits until it listens. `home` is the directory for its files;
    /// `command` wraps its words as its way requires.
    ///
    /// # Errors
    /// The server's last message if it ended at once; an error if it does not listen in time.
    pub fn start(
        kind: Kind,
        namespace: &Namespace,
        at: &At,
        home: &Path,
        command: impl FnOnce(&[String]) -> anyhow::Result<Command>,
    ) -> anyhow::Result<Server> {
        let words = kind.words(at, home)?;
        let said = home.join(format!("{}.said", kind.program().0));
        let mut command = command(&words)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said)?);
        // This does not use `ip netns exec`, which hides the BPF file system.
        let start = || Background::start(&mut command, PATIENCE).with_context(|| format!("cannot start {}", words[0]));
        let child = namespace.enter(start)?;
        let mut server = Server { child, said };
        let begun = Instant::now();
        while !listens(&mut namespace.command("ss"), at, kind)? {
            if server.child.has_ended()? {
                bail!("{}: {}", words[0], last_words(&fs::read_to_string(&server.said).unwrap_or_default()));
            }
            ensure!(begun.elapsed() < PATIENCE, "{} does not listen", words[0]);
            std::thread::sleep(LOOK);
        }
        Ok(server)
    }

    /// The id of its process, or of `baton run`.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the server. Returns what `baton run` printed about its connections, if it ran under that.
    ///
    /// # Errors
    /// If it cannot be ended.
    pub fn end(mut self) -> anyhow::Result<Option<Account>> {
        self.child.end()?;
        Ok(Account::parse(&fs::read_to_string(&self.said)?))
    }
}

/// Returns true if a program listens there. This asks `ss`, since a connection would be counted.
fn listens(command: &mut Command, at: &At, kind: Kind) -> anyhow::Result<bool> {
    match (at, kind.socket(at)) {
        // `-l` would also list a socket that only has its name.
        (_, Some(socket)) => command.args(["-Hx", "state", "listening", "src"]).arg(socket),
        (At::Ip(address), None) => command.args(["-Hltn", "src", &SocketAddr::new(*address, kind.port()).to_string()]),
        (At::Unix(_), None) => return Ok(false),
    };
    Ok(!output(command).context("cannot run ss")?.stdout.trim_ascii().is_empty())
}

/// Makes the files that nginx serves, in the parent of its own directory.
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
