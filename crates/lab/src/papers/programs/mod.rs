//! Unmodified programs under `baton run`, compared with the kernel.
//!
//! Every load runs on every way ([`crate::workload`]) once per round, in an order that rotates from
//! round to round, so that changes on the machine affect all of them. CPU time is that of the whole
//! machine, including the client. A ratio is the median of the rounds' ratios to the kernel over the
//! same frames, with the first and third quartile; with xdp a second ratio is to the kernel with its
//! offloads. One way is the kernel a second time, over another wire: its distance from one is the noise
//! of every ratio.
//!
//! For comparison, the report also has the cost of the bare TAP device for the same direction, without
//! TCP and without steering: a responder that answers frames ([`crate::workload::bare`]). The cost of
//! idle connections ([`crate::workload::idle`]) comes last.
//!
//! [`local`] has both programs in one namespace.

pub mod local;
mod report;

use crate::experiment::{Axis, Experiment, Extent, Lab, Need};
use crate::report::Machine;
use crate::workload::client::{LOADS, Load, Outcome, What};
use crate::workload::generate::generate;
use crate::workload::idle;
use crate::workload::place::{Place, home};
use crate::workload::server::Kind;
use crate::workload::ways::{Over, Placement, WAYS, Way};
use crate::world::serve::Server as Bare;
use crate::world::wire::configure;
use crate::world::{World, find_program};
use anyhow::{Context, ensure};
use baton_apps::fail::usage;
use baton_apps::load;
use baton_apps::measure::Cpu;
use baton_apps::signal::Stop;
pub use report::{BARE, Figure, Point, Report, Series, Share};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Programs under `baton run` beside the kernel alone.
pub const EXPERIMENT: Experiment = Experiment {
    id: "programs",
    title: "Unmodified programs under baton run, next to the same programs on the kernel",
    needs: &[
        Need::ROOT,
        Need { what: "redis", without: Some("leaves out redis and idle connections") },
        Need { what: "nginx and wrk", without: Some("leaves out nginx") },
        Need { what: "iperf3", without: Some("leaves out bulk") },
    ],
    axes: &[
        Axis { name: "load", about: "what the client does" },
        Axis { name: "way", about: "where the engine runs, and how frames reach it" },
    ],
    command: "baton bench programs",
    run: |lab, extent| run(lab, extent, &WAYS)?.findings(),
};

/// The first way's subnet, and the bare device's.
const SUBNET: u8 = 120;
const BARE_SUBNET: u8 = 119;

/// The id of idle connections among the loads.
const IDLE: &str = "idle";

/// Time for which idle connections are measured.
const IDLE_FOR: Duration = Duration::from_secs(5);

/// Bytes per write of iperf3.
const MESSAGE: u32 = 128 << 10;

/// Runs all loads on those of `all` ways that are wanted.
///
/// # Errors
/// If the kernel's ways cannot be set up, a load fails, or the measurement is asked to end.
pub fn run(lab: &Lab<'_>, extent: &Extent, all: &[Way]) -> anyhow::Result<Report> {
    if extent.seconds.fract() != 0.0 {
        return Err(usage(format!("a run cannot take {} s", extent.seconds), "give whole seconds"));
    }
    let (world, ids) = (lab.world()?, extent.values::<String>("load")?);
    let (loads, mut not_here) = loads(&ids);
    let idle = find_program(Kind::Redis.program().0).is_some() && ids.iter().any(|id| id == IDLE);
    ensure!(!loads.is_empty() || idle, "no load matches --only; known: {} {IDLE}", LOADS.map(|load| load.id).join(" "));
    let ways = ways(&extent.values::<String>("way")?, all);
    let known: Vec<&str> = all.iter().map(|way| way.id).collect();
    ensure!(!ways.is_empty(), "no way matches --way; known: {}", known.join(" "));
    let home = home()?;
    let mut places = Vec::new();
    for (way, subnet) in ways.iter().zip(SUBNET..) {
        lab.tell(&format!("setting up {}", way.name));
        match set_up(world, *way, subnet, home.path(), &loads, idle) {
            Ok(place) => places.push(place),
            Err(error) if way.baseline.is_none() => return Err(error),
            Err(error) => not_here.push(format!("{}: {error:#}", way.name)),
        }
    }
    let has_wires = all.iter().any(|way| matches!(way.over, Over::Wire(_)));
    let bare = has_wires.then(|| bare(world, lab.stop())).transpose()?;
    let background = Cpu::idle_check(Duration::from_millis(500))?;
    let series = measure(lab, extent, &loads, &places, bare.is_some())?;
    drop(bare);
    let mut idles = Vec::new();
    for place in places.iter().filter(|_| idle) {
        lab.tell(&format!("{} idle connections · {}", idle::CONNECTIONS, place.way.name));
        idles.push(idle::measure(place, IDLE_FOR).with_context(|| format!("idle connections on {}", place.way.name))?);
    }
    let mut shares = Vec::new();
    for place in places {
        let way = place.way;
        for (kind, account) in place.end()?.into_iter().filter(|_| way.moves()) {
            let moved = if way.placement == Placement::Paired { account.paired } else { account.moved };
            shares.push(Share { way: way.id.into(), program: kind.program().0.into(), moved, all: account.all });
        }
    }
    Ok(Report { machine: Machine::here(background), series, idle: idles, shares, not_here })
}

