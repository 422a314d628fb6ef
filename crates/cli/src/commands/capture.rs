//! `baton capture`: what pairs exchange, as pcapng.

use super::measuring::length;
use crate::capture::{Conversation, Sink, Step, Sums};
use crate::run::service::{private_socket, reach};
use anyhow::{Context, bail};
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use baton_client::{FollowNews, Followed, SOCKET, Service};
use baton_ipc::message::{Entry, ProgramId, Selector};
use baton_port::Capture;
use baton_port::capture::wall_clock_ns;
use baton_wire::addr::Tuple;
use std::collections::BTreeMap;
use std::io::{ErrorKind, IsTerminal};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Arguments of `baton capture`.
#[derive(clap::Args, Debug)]
#[command(
    group = clap::ArgGroup::new("which").required(true),
    after_help = "A pair's bytes go through memory, so there are no packets. What is written are the IP packets that \
                  would have carried them: with the connection's sequence numbers, without TCP options, up to 65,495 \
                  bytes long. One is what an end wrote between two looks, some 0.1 ms apart or less; an ACK says how \
                  far a program has read. Neither program waits for the capture: bytes that were written over before \
                  they were read are missing, with a gap in the numbers and a comment. A capture begins with what is \
                  written next. With --pair it ends when the pair does, or when the connection is in the kernel \
                  again, where tcpdump sees it.\n\n\
                  A user sees pairs of own programs, root those of all. The services that are looked at are the host's \
                  and that of `baton run` in this network namespace.\n\n\
                  Examples:\n  baton capture --pair 127.0.0.1:7000,127.0.0.1:51234 -w pair.pcapng\n  \
                  baton capture --port 7000 -w - | tshark -r -\n  \
                  baton capture --port 7000 --seconds 10 -w - | tcpdump -n -A -r -\n  \
                  baton capture --all -w - | wireshark -k -i -\n\n\
                  Exit code: 0, 1 if the capture cannot be written or the service goes away, 2 if there is no such \
                  pair or no service that shows it."
)]
pub struct Args {
    /// Pair, by the tuple of either end: LOCAL,REMOTE, each as ADDRESS:PORT
    #[arg(long, value_name = "TUPLE", value_parser = crate::tuple::tuple, group = "which")]
    pair: Option<Tuple>,
    /// Pairs with this port at either end, also those that come later
    #[arg(long, value_name = "PORT", group = "which", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// All pairs, also those that come later
    #[arg(long, group = "which")]
    all: bool,
    /// Where to write: a file, a pipe made by mkfifo, or - for standard output
    #[arg(short, long, value_name = "FILE")]
    write: String,
    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Stop after this many segments
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Socket of the service [default: the services that are running]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// The longest pause between two looks. Programs that answer each other in turn write a page of memory over
/// again in a multiple of this.
const PAUSE: Duration = Duration::from_micros(100);
/// The shortest pause, after something was captured.
const SHORT_PAUSE: Duration = Duration::from_micros(10);
/// A sleep may last so many nanoseconds longer, instead of 50,000.
const SLACK: u64 = 1_000;

/// A conversation's name: the place of its service in the list, and the pair's number.
type Name = (usize, u64);

/// Captures pairs.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let time = args.seconds.map(length).transpose()?;
    if args.write == "-" && std::io::stdout().is_terminal() {
        return Err(usage("a capture is no text for a terminal", "add `| tshark -r -`, or name a file"));
    }
    let stop = Stop::install().context("cannot catch signals")?;
    let services = follow(args)?;
    let refuse = |error| usage(format!("cannot write {}: {error}", args.write), "name another file");
    let capture = Capture::create(&args.write, wall_clock_ns).map_err(refuse)?;
    let mut looking = Looking {
        services,
        conversations: BTreeMap::new(),
        sink: Sink::new(capture, args.count.unwrap_or(u64::MAX)),
        is_one: args.pair.is_some(),
        ended: 0,
        gone: false,
    };
    looking.hear();
    if looking.is_one && looking.conversations.is_empty() {
        bail!("the memory of this pair cannot be mapped");
    }
    // Without it the pauses are longer, and more is written over meanwhile.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(SLACK));
    let begun = Instant::now();
    while !stop.requested() && time.is_none_or(|time| begun.elapsed() < time) && looking.goes_on() {
        looking.look();
    }
    let gone = looking.gone;
    let (Sums { segments, bytes, lost }, status) = looking.sink.finish();
    eprintln!("{segments} segments, {bytes} bytes; {lost} bytes lost");
    match status.failure {
        Some(error) if !status.reader_gone => bail!("writing {}: {error}", args.write),
        _ if gone => bail!("the service has gone, and nobody says which pairs there are"),
        _ => Ok(()),
    }
}

/// The pairs that are being captured.
struct Looking {
    services: Vec<Service>,
    conversations: BTreeMap<Name, Conversation>,
    sink: Sink,
    /// Only one pair is wanted.
    is_one: bool,
    /// Conversations that have ended.
    ended: u64,
    /// A service has gone.
    gone: bool,
}

impl Looking {
    fn goes_on(&self) -> bool {
        let is_over = self.is_one && self.ended > 0 || self.gone && self.conversations.is_empty();
        !is_over && !self.sink.is_full() && self.sink.status().failure.is_none()
    }

