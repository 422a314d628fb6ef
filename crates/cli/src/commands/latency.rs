//! `baton latency`: where the time of connections goes, by layer.

mod frames;
mod kernel;

use super::measuring::{length, write};
use crate::commands::policy::sockets::find;
use anyhow::{Context, bail};
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use baton_ipc::engine::monotonic;
use baton_kernel::latency::Wanted;
use baton_lab::report::latency::{Entry, Report};
use baton_latency::{KEPT, Table};
use baton_port::capture::wall_clock_ns;
use baton_wire::addr::Tuple;
use frames::Frames;
use kernel::Kernel;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Arguments of `baton latency`.
#[derive(clap::Args, Debug)]
#[command(
    group = clap::ArgGroup::new("which").required(true),
    after_help = "A connection is watched from its next call to send or to receive on. On each way one message at a \
                  time is followed, from call to device and from device to call. The times of the layers and what \
                  lies between them add up to the whole. With --watch each table is of the last second, but max is of \
                  all time. Of each connection and way the 8 slowest messages are kept. All connections are those of this network namespace, except with --pid.\n\n\
                  Examples:\n  baton latency --port 6379\n  baton latency --pid 1234 --seconds 10 --each\n  \
                  baton latency 10.0.0.1:443,10.0.0.9:51234 --watch\n  \
                  baton latency --port 443 --slowest 8 --pcap slow.pcapng\n  \
                  baton latency --all --json | jq '.together[].layers[] | select(.layer == \"wake-up\")'\n\n\
                  Exit code: 0, 1 if no message of such a connection is seen, 2 if the kernel's points cannot be had."
)]
pub struct Args {
    /// Connection, as LOCAL,REMOTE, each as ADDRESS:PORT
    #[arg(value_name = "TUPLE", value_parser = super::policy::tuple, group = "which")]
    tuple: Option<Tuple>,
    /// Connections on which this process calls
    #[arg(long, value_name = "PID", group = "which", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Connections with this port at either end
    #[arg(long, value_name = "PORT", group = "which", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// All connections; those beyond 256 at a time are counted only
    #[arg(long, group = "which")]
    all: bool,
    /// How long to look
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, conflicts_with = "watch")]
    seconds: f64,
    /// Print each second what came in it, until Ctrl-C or until the process has ended
    #[arg(long)]
    watch: bool,
    /// Print a table for each connection, not only for all together
    #[arg(long)]
    each: bool,
    /// Show this many of the slowest messages of each way, layer by layer
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(..=KEPT as i64))]
    slowest: u8,
    /// Write the connections' frames to this file, as pcapng with the slowest messages as comments
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    pcap: Option<PathBuf>,
    /// Print JSON, with --watch one object a line
    #[arg(long)]
    json: bool,
    /// Write an HTML page with the tables to this file
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    html: Option<PathBuf>,
}

/// Time between two tables of --watch.
const EVERY: Duration = Duration::from_secs(1);
/// Time between two looks whether to end.
const LOOK: Duration = Duration::from_millis(50);

/// Something that sees connections in one place.
trait Source {
    /// All that was seen since the source was opened: connections, sums of those no longer listed, and how
    /// many were left out. `notes` say what cannot be seen.
    fn read(&mut self) -> anyhow::Result<Report>;
}

/// Looks at connections.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let wanted = wanted(args)?;
    let time = length(args.seconds)?;
    let stop = Stop::install().context("cannot catch signals")?;
    let mut sources: Vec<Box<dyn Source>> = vec![Box::new(Kernel::open(&wanted)?)];
    if args.watch {
        return watch(args, &mut sources, &stop);
    }
    let frames = args.pcap.as_ref().map(|path| Ok::<_, anyhow::Error>((path, Frames::start(&wanted)?))).transpose()?;
    let started = Start::now();
    while started.at.elapsed() < time && !stop.requested() && is_there(args.pid) {
        sleep(LOOK.min(time.saturating_sub(started.at.elapsed())));
    }
    let report = read(args, &mut sources, &started)?;
    let nothing = report.entries.is_empty() && report.earlier_count == 0;
    if let Some(path) = args.html.as_deref().filter(|_| !nothing) {
        write(path, &report.page())?;
    }
    if let Some((path, frames)) = frames.filter(|_| !nothing) {
        frames.write(path, &report)?;
    }
    if args.json {
        writeln!(std::io::stdout(), "{}", report.json()?)?;
    } else if !nothing {
        write!(std::io::stdout(), "{}", report.text(args.each))?;
    }
    if nothing {
        bail!(
            "no call to send or to receive was seen on such a connection in {:.1} s; `ss -tnp` lists connections, and \
             --seconds looks longer",
            report.seconds
        );
    }
    Ok(())
}

