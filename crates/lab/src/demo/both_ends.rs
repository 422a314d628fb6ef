//! The chapter about two unmodified programs of one machine: over the kernel's loopback, over memory that
//! they share, and over a Unix domain socket where both know one.
//!
//! ```text
//!   namespace "client"
//!   redis-benchmark, wrk,  -- lo -----------------  redis-server, nginx,   the kernel alone
//!   iperf3, baton load                              iperf3, baton serve
//!   baton run -- the same  == shared memory =====  baton run -- the same
//!   redis, baton           -- Unix domain socket -  redis, baton
//! ```
//!
//! First a download and an echo through shared memory are compared byte by byte. Then clients measure every
//! way in rounds, and say at their end how many of their connections were in pairs. To show another path
//! between two programs, add its ways to [`WAYS`], with the id of the kernel's way as baseline.

use super::Options;
use super::checks::digest;
use crate::report::both_ends::BothEnds;
use crate::report::{Cell, Check, LoadInfo, Run, Side, Wire};
use crate::watch::Watch;
use crate::workload::account::Account;
use crate::workload::client::{Load, Outcome, What};
use crate::workload::generate::ask;
use crate::workload::place::{Place, home};
use crate::workload::server::Kind;
use crate::workload::site::Site;
use crate::workload::ways::{Over, Placement, Way};
use crate::world::World;
use anyhow::{Context, ensure};
use baton_apps::load;
use baton_apps::signal::Stop;
use std::fs::{self, File};

/// Most measured runs of a load on a way; each takes a second.
const ROUNDS: usize = 2;

/// The loads, in the order of display.
const LOADS: [&str; 4] = ["ping-pong", "redis-get", "nginx-1k", "iperf3-1"];

/// The ways, in the order of display.
const WAYS: [&str; 3] = ["kernel", "pair", "unix"];

/// The first way's subnet.
const SUBNET: u8 = 60;

/// Steps that a watcher is told of.
pub fn steps(options: &Options) -> usize {
    let runs = loads().map(|load| ways().filter(|way| load.runs_on(way)).count()).sum::<usize>();
    WAYS.len() + 1 + rounds(options) * runs
}

fn rounds(options: &Options) -> usize {
    options.rounds.min(ROUNDS)
}

fn loads() -> impl Iterator<Item = Load> {
    LOADS.into_iter().filter_map(Load::of)
}

fn ways() -> impl Iterator<Item = Way> {
    crate::workload::ways::LOCAL.into_iter().filter(|way| WAYS.contains(&way.id))
}

/// A way that has been set up, as the report has it. A way on which something fails is not used any more.
struct Path<'a> {
    wire: Wire,
    place: Option<Place<'a>>,
}

/// Runs the chapter, and adds its checks to `checks` and what is missing here to `not_shown`.
///
/// # Errors
/// If the demo is asked to end, or the files to serve cannot be made.
pub fn run(
    world: &World,
    site: &Site,
    options: &Options,
    stop: &Stop,
    watch: &dyn Watch,
    (checks, not_shown): (&mut Vec<Check>, &mut Vec<String>),
) -> anyhow::Result<BothEnds> {
    let home = home()?;
    std::os::unix::fs::symlink(site.dir(), home.path().join("live"))?;
    let (loads, missing): (Vec<Load>, Vec<Load>) = loads().partition(|load| load.missing().is_none());
    not_shown.extend(missing.iter().filter_map(Load::missing));
    let mut paths = Vec::new();
    for (way, subnet) in ways().zip(SUBNET..) {
        watch.step(&format!("setting up both ends · {}", way.name));
        let mut path = Path { wire: wire(&way), place: None };
        let place = Place::new(world, way, subnet, home.path()).and_then(|mut place| {
            place.serve_all(loads.iter().filter(|load| load.runs_on(&way)).map(Load::server))?;
            Ok(place)
        });
        ensure!(!stop.requested(), "interrupted");
        match place {
            Ok(place) => path.place = Some(place),
            Err(error) => checks.push(path.check("both ends are set up", Err(error))),
        }
        paths.push(path);
    }
    watch.step("checking both ends");
    for path in &mut paths {
        let Some(place) = path.place.take_if(|place| place.way.placement == Placement::Paired) else { continue };
        let served = |kind| loads.iter().any(|load| load.server() == kind);
        if served(Kind::Nginx) {
            checks.push(path.check("a download through a pair has the file's digest", download(&place, site, stop)));
        }
        checks.push(
            path.check("64 KiB there and back through a pair again and again, every byte compared", echo(&place, stop)),
        );
        ensure!(!stop.requested(), "interrupted");
        path.place = Some(place);
    }
    let cells = measure(&loads, &mut paths, rounds(options), stop, watch, checks)?;
    let wires = paths.into_iter().map(|path| path.wire).collect();
    Ok(BothEnds { wires, loads: loads.iter().map(describe).collect(), cells })
}