    /// Hears what is new, looks at all pairs until there is nothing more, and pauses.
    fn look(&mut self) {
        let mut pause = SHORT_PAUSE;
        // Some rounds at a time, so that who asked for an end does not wait.
        for _ in 0..64 {
            self.hear();
            self.sink.tick();
            let mut has_news = false;
            let Looking { conversations, sink, ended, .. } = self;
            conversations.retain(|_, conversation| {
                // Bytes for which there is no room are better off where they are: they may be read later.
                let step = if sink.has_room(Conversation::ROOM) { conversation.step(sink) } else { Step::Quiet };
                has_news |= step == Step::News;
                *ended += u64::from(step == Step::Over);
                step != Step::Over
            });
            self.sink.flush();
            if self.sink.is_full() || self.is_one && self.ended > 0 {
                return;
            }
            if has_news {
                pause = SHORT_PAUSE;
            } else {
                sleep(pause);
                pause = (pause * 2).min(PAUSE);
            }
        }
    }

    fn hear(&mut self) {
        for at in 0..self.services.len() {
            for news in self.services[at].follow_news() {
                match news {
                    FollowNews::Begun(followed) => self.begin(at, followed),
                    FollowNews::Ended { number, written, home } => {
                        if let Some(conversation) = self.conversations.get_mut(&(at, number)) {
                            conversation.end(written, home);
                        }
                    }
                    FollowNews::ServiceGone => self.gone = true,
                }
            }
        }
    }

    /// A pair. One that is known already is told of by a new broker.
    fn begin(&mut self, at: usize, followed: Followed) {
        let pair = followed.pair;
        let (first, second) = pair.programs;
        let (local, remote) = (pair.tuple.local_addr(), pair.tuple.remote_addr());
        let text = format!("{local} is {}, {remote} is {}", named(first), named(second));
        self.conversations.entry((at, pair.number)).or_insert_with(|| {
            eprintln!("pair {}: {text}", pair.number);
            Conversation::new(followed, format!("pair {}: {text}", pair.number))
        });
    }
}

fn named(program: ProgramId) -> String {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", program.pid)).unwrap_or_default();
    format!("{}[{}]", name.trim(), program.pid)
}

/// The services, asked for the pairs that are wanted.
fn follow(args: &Args) -> anyhow::Result<Vec<Service>> {
    let mut services = services(args.socket.as_deref())?;
    let which = match (args.pair, args.port) {
        (Some(tuple), _) => Selector::Tuple(tuple),
        (_, Some(port)) => Selector::Port(port),
        _ => Selector::All,
    };
    if let Some(tuple) = &args.pair {
        services = vec![having(services, tuple)?];
    }
    let mut count = 0;
    for service in &services {
        count += service.follow(which).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => usage(error.to_string(), "stop it and start it again"),
            ErrorKind::InvalidInput => anyhow::anyhow!(error),
            _ => anyhow::Error::from(error).context("asking the service"),
        })?;
    }
    if args.pair.is_some() && count == 0 {
        return Err(usage(
            "a program at one end of this pair has an older library, which does not announce what it writes",
            "start it again",
        ));
    }
    Ok(services)
}

/// The service at `socket`; without, those that there are.
fn services(socket: Option<&Path>) -> anyhow::Result<Vec<Service>> {
    let remedy = "check that 'baton service' is running and that its [access] section lists this user";
    let refuse = |socket: &Path, error| usage(format!("{}: {error}", socket.display()), remedy);
    if let Some(socket) = socket {
        return Ok(vec![reach(socket).map_err(|error| refuse(socket, error))?]);
    }
    let (mut found, mut refused) = (Vec::new(), None);
    for socket in [Some(PathBuf::from(SOCKET)), private_socket(Path::new("/proc/self/ns/net"))].into_iter().flatten() {
        match reach(&socket) {
            Ok(service) => found.push(service),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
            Err(error) => refused = Some(refuse(&socket, error)),
        }
    }
    match refused {
        _ if !found.is_empty() => Ok(found),
        Some(error) => Err(error),
        None => Err(usage(
            "no service runs here",
            "start programs by 'baton run --pair same-user', or name the service's socket by --socket",
        )),
    }
}

/// The service of this pair.
fn having(services: Vec<Service>, tuple: &Tuple) -> anyhow::Result<Service> {
    let other = Tuple {
        local: tuple.remote,
        local_port: tuple.remote_port,
        remote: tuple.local,
        remote_port: tuple.local_port,
    };
    let mut elsewhere: Option<Entry> = None;
    for service in services {
        let entries = service.list().context("cannot list connections")?;
        for entry in entries.into_iter().filter(|entry| [*tuple, other].contains(&entry.tuple)) {
            if entry.place == "pair" {
                return Ok(service);
            }
            elsewhere = Some(entry);
        }
    }
    Err(match elsewhere {
        Some(Entry { place, why, .. }) => usage(
            format!("this connection is no pair: its place is {place} ({why})"),
            "tcpdump shows its packets, and docs/reference/reasons.md says what the reason means",
        ),
        None => usage(
            "the service knows no such connection of this user's programs",
            "`baton ps` lists them, and root sees those of all users",
        ),
    })
}
