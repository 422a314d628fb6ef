//! The chapter about live connections that move: a program's downloads, in the kernel and
//! handed to `baton service`.
//!
//! ```text
//!   namespace "client"                       namespace "server"
//!   curl  -- kernel TCP --+ veth +-- accept ── program of this process ── adopt
//!                                +-- baton service --steer tc | xdp, its engine
//! ```
//!
//! First one download of each kind moves to and fro and loses its engine (`live`); then
//! downloads that stay where they are are measured, in rounds. The services run for the
//! chapter only, so they are in nobody else's figures.

mod live;
mod program;
pub(crate) mod service;

use super::loads;
use super::plan::{configure, veth};
use super::world::World;
use super::{Options, Watch};
use crate::report::moves::{Live, Moves, Way};
use crate::report::{Check, Run, Side, Wire};
use crate::signal::Stop;
use anyhow::{Context, ensure};
use baton_socket::service::Service;
use program::{Order, Program};
use service::Running;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The program's port.
const PORT: u16 = 8080;

/// Time in which a killed engine's connection is to be in the kernel.
const HOME: Duration = Duration::from_secs(1);

/// Length of a download that moves, in measured runs, and at least.
const LIVE_RUNS: u32 = 4;
const LIVE_LEAST: Duration = Duration::from_secs(1);

/// One way to serve, and how the report tells of it.
struct Plan {
    id: &'static str,
    name: &'static str,
    about: &'static str,
}

/// The ways in the order shown, on subnets of their own.
const PLANS: [Plan; 3] = [
    Plan {
        id: "kernel",
        name: "kernel alone",
        about: "veth pair, MTU 1500, all offloads; the program's connections stay where they are.",
    },
    Plan {
        id: "tc",
        name: "Baton tc",
        about: "The same with a service: frames of connections that are away go through a TAP device, those of up \
                to 64 KB whole. The interface keeps its offloads.",
    },
    Plan {
        id: "xdp",
        name: "Baton xdp",
        about: "The same by AF_XDP: every segment is a frame with a checksum in software. The XDP program takes the \
                interface's receive offloads, from connections that stay in the kernel too.",
    },
];

/// The first way's subnet.
const SUBNET: u8 = 50;

/// A way that is up.
struct Place {
    program: Program,
    url: String,
    service: Option<(Running, Service)>,
}

/// Steps that a watcher is told of.
pub fn steps(options: &Options) -> usize {
    PLANS.len() * (options.rounds + 2) - 1
}

/// Runs the chapter; what it checked goes to `checks`.
///
/// # Errors
/// If not even the kernel alone can serve, or the demo is asked to end. A kind of steering
/// that cannot be had says why in its row.
pub fn run(
    world: &World,
    options: &Options,
    stop: &Stop,
    watch: &dyn Watch,
    checks: &mut Vec<Check>,
) -> anyhow::Result<Moves> {
    let home = tempfile::Builder::new().prefix("baton-demo-").tempdir()?;
    let (mut ways, mut places) = (Vec::new(), Vec::new());
    for (plan, subnet) in PLANS.iter().zip(SUBNET..) {
        watch.step(&format!("setting up {}", plan.name));
        let place = plan.set_up(world, subnet, home.path());
        ensure!(!stop.requested(), "interrupted");
        let mut way = plan.way();
        let place = match place {
            Ok(place) => Some(place),
            Err(error) if plan.side() == Side::Kernel => return Err(error),
            Err(error) => {
                way.missing = Some(format!("{error:#}"));
                None
            }
        };
        ways.push(way);
        places.push(place);
    }
    let length = LIVE_LEAST.max(options.run * LIVE_RUNS);
    for (way, place) in ways.iter_mut().zip(&mut places).filter(|(way, _)| way.wire.side == Side::Baton) {
        watch.step(&format!("moving a live download · {}", way.wire.name));
        if let Some(Place { program, url, service: Some((service, _)) }) = place {
            let live = live::run(world, url, program, service, length, stop);
            ensure!(!stop.requested(), "interrupted");
            checks.extend(judge(way, live));
        }
    }
    for round in 1..=options.rounds {
        for (way, place) in ways.iter_mut().zip(&mut places) {
            watch.step(&format!("round {round} of {} · downloads through adopt · {}", options.rounds, way.wire.name));
            let Some(up) = place else { continue };
            let run = measure(world, up, options.run, stop);
            ensure!(!stop.requested(), "interrupted");
            match run {
                Ok(run) => way.runs.push(run),
                Err(error) => {
                    // It would take its time to fail again.
                    *place = None;
                    checks.push(check(way, "a run of downloads", false, format!("{error:#}")));
                }
            }
        }
    }
    Ok(Moves { ways })
}