/// Runs the loads in every place that has them, and on the bare device if that is there and has such a load.
fn measure(
    lab: &Lab<'_>,
    extent: &Extent,
    loads: &[Load],
    places: &[Place<'_>],
    has_bare: bool,
) -> anyhow::Result<Vec<Series>> {
    let (seconds, world) = (extent.seconds as u32, lab.world()?);
    let group = |load: &Load| {
        let ways = places.iter().map(|place| place.way).filter(|way| load.runs_on(way)).map(|way| way.id);
        let ways = ways.chain(bare_kind(load).filter(|_| has_bare).map(|_| BARE));
        ways.map(|way| Point { load: load.id.into(), way: way.into() }).collect()
    };
    // How many requests each load has in each place.
    let mut requests: BTreeMap<(String, String), u64> = BTreeMap::new();
    lab.alternate(extent.rounds, loads.iter().map(group).collect(), |Point { load: id, way }| {
        let load = Load::of(id).context("an unknown load")?;
        let Some(place) = places.iter().find(|place| place.way.id == way) else {
            return run_bare(world, bare_kind(&load).context("no such load")?, seconds, lab.stop());
        };
        load.run(place, seconds, requests.entry((id.clone(), way.clone())).or_default(), lab.stop())
    })
}

/// The requested loads that are possible, and the reasons why others are not.
fn loads(ids: &[String]) -> (Vec<Load>, Vec<String>) {
    let wanted = LOADS.into_iter().filter(|load| ids.iter().any(|id| id == load.id));
    let (found, missing): (Vec<Load>, Vec<Load>) = wanted.partition(|load| load.missing().is_none());
    (found, missing.iter().filter_map(Load::missing).collect())
}

/// The requested ways of `all`, and the kernel ways that they are compared with.
fn ways(ids: &[String], all: &[Way]) -> Vec<Way> {
    let named = |way: &Way| ids.iter().any(|id| id == way.id);
    let is_base = |way: &Way| all.iter().any(|other| named(other) && other.baseline == Some(way.id));
    let any = all.iter().any(named);
    // Also show the cost of losing the offloads.
    all.iter().copied().filter(|way| any && (named(way) || is_base(way) || way.id == "kernel")).collect()
}

fn set_up<'a>(
    world: &'a World,
    way: Way,
    subnet: u8,
    home: &Path,
    loads: &[Load],
    idle: bool,
) -> anyhow::Result<Place<'a>> {
    let mut place = Place::new(world, way, subnet, home)?;
    let kinds = loads.iter().filter(|load| load.runs_on(&way)).map(Load::server);
    place.serve_all(kinds.chain(idle.then_some(Kind::Redis)))?;
    Ok(place)
}

/// The load for the bare device that corresponds to a load, if there is one.
fn bare_kind(load: &Load) -> Option<load::Kind> {
    match load.what {
        What::Iperf { reverse: true, connections: 1 } => Some(load::Kind::Receive),
        What::Iperf { reverse: false, connections: 1 } => Some(load::Kind::Send),
        What::PingPong => Some(load::Kind::Echo),
        _ => None,
    }
}

fn bare_address() -> IpAddr {
    IpAddr::from([10, 77, BARE_SUBNET, 2])
}

fn bare(world: &World, stop: &Stop) -> anyhow::Result<Bare> {
    let device = format!("bt-{BARE_SUBNET}");
    let arguments = [format!("tap:{device}"), bare_address().to_string()];
    let bare = Bare::start_as(&world.server, "bare", &arguments, stop)?;
    world.server.ip(&format!("link set {device} netns {}", world.client.name()))?;
    configure(&world.client, &device, &[format!("10.77.{BARE_SUBNET}.1/24")])?;
    Ok(bare)
}

fn run_bare(world: &World, kind: load::Kind, seconds: u32, stop: &Stop) -> anyhow::Result<Outcome> {
    let size = if kind == load::Kind::Echo { 1 } else { MESSAGE };
    let arguments = [
        "--connections=1".to_owned(),
        format!("--size={size}"),
        format!("--seconds={seconds}"),
        "--warmup=0.2".to_owned(),
        // The bare device does not send the ramp.
        "--unchecked".to_owned(),
    ];
    Ok(generate(world, bare_address(), kind, &arguments, stop).context("the bare device")?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_comes_with_its_kernels() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            super::ways(&names, &WAYS).iter().map(|way| way.id).collect::<Vec<_>>()
        };
        assert_eq!(of(&["service-xdp"]), ["kernel", "kernel-xdp", "service-xdp"]);
        assert_eq!(of(&["unmoved", "again"]), ["kernel", "again", "unmoved"]);
        assert_eq!(of(&WAYS.map(|way| way.id)).len(), WAYS.len());
        assert!(of(&["none"]).is_empty());
    }

    #[test]
    fn the_whole_plan_has_every_load_and_every_way() {
        let plan = crate::experiment::plan("whole").unwrap();
        let values = |axis| plan[EXPERIMENT.id].values::<String>(axis).unwrap();
        assert_eq!(values("way"), WAYS.map(|way| way.id));
        let of_local = ["iperf3-1", "iperf3-16"];
        let loads = LOADS.map(|load| load.id).into_iter().filter(|id| !of_local.contains(id));
        assert_eq!(values("load"), loads.chain([IDLE]).collect::<Vec<_>>());
    }
}