/// Runs every load on every way once a round.
fn measure(
    loads: &[Load],
    paths: &mut [Path<'_>],
    rounds: usize,
    stop: &Stop,
    watch: &dyn Watch,
    checks: &mut Vec<Check>,
) -> anyhow::Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for load in loads {
        let mut requests = vec![0; paths.len()];
        let mut runs = vec![Vec::new(); paths.len()];
        for round in 1..=rounds {
            for (at, path) in paths.iter_mut().enumerate() {
                let Some(place) = path.place.as_ref().filter(|place| load.runs_on(&place.way)) else { continue };
                watch.step(&format!("round {round} of {rounds} · both ends, {} · {}", load.name, path.wire.name));
                let run = load.run(place, 1, &mut requests[at], stop);
                ensure!(!stop.requested(), "interrupted");
                match run {
                    Ok(run) => runs[at].push(run),
                    Err(error) => {
                        // Another failure would cost as much time.
                        path.place = None;
                        checks.push(path.check(&format!("a run of {}", load.name), Err(error)));
                    }
                }
            }
        }
        for (path, runs) in paths.iter().zip(runs) {
            if path.wire.side == Side::Baton && !runs.is_empty() {
                checks.push(path.check(&format!("the connections of {} are pairs", load.name), paired(load, &runs)));
            }
            let (wire, load) = (path.wire.id.clone(), load.id.to_owned());
            let runs: Vec<Run> = runs.into_iter().map(as_run).collect();
            cells.extend((!runs.is_empty()).then_some(Cell { wire, load, runs }));
        }
    }
    Ok(cells)
}

/// Checks that a load's connections were pairs. A client may have more for a moment, to look whether its
/// server is there.
fn paired(load: &Load, runs: &[Outcome]) -> anyhow::Result<String> {
    let accounts = runs.iter().map(|run| run.account.context("no account of the connections"));
    let sum = accounts.collect::<anyhow::Result<Vec<Account>>>()?.into_iter().reduce(Account::and).unwrap_or_default();
    let expected = u64::from(load.connections()) * runs.len() as u64;
    ensure!(sum.paired >= expected && sum.paired * 10 >= sum.all * 9, "{sum} connections");
    Ok(format!("{sum} connections"))
}

/// Fetches the site's file from nginx with curl, so slowly that the connection is old enough to be a pair.
fn download(place: &Place<'_>, site: &Site, stop: &Stop) -> anyhow::Result<String> {
    let (url, said) =
        (format!("http://{}:{}/live/{}", place.address, Kind::Nginx.port(), Site::NAME), place.home.join("curl"));
    let mut command = place.caller()?.command("curl");
    let seen = digest(command.stderr(File::create(&said)?), &url, site, stop)?;
    joined(Account::parse(&fs::read_to_string(&said)?))?;
    Ok(seen)
}

/// Sends requests that are returned, for longer than it takes to become a pair.
fn echo(place: &Place<'_>, stop: &Stop) -> anyhow::Result<String> {
    let arguments = ["--verify", "--warmup=0", "--seconds=0.3", "--size=65536"].map(str::to_owned);
    let (outcome, account) = ask(&place.caller()?, load::Kind::Echo, &arguments, stop)?;
    ensure!(outcome.connections == 1, "no answer");
    joined(account)?;
    Ok(format!("{} bytes", outcome.bytes))
}

