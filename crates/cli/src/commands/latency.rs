//! `baton latency`: where the time of connections goes, by layer.

use super::measuring::{length, write};
use crate::commands::policy::sockets::find;
use crate::latency::{Frames, Services, Sources, refuse};
use anyhow::{Context, bail};
use baton_apps::signal::Stop;
use baton_kernel::latency::{LatencyError, Wanted};
use baton_lab::report::latency::{Entry, Report};
use baton_latency::{KEPT, Sampler};
use baton_wire::addr::Tuple;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Arguments of `baton latency`.
#[derive(clap::Args, Debug)]
#[command(
    group = clap::ArgGroup::new("which").required(true),
    after_help = "A connection is watched from its next call to send or to receive on. On each way one message at a \
                  time is followed, from call to device and from device to call. The times of the layers and what \
                  lies between them add up to the whole. With --watch each table is of the last second, but max is of \
                  all time. Of each connection and way the 8 slowest messages are kept. All connections are those of this network namespace, except with --pid, and those in engines of the services that \
                  are running: the host's, and that of `baton run`. A connection that moves is shown in both \
                  places.\n\n\
                  Examples:\n  baton latency --port 6379\n  baton latency --pid 1234 --seconds 10 --each\n  \
                  baton latency --port 6379 --moves\n  \
                  baton latency 10.0.0.1:443,10.0.0.9:51234 --watch\n  \
                  baton latency --port 443 --slowest 8 --pcap slow.pcapng\n  \
                  baton latency --all --json | jq '.together[].layers[] | select(.layer == \"wake-up\")'\n\n\
                  Exit code: 0, 1 if no message of such a connection is seen (with --moves: if \
                  none was in both places), 2 if the kernel's points cannot be had and no engine can be looked at."
)]
pub struct Args {
    /// Connection, as LOCAL,REMOTE, each as ADDRESS:PORT
    #[arg(value_name = "TUPLE", value_parser = crate::tuple::tuple, group = "which")]
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
    /// Record one message in N, at random, of connections in engines; counts are estimates then [default: 128 with
    /// --all, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(Sampler::RAREST)))]
    every: Option<u32>,
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
    /// Print, for each connection that was in the kernel and in an engine, both times side by side
    #[arg(long, conflicts_with_all = ["each", "json", "html", "watch"])]
    moves: bool,
    /// Socket of the service whose engines are looked at [default: the services that are running]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON, with --watch one object a line
    #[arg(long)]
    json: bool,
    /// Write an HTML page with the tables to this file
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    html: Option<PathBuf>,
}

/// Time between two tables of --watch.
const EVERY: Duration = Duration::from_secs(1);
/// Engines record one message in this many if the user wants all connections. There may be hundreds of those, and
/// each recorded message costs time.
const ONE_IN: u32 = 128;
/// Time between two looks whether to end.
const LOOK: Duration = Duration::from_millis(50);

/// Looks at connections.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let wanted = wanted(args);
    if let Some(pid) = args.pid.filter(|pid| !is_there(Some(*pid))) {
        return Err(refuse(&LatencyError::NoProcess { pid }));
    }
    let time = length(args.seconds)?;
    let stop = Stop::install().context("cannot catch signals")?;
    let every = args.every.unwrap_or(if args.all { ONE_IN } else { 1 });
    let services = Services::ask(args.socket.as_deref(), &wanted, every)?;
    if let Wanted::Tuple(tuple) = &wanted {
        exists(tuple, &services)?;
    }
    // Messages are seen from the moment that the sources are open.
    let frames = args.pcap.as_ref().map(|path| Ok::<_, anyhow::Error>((path, Frames::start(&wanted)?))).transpose()?;
    let mut sources = Sources::open(&wanted, services)?;
    if args.watch {
        return watch(args, &mut sources, &stop);
    }
    sources.restart();
    while sources.started().elapsed() < time && !stop.requested() && is_there(args.pid) {
        sleep(LOOK.min(time.saturating_sub(sources.started().elapsed())));
        sources.look();
    }
    let mut report = Report { show_slowest: args.slowest.into(), ..sources.read()? };
    let nothing = report.entries.is_empty() && report.earlier_count() == 0;
    if let Some((path, frames)) = frames.filter(|_| !nothing) {
        report.notes.extend(frames.write(path, &report)?);
    }
    if let Some(path) = args.html.as_deref().filter(|_| !nothing) {
        write(path, &report.page())?;
    }
    if args.json {
        writeln!(std::io::stdout(), "{}", report.json()?)?;
    } else if !nothing {
        let mut out = std::io::stdout();
        match report.moves(args.each).filter(|_| args.moves) {
            Some(moves) => {
                out.write_all(moves.as_bytes())?;
                report.remarks().iter().try_for_each(|remark| writeln!(out, "{remark}"))?;
            }
            None => write!(out, "{}", report.text(args.each))?,
        }
    }
    if nothing {
        let each = if every > 1 { ", and --every 1 records each message in engines" } else { "" };
        bail!(
            "no call to send or to receive was seen on such a connection in {:.1} s; `ss -tnp` lists connections, and \
             --seconds looks longer{each}",
            report.seconds
        );
    }
    if args.moves && report.moves(false).is_none() {
        bail!(
            "no connection was in the kernel and in an engine in these {:.1} s; `baton handoff` moves one meanwhile",
            report.seconds
        );
    }
    Ok(())
}

/// The connections that the arguments ask for.
fn wanted(args: &Args) -> Wanted {
    match (args.tuple, args.pid, args.port) {
        (Some(tuple), ..) => Wanted::Tuple(tuple),
        (_, Some(pid), _) => Wanted::Pid(pid),
        (.., Some(port)) => Wanted::Port(port),
        _ => Wanted::All,
    }
}

/// Refuses a tuple that neither a program that we may look into nor a service has.
fn exists(tuple: &Tuple, services: &Services) -> anyhow::Result<()> {
    let is_it = |facts: &baton_policy::conditions::Facts| {
        let end = |(address, port): (Option<std::net::IpAddr>, u16)| Some((address?, port).into());
        end(facts.local).zip(end(facts.remote)).is_some_and(|(ours, peers)| Tuple::new(ours, peers) == *tuple)
    };
    if !services.know(tuple) && !find(None)?.iter().any(|found| is_it(&found.facts)) {
        bail!("there is no such connection; root sees those of all programs, and `ss -tnp` lists them");
    }
    Ok(())
}

/// True unless a process was named and has ended.
fn is_there(pid: Option<u32>) -> bool {
    pid.is_none_or(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

/// Prints what came in each second.
fn watch(args: &Args, sources: &mut Sources, stop: &Stop) -> anyhow::Result<()> {
    let clears = std::io::stdout().is_terminal() && !args.json;
    let mut before = Report::default();
    while !stop.requested() && is_there(args.pid) {
        sources.restart();
        while sources.started().elapsed() < EVERY && !stop.requested() {
            sleep(LOOK);
            sources.look();
        }
        let now = Report { show_slowest: args.slowest.into(), ..sources.read()? };
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
        let key = |entry: &Entry| (entry.connection.clone(), entry.place, entry.pid);
        let same = |other: &&Entry| key(other) == key(entry);
        before.entries.iter().find(same)
    };
    let entry = |entry: &Entry| match then(entry) {
        // One that had left may have come back.
        Some(then) if then.closed && entry.closed => None,
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
    Report { entries: now.entries.iter().filter_map(entry).collect(), earlier: Vec::new(), ..now.clone() }
}
