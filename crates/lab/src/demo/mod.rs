//! The demo: real programs between the kernel's TCP and Baton's, at the two ends of a wire.
//!
//! ```text
//!   namespace "client"                         namespace "server"
//!   curl, baton load  -- kernel TCP --+ wire +-- baton serve --port kernel
//!                                     |      +-- baton serve --port tap:… | xdp:…
//! ```
//!
//! Every load runs over every wire once per round, so that changes on the machine affect all of them.
//! The wires with the kernel at both ends are the baselines. [`crate::report`] defines the measured
//! values and their presentation. Live connections that move between kernel and engine have a chapter
//! of their own (`moves`), and so have programs of one machine (`both_ends`).
//!
//! Namespaces, devices and processes are removed when their values are dropped ([`crate::world`]), also
//! after a panic. The next demo removes those of a killed one.

mod both_ends;
mod checks;
mod client;
mod loads;
pub mod memory;
mod moves;

use crate::report::{Cell, Check, Machine, Report};
use crate::watch::Watch;
use crate::workload::site::Site;
use crate::workload::wires::{self, Link};
use crate::world::World;
use anyhow::Context;
use baton_apps::signal::Stop;
use std::time::{Duration, Instant, SystemTime};

/// Options of the demo.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of measured runs of each load on each wire.
    pub rounds: usize,
    /// Length of one run.
    pub run: Duration,
    /// No new round starts if it would end after this.
    pub limit: Duration,
}

/// Runs the demo between two namespaces of `world`.
///
/// # Errors
/// If a program is missing, a service does not start, or the demo is interrupted. A wire that cannot be
/// made is omitted and reported. A failure on a wire becomes a failed check, and the wire is not used
/// any more.
pub fn run(world: &World, options: &Options, stop: &Stop, watch: &dyn Watch) -> anyhow::Result<Report> {
    let (start, started) = (Instant::now(), httpdate::fmt_http_date(SystemTime::now()));
    let background = baton_apps::measure::Cpu::idle_check(Duration::from_millis(300))?;
    let site = Site::new().context("cannot write the files to serve")?;
    watch.step("setting up wires");
    let (mut links, mut not_shown) = wires::links(world, &site, stop)?;
    let loads = loads::all(options);
    let cells = || links_by_loads(&links, &loads);
    watch.plan((options.rounds + 1) * cells().len() + moves::steps(options) + both_ends::steps(options));
    let mut report = Report {
        started,
        seconds: 0.0,
        machine: Machine::here(background),
        rounds: 0,
        wires: links.iter().map(|link| link.wire.clone()).collect(),
        loads: loads.iter().map(|load| load.info.clone()).collect(),
        cells: cells(),
        moves: None,
        both_ends: None,
        checks: Vec::new(),
        not_shown: Vec::new(),
    };
    for link in &mut links {
        for load in &loads {
            watch.step(&format!("checking {}", link.wire.name));
            if link.broken {
                continue;
            }
            if let Some(check) = checks::run(world, link, load, &site, stop)? {
                link.broken = !check.ok;
                report.checks.push(check);
            }
        }
    }
    watch.step("checking Baton as client");
    match client::check(world, &site, stop) {
        _ if stop.requested() => anyhow::bail!("interrupted"),
        Ok(check) => report.checks.push(check),
        Err(why) => not_shown.push(why),
    }
    report.moves = Some(moves::run(world, &site, options, stop, watch, &mut report.checks)?);
    let found = (&mut report.checks, &mut not_shown);
    report.both_ends = Some(both_ends::run(world, &site, options, stop, watch, found)?);
    let measured = Instant::now();
    for round in 1..=options.rounds {
        let round_time = measured.elapsed() / (round as u32 - 1).max(1);
        if round > 1 && start.elapsed() + round_time > options.limit {
            not_shown.push(format!("more than {} rounds, for lack of time", round - 1));
            break;
        }
        measure_round(world, &mut links, &loads, &mut report, stop, &|what| {
            watch.step(&format!("round {round} of {} · {what}", options.rounds));
        })?;
        report.rounds = round;
    }
    report.not_shown = not_shown;
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

fn links_by_loads(links: &[Link], loads: &[loads::Load]) -> Vec<Cell> {
    let cell = |load: &loads::Load, link: &Link| Cell {
        wire: link.wire.id.clone(),
        load: load.info.id.clone(),
        runs: Vec::new(),
    };
    loads.iter().flat_map(|load| links.iter().map(move |link| cell(load, link))).collect()
}

fn measure_round(
    world: &World,
    links: &mut [Link],
    loads: &[loads::Load],
    report: &mut Report,
    stop: &Stop,
    tell: &dyn Fn(&str),
) -> anyhow::Result<()> {
    for load in loads {
        for link in links.iter_mut() {
            if link.broken {
                continue;
            }
            tell(&format!("{} · {}", load.info.name, link.wire.name));
            let run = match loads::measure(world, link, load, stop) {
                Ok(run) => run,
                Err(error) if stop.requested() => return Err(error),
                Err(error) => {
                    // Another failure would cost as much time, so the wire is omitted from here on.
                    link.broken = true;
                    report.checks.push(Check {
                        wire: link.wire.name.clone(),
                        what: format!("a run of {}", load.info.name),
                        ok: false,
                        seen: format!("{error:#}"),
                    });
                    continue;
                }
            };
            let of_this = |cell: &&mut Cell| cell.wire == link.wire.id && cell.load == load.info.id;
            if let Some(cell) = report.cells.iter_mut().find(of_this) {
                cell.runs.push(run);
            }
        }
    }
    Ok(())
}
