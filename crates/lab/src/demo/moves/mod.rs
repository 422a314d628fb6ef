//! The main chapter of the demo: nginx under `baton run`, compared with nginx on the kernel's TCP.
//!
//! ```text
//!   namespace "client"                       namespace "server"
//!   curl, wrk  -- kernel TCP --+ veth +-- nginx
//!                              + veth +-- baton run -- nginx, for each placement and kind
//! ```
//!
//! First a download on each way moves back and forth and loses its engine (`live`). Then `wrk` measures
//! nginx on every way in rounds. Ways, servers and clients come from [`crate::workload`]. They run only
//! during this chapter, so they do not affect other results.

mod live;

use super::Options;
use crate::report::moves::{Live, Moves, Way};
use crate::report::{Check, Run, Side, Wire};
use crate::watch::Watch;
use crate::workload::account::Account;
use crate::workload::client::{Load, Outcome};
use crate::workload::place::{Place, home};
use crate::workload::server::{Kind, LIVE_RATE};
use crate::workload::site::Site;
use crate::workload::ways::{Placement, Steer, WAYS};
use crate::world::{World, find_program};
use anyhow::ensure;
use baton_apps::signal::Stop;
use std::time::Duration;

/// Time within which the connection of a killed engine must be in the kernel.
const HOME: Duration = Duration::from_secs(1);

/// Most measured runs of a load on a way; each takes a second.
const ROUNDS: usize = 3;

/// The loads: whole files, and requests.
const LOADS: [&str; 2] = ["nginx-1m", "nginx-1k"];

/// The first way's subnet.
const SUBNET: u8 = 50;

/// The ways in the order of display, without those that move nothing under `baton run`, that it chooses by
/// default, or that only show the noise.
fn ways() -> impl Iterator<Item = crate::workload::ways::Way> {
    let stays = |way: &crate::workload::ways::Way| !matches!(way.placement, Placement::Unmoved | Placement::Chosen);
    WAYS.into_iter().filter(move |way| stays(way) && !way.is_control())
}

/// Steps that a watcher is told of.
pub fn steps(options: &Options) -> usize {
    let moving = ways().filter(crate::workload::ways::Way::has_engine_process).count();
    ways().count() * (rounds(options) * LOADS.len() + 1) + moving
}

fn rounds(options: &Options) -> usize {
    options.rounds.min(ROUNDS)
}

/// Runs the chapter, and adds its checks to `checks`.
///
/// # Errors
/// If even the kernel alone cannot serve, or if the demo is asked to end. A way that is not possible
/// gives its reason in its row.
pub fn run(
    world: &World,
    site: &Site,
    options: &Options,
    stop: &Stop,
    watch: &dyn Watch,
    checks: &mut Vec<Check>,
) -> anyhow::Result<Moves> {
    let home = home()?;
    std::os::unix::fs::symlink(site.dir(), home.path().join("live"))?;
    let missing = [("nginx", "nginx"), ("wrk", "wrk")].into_iter().find(|(name, _)| find_program(name).is_none());
    let (mut ways, mut places) = (Vec::new(), Vec::new());
    for (plan, subnet) in ways_with_subnets() {
        watch.step(&format!("setting up nginx · {}", plan.name));
        let mut way = way(&plan);
        let place = match missing {
            Some((name, package)) => Err(anyhow::anyhow!("no program {name}: apt-get install {package}")),
            None => Place::new(world, plan, subnet, home.path()).and_then(|mut place| {
                place.serve(Kind::Nginx)?;
                Ok(place)
            }),
        };
        ensure!(!stop.requested(), "interrupted");
        way.missing = place.as_ref().err().map(|error| format!("{error:#}"));
        ways.push(way);
        places.push(place.ok());
    }
    let length = Duration::from_secs_f64(Site::BYTES as f64 / LIVE_RATE as f64);
    for (way, place) in ways.iter_mut().zip(&places) {
        let Some(place) = place.as_ref().filter(|place| place.way.has_engine_process()) else { continue };
        watch.step(&format!("moving a live download · {}", way.wire.name));
        let url = format!("http://{}:{}/live/{}", place.address, Kind::Nginx.port(), Site::NAME);
        if let Some(service) = place.service() {
            let live = live::run(world, &url, site, service, length, stop);
            ensure!(!stop.requested(), "interrupted");
            checks.extend(judge(way, live));
        }
    }
    for round in 1..=rounds(options) {
        for load in LOADS.map(|id| Load::of(id).expect("it is one of them")) {
            for (way, place) in ways.iter_mut().zip(&mut places) {
                let what = format!("round {round} of {} · {} · {}", rounds(options), load.name, way.wire.name);
                watch.step(&what);
                measure(way, place, &load, stop, checks)?;
            }
        }
    }
    for (way, place) in ways.iter().zip(places) {
        let Some(place) = place.filter(|place| place.way.moves()) else { continue };
        checks.extend(place.end()?.into_iter().map(|(_, Account { moved, all, .. })| {
            let seen = format!("{moved} of {all} connections");
            check(way, "nginx's connections are on the engine", moved == all && all > 0, seen)
        }));
    }
    Ok(Moves { ways })
}