impl Plan {
    fn side(&self) -> Side {
        if self.id == "kernel" { Side::Kernel } else { Side::Baton }
    }

    fn device(&self) -> String {
        format!("bt-moves-{}", self.id)
    }

    fn way(&self) -> Way {
        let command = match self.side() {
            Side::Kernel => "the program alone".to_owned(),
            Side::Baton => format!("baton service --interface {} --steer {}", self.device(), self.id),
        };
        let baton = self.side() == Side::Baton;
        Way {
            wire: Wire {
                id: self.id.to_owned(),
                side: self.side(),
                name: self.name.to_owned(),
                about: self.about.to_owned(),
                baseline: baton.then(|| PLANS[0].id.to_owned()),
                command,
            },
            runs: Vec::new(),
            live: None,
            missing: None,
        }
    }

    fn set_up(&self, world: &World, subnet: u8, home: &Path) -> anyhow::Result<Place> {
        let device = self.device();
        veth(world, &device, true)?;
        if self.id == "xdp" {
            // AF_XDP cannot tell a checksum that a veth left out from damage.
            world.client.run(&format!("ethtool -K {device} tx off"))?;
        }
        for (namespace, host) in [(&world.server, 2), (&world.client, 1)] {
            configure(namespace, &device, &[format!("10.77.{subnet}.{host}/24")])?;
        }
        let addr = SocketAddr::new(Ipv4Addr::new(10, 77, subnet, 2).into(), PORT);
        let service = match self.side() {
            Side::Kernel => None,
            Side::Baton => {
                let running = Running::start(&world.server, &device, self.id, home)?;
                let service = running.connect().context("connecting to the service")?;
                Some((running, service))
            }
        };
        Ok(Place { program: Program::listen(&world.server, addr)?, url: format!("http://{addr}/"), service })
    }
}

/// What a download that moved proves.
fn judge(way: &mut Way, live: anyhow::Result<Live>) -> Vec<Check> {
    let whole = "a live download that moved to and fro has its digest";
    let home = "its engine killed, it goes on in the kernel within 1 s, then in a new engine";
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

/// One download that stays where it is.
fn measure(world: &World, place: &Place, length: Duration, stop: &Stop) -> anyhow::Result<Run> {
    let over = AtomicBool::new(false);
    let order = Order {
        service: place.service.as_ref().map(|(_, service)| service),
        live: None,
        on_adopted: &|_| {},
        is_enough: &|begun| begun.elapsed() >= length || over.load(Ordering::Relaxed),
    };
    thread::scope(|scope| {
        let serving = scope.spawn(|| place.program.serve(&order, stop));
        let run = loads::curl(world, &place.url, stop);
        over.store(true, Ordering::Relaxed);
        if let (Err(_), Some((service, _))) = (&run, &place.service) {
            // The program waits no longer for a service that may not answer.
            service.kill();
        }
        let served = serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (run, served) = (run?, served.context("serving")?);
        ensure!(run.bytes == served.bytes, "{} of {} bytes came", run.bytes, served.bytes);
        Ok(run)
    })
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
            let checks = judge(&mut PLANS[1].way(), live);
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