/// The connections that the arguments ask for. A tuple has to exist.
fn wanted(args: &Args) -> anyhow::Result<Wanted> {
    Ok(match (args.tuple, args.pid, args.port) {
        (Some(tuple), ..) => {
            let is_it = |facts: &baton_policy::conditions::Facts| {
                let end = |(address, port): (Option<std::net::IpAddr>, u16)| Some((address?, port).into());
                end(facts.local).zip(end(facts.remote)).is_some_and(|(ours, peers)| Tuple::new(ours, peers) == tuple)
            };
            if !find(None)?.iter().any(|found| is_it(&found.facts)) {
                bail!("there is no such connection; root sees those of all programs, and `ss -tnp` lists them");
            }
            Wanted::Tuple(tuple)
        }
        (_, Some(pid), _) => Wanted::Pid(pid),
        (.., Some(port)) => Wanted::Port(port),
        _ => Wanted::All,
    })
}

/// True unless a process was named and has ended.
fn is_there(pid: Option<u32>) -> bool {
    pid.is_none_or(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

/// The time at which a report begins.
struct Start {
    at: Instant,
    monotonic_ns: u64,
}

impl Start {
    fn now() -> Start {
        Start { at: Instant::now(), monotonic_ns: monotonic() }
    }
}

/// The readings of all sources together.
fn read(args: &Args, sources: &mut [Box<dyn Source>], started: &Start) -> anyhow::Result<Report> {
    let mut all = Report {
        began_ns: started.monotonic_ns,
        unix_offset_ns: wall_clock_ns().saturating_sub(monotonic()),
        show_slowest: args.slowest.into(),
        ..Report::default()
    };
    for source in sources {
        let report = source.read()?;
        all.entries.extend(report.entries);
        all.earlier.add(&report.earlier);
        all.earlier_count += report.earlier_count;
        all.left_out += report.left_out;
        all.notes.extend(report.notes);
    }
    all.seconds = started.at.elapsed().as_secs_f64();
    Ok(all)
}

/// Prints what came in each second.
fn watch(args: &Args, sources: &mut [Box<dyn Source>], stop: &Stop) -> anyhow::Result<()> {
    let clears = std::io::stdout().is_terminal() && !args.json;
    let mut before = Report::default();
    while !stop.requested() && is_there(args.pid) {
        let started = Start::now();
        while started.at.elapsed() < EVERY && !stop.requested() {
            sleep(LOOK);
        }
        let now = read(args, sources, &started)?;
        let report = since(&now, &before);
        before = now;
        let text = if args.json { report.json()? + "\n" } else { report.text(args.each) };
        let clear = if clears { "\x1b[H\x1b[2J" } else { "" };
        match write!(std::io::stdout(), "{clear}{text}").and_then(|()| std::io::stdout().flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("writing tables")?,
        }
    }
    Ok(())
}

/// The difference of two readings. Connections that closed before are left out.
fn since(now: &Report, before: &Report) -> Report {
    let then = |entry: &Entry| {
        let same = |other: &&Entry| (&other.connection, other.place) == (&entry.connection, entry.place);
        before.entries.iter().find(same)
    };
    let entry = |entry: &Entry| match then(entry) {
        Some(then) if then.closed => None,
        Some(then) => {
            let less = |now: [u64; 2], then: [u64; 2]| [0, 1].map(|at| now[at].saturating_sub(then[at]));
            Some(Entry {
                table: entry.table.since(&then.table),
                skipped: less(entry.skipped, then.skipped),
                lost: less(entry.lost, then.lost),
                slowest: entry.slowest.iter().filter(|slow| slow.begun >= now.began_ns).copied().collect(),
                ..entry.clone()
            })
        }
        None => Some(entry.clone()),
    };
    Report {
        entries: now.entries.iter().filter_map(entry).collect(),
        earlier: Table::default(),
        earlier_count: 0,
        ..now.clone()
    }
}

/// An error of the kernel's points, as the command reports it.
fn refuse(error: &baton_kernel::latency::LatencyError) -> anyhow::Error {
    let text = error.to_string();
    match text.split_once("; ") {
        Some((what, remedy)) => usage(what, remedy),
        None => anyhow::anyhow!(text),
    }
}