/// Checks that the only connection of a program was a pair.
fn joined(account: Option<Account>) -> anyhow::Result<()> {
    let account = account.context("no account of the connection")?;
    ensure!(account.paired > 0, "the connection was not in a pair");
    Ok(())
}

impl Path<'_> {
    fn check(&self, what: &str, seen: anyhow::Result<String>) -> Check {
        let (ok, seen) = match seen {
            Ok(seen) => (true, seen),
            Err(error) => (false, format!("{error:#}")),
        };
        Check { wire: self.wire.name.clone(), what: what.to_owned(), ok, seen }
    }
}

/// Describes a way for the report.
fn wire(way: &Way) -> Wire {
    let is_paired = way.placement == Placement::Paired;
    let (name, about) = match way.over {
        _ if is_paired => ("Baton, pairs", "Connections over lo that both programs carry in memory that they share."),
        Over::Unix | Over::Pipelined => (way.name, "Stream sockets in the file system, without TCP."),
        Over::Wire(_) | Over::Loopback => ("kernel, loopback", "TCP over lo, MTU 65536."),
    };
    Wire {
        id: way.id.to_owned(),
        side: if is_paired { Side::Baton } else { Side::Kernel },
        name: name.to_owned(),
        about: about.to_owned(),
        baseline: way.baseline.map(str::to_owned),
        command: format!("{0}SERVER; {0}CLIENT", way.prefix()),
    }
}

/// Describes a load for the report.
fn describe(load: &Load) -> LoadInfo {
    let (about, command) = match load.what {
        What::Redis { command, connections } => (
            "redis-benchmark asks redis-server, and each connection waits for its answer.",
            format!("redis-benchmark -t {command} -c {connections}"),
        ),
        What::Wrk { file, connections } => {
            ("wrk fetches a file from nginx.", format!("wrk -t1 -c{connections} -d1s http://SERVER/{file}"))
        }
        What::Iperf { connections, .. } => {
            ("iperf3 sends for a second.", format!("iperf3 --client SERVER --time 1 --parallel {connections}"))
        }
        What::PingPong => (
            "baton load sends a byte to baton serve, and waits for its echo.",
            "baton load echo SERVER --size 1".to_owned(),
        ),
    };
    LoadInfo {
        id: load.id.to_owned(),
        name: load.name.to_owned(),
        about: about.to_owned(),
        requests: load.has_requests(),
        command,
    }
}

fn as_run(outcome: Outcome) -> Run {
    let Outcome { seconds, requests, bytes, p50_ns, tail_ns: [p99, largest], cpu, .. } = outcome;
    let latency_ns = (p50_ns > 0).then_some([p50_ns, p99, largest]);
    Run { seconds, bytes, requests, latency_ns, cpu, tce: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_beside_pairs_are_a_check_that_failed() {
        let load = Load::of("redis-get").unwrap();
        let run = |paired, all| Outcome { account: Some(Account { moved: all, paired, all }), ..Outcome::default() };
        assert_eq!(paired(&load, &[run(50, 52), run(50, 51)]).unwrap(), "100 of 103 connections");
        assert_eq!(paired(&load, &[run(50, 52), run(49, 51)]).unwrap_err().to_string(), "99 of 103 connections");
        assert!(paired(&load, &[run(100, 200)]).is_err() && paired(&load, &[Outcome::default()]).is_err());
    }

    #[test]
    fn every_way_and_load_is_one_that_there_is() {
        assert_eq!((ways().count(), loads().count()), (WAYS.len(), LOADS.len()));
        let options = Options { rounds: 3, run: std::time::Duration::ZERO, limit: std::time::Duration::ZERO };
        assert_eq!(steps(&options), 3 + 1 + 2 * (3 + 3 + 2 + 2));
        assert_eq!(wire(&ways().nth(1).unwrap()).command, "baton run -- SERVER; baton run -- CLIENT");
    }
}