fn ways_with_subnets() -> impl Iterator<Item = (crate::workload::ways::Way, u8)> {
    ways().zip(SUBNET..)
}

/// Describes a way for the report.
fn way(plan: &crate::workload::ways::Way) -> Way {
    let about = match (plan.moves(), plan.steer().unwrap_or(Steer::Tc)) {
        (false, Steer::Tc) => "veth pair, MTU 1500, all offloads.",
        (false, Steer::Xdp) => {
            "The same with an XDP program on the interface that passes everything, which takes the receive offloads, and \
             without segmentation offload when sending."
        }
        (true, Steer::Tc) => {
            "Frames of connections on the engine go through a TAP device, those of up to 64 KB whole. The interface \
             keeps its offloads."
        }
        (true, Steer::Xdp) => "By AF_XDP: every segment is a frame with a checksum in software.",
    };
    Way {
        wire: Wire {
            id: plan.id.to_owned(),
            side: if plan.moves() { Side::Baton } else { Side::Kernel },
            name: plan.name.to_owned(),
            about: about.to_owned(),
            baseline: plan.baseline.map(str::to_owned),
            command: format!("{}nginx", plan.prefix()),
        },
        runs: Vec::new(),
        requests: Vec::new(),
        live: None,
        missing: None,
    }
}

/// Runs a load once. A way on which it fails is not used any more.
fn measure(
    way: &mut Way,
    place: &mut Option<Place<'_>>,
    load: &Load,
    stop: &Stop,
    checks: &mut Vec<Check>,
) -> anyhow::Result<()> {
    let Some(up) = place else { return Ok(()) };
    let run = load.run(up, 1, &mut 0, stop);
    ensure!(!stop.requested(), "interrupted");
    match run {
        Ok(run) if load.id == LOADS[0] => way.runs.push(as_run(run, 1 << 20)),
        Ok(run) => way.requests.push(as_run(run, 1 << 10)),
        Err(error) => {
            // Another failure would cost as much time.
            *place = None;
            checks.push(check(way, &format!("a run of {}", load.name), false, format!("{error:#}")));
        }
    }
    Ok(())
}

fn as_run(run: Outcome, file: u64) -> Run {
    let Outcome { seconds, requests, cpu, .. } = run;
    Run { seconds, requests, bytes: requests * file, cpu, ..Run::default() }
}

/// The checks of a download that moved.
fn judge(way: &mut Way, live: anyhow::Result<Live>) -> Vec<Check> {
    let whole = "a live download that moved back and forth has the right digest";
    let home = "after its engine is killed, it continues in the kernel within 1 s, then in a new engine";
    let live = match live {
        Ok(live) => live,
        Err(error) => return vec![check(way, whole, false, format!("{error:#}"))],
    };
    let bytes = if live.bytes == live.sent { String::new() } else { format!(" of {}", live.sent) };
    let digest = format!("{}{bytes} bytes, {} moves, {}…", live.bytes, live.moves, &live.sha256[..8]);
    let killed = &live.killed;
    let times = format!("{} ms, {} ms", killed.home_us.div_ceil(1000), killed.again_us.div_ceil(1000));
    let in_time = u128::from(killed.home_us) <= HOME.as_micros();
    let checks = vec![check(way, whole, live.equal, digest), check(way, home, in_time, times)];
    way.live = Some(live);
    checks
}

fn check(way: &Way, what: &str, ok: bool, seen: String) -> Check {
    Check { wire: way.wire.name.clone(), what: what.to_owned(), ok, seen }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::moves::Killed;

    #[test]
    fn another_digest_and_a_late_return_are_checks_that_failed() {
        let live = Live {
            seconds: 1.0,
            bytes: 7,
            sent: 8,
            sha256: "0".repeat(64),
            equal: true,
            moves: 2,
            pause_us: 1,
            gap_us: 1,
            killed: Killed { at_seconds: 0.5, home_us: 1_000_000, again_us: 2_000_000, gap_us: 1 },
            slice_seconds: 0.01,
            slices: Vec::new(),
        };
        let verdicts = |live: anyhow::Result<Live>| {
            let checks = judge(&mut way(&crate::workload::ways::Way::of("service-tc").unwrap()), live);
            checks.iter().map(|check| (check.ok, check.seen.clone())).collect::<Vec<_>>()
        };
        let whole = (true, "7 of 8 bytes, 2 moves, 00000000…".to_owned());
        assert_eq!(verdicts(Ok(live.clone())), [whole.clone(), (true, "1000 ms, 2000 ms".to_owned())]);
        let unequal = Live { equal: false, ..live.clone() };
        assert!(!verdicts(Ok(unequal))[0].0);
        let killed = Killed { home_us: 1_000_001, ..live.killed.clone() };
        assert_eq!(verdicts(Ok(Live { killed, ..live })), [whole, (false, "1001 ms, 2000 ms".to_owned())]);
        assert_eq!(verdicts(Err(anyhow::anyhow!("gone"))), [(false, "gone".to_owned())]);
    }
}
