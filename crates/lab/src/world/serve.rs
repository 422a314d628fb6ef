//! Runs `baton serve` as a child process, and reads its counters.

use super::Namespace;
use anyhow::{Context, bail};
use baton_apps::background::{Background, last_words};
use baton_apps::net::Stats;
use baton_apps::services::Line;
use baton_apps::signal::Stop;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time allowed for a server to start or to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time that it may take to end.
const END: Duration = Duration::from_secs(2);

/// The registered ports of the services.
pub mod port {
    /// Echo.
    pub const ECHO: u16 = 7;
    /// Discard.
    pub const DISCARD: u16 = 9;
    /// Chargen.
    pub const CHARGEN: u16 = 19;

    /// The port of the service that a load needs.
    pub fn of(kind: baton_apps::load::Kind) -> u16 {
        match kind {
            baton_apps::load::Kind::Echo => ECHO,
            baton_apps::load::Kind::Send => DISCARD,
            baton_apps::load::Kind::Receive => CHARGEN,
        }
    }
}

/// A running server. It ends when this value is dropped, and by itself when this process dies, because
/// its standard input then closes.
pub struct Server {
    child: Background,
    lines: Receiver<Line>,
}

impl Server {
    /// Starts echo, discard and chargen in `namespace`, with the arguments for the stack in `stack` and
    /// further ones in `options`.
    pub fn start(namespace: &Namespace, stack: &str, options: &[String], stop: &Stop) -> anyhow::Result<Server> {
        let services = "--json --control --service echo --service discard --service chargen";
        let words = stack.split_whitespace().chain(services.split_whitespace()).map(str::to_owned);
        let arguments: Vec<String> = words.chain(options.iter().cloned()).collect();
        Server::start_as(namespace, "serve", &arguments, stop)
    }

    /// Starts another command of this program that reports when it is ready and ends when its standard
    /// input closes.
    pub fn start_as(namespace: &Namespace, command: &str, arguments: &[String], stop: &Stop) -> anyhow::Result<Server> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = namespace.command(&program.to_string_lossy());
        child.arg(command).args(arguments);
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Background::start(&mut child, END).context("cannot start a server")?;
        let stdout = BufReader::new(child.child().stdout.take().context("no pipe from a server")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if serde_json::from_str(&line).is_ok_and(|line| sender.send(line).is_err()) {
                    return;
                }
            }
        });
        let mut server = Server { child, lines };
        match server.line(stop)? {
            Line::Ready { .. } => Ok(server),
            Line::Stats { .. } => bail!("a server sent counters before it was ready"),
        }
    }

    /// Number of its process.
    pub fn pid(&self) -> u32 {
        // `ip netns exec` becomes the program that it starts.
        self.child.id()
    }

    /// Reads the server's counters.
    pub fn stats(&mut self, stop: &Stop) -> anyhow::Result<Stats> {
        self.child.tell(b"stats\n").context("a server ended")?;
        match self.line(stop)? {
            Line::Stats { stats, .. } => Ok(stats),
            Line::Ready { .. } => bail!("a server reported twice that it is ready"),
        }
    }

    fn line(&mut self, stop: &Stop) -> anyhow::Result<Line> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(Duration::from_millis(20)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => bail!("{}", self.last_words()),
                Err(RecvTimeoutError::Timeout) if stop.requested() => bail!("interrupted"),
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => bail!("a server did not answer"),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// The last message of a server that has ended.
    fn last_words(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.child().stderr.take() {
            // A part of the message is better than none, so ignore errors.
            let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
        }
        last_words(&said)
    }
}
