//! Round trips by size over every device (LA table 1).

use super::findings;
use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Need, Row, of};
use crate::workload::generate::generate;
use crate::workload::memory::{Pair, run_pair};
use crate::workload::site::Site;
use crate::workload::wires::links;
use baton_apps::load::{Check, Kind as LoadKind, Load};
use baton_apps::measure::median;
use baton_apps::services::{Kind, Message};
use baton_port::MemoryOptions;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Round trips over every device.
pub const EXPERIMENT: Experiment = Experiment {
    id: "la-round-trips",
    title: "Round trips by size over every device, and in memory",
    needs: &[Need::ROOT],
    axes: &[Axis { name: "message_bytes", about: "bytes of a request and of its answer" }],
    command: "baton lab la",
    run,
};

/// The paper's round trips in microseconds: Ethernet and ATM.
const PAPER: [(usize, [f64; 2]); 8] = [
    (4, [1940.0, 1021.0]),
    (20, [2337.0, 1039.0]),
    (80, [2590.0, 1289.0]),
    (200, [2804.0, 1520.0]),
    (500, [4101.0, 2140.0]),
    (1400, [6554.0, 2976.0]),
    (4000, [13168.0, 5891.0]),
    (8000, [22141.0, 10636.0]),
];

/// A size over a wire.
#[derive(Clone, Copy)]
struct Point<'a> {
    wire: Wire<'a>,
    bytes: usize,
}

#[derive(Clone, Copy)]
enum Wire<'a> {
    Device { name: &'a str, addr: IpAddr },
    Memory,
}

impl Wire<'_> {
    fn name(&self) -> &str {
        match self {
            Wire::Device { name, .. } => name,
            Wire::Memory => "Baton, memory",
        }
    }
}

impl fmt::Display for Point<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes · {}", self.bytes, self.wire.name())
    }
}

fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Findings> {
    let site = Site::new()?;
    let (made, missing) = links(lab.world()?, &site, lab.stop())?;
    for what in missing {
        lab.tell(&format!("not measured: {what}"));
    }
    let devices: Vec<(String, IpAddr)> = made.iter().map(|link| (link.wire.name.clone(), link.addrs[0])).collect();
    let wires = || {
        let devices = devices.iter().map(|(name, addr)| Wire::Device { name, addr: *addr });
        devices.chain([Wire::Memory])
    };
    let sizes: Vec<usize> = extent.values(Axis::MESSAGES.name)?;
    let groups = sizes.iter().map(|&bytes| wires().map(|wire| Point { wire, bytes }).collect()).collect();
    let series = lab.alternate(extent.rounds, groups, |point| round_trip(lab, point, extent.length()))?;
    let found: Vec<(Point<'_>, f64)> =
        series.into_iter().filter_map(|series| Some((series.point, median(&series.runs)?.median))).collect();
    let time = |name: &str, bytes| {
        found.iter().find(|(point, _)| point.wire.name() == name && point.bytes == bytes).map(|(_, time)| *time)
    };
    findings(extent, of("la-table-1", table_1(&found, &time)))
}

/// The mean round trip of a run, in microseconds.
fn round_trip(lab: &Lab<'_>, point: &Point<'_>, length: Duration) -> anyhow::Result<f64> {
    let per = |seconds: f64, requests: u64| seconds * 1e6 / requests.max(1) as f64;
    match point.wire {
        Wire::Device { addr, .. } => {
            let arguments = [
                "--connections=1".to_owned(),
                format!("--size={}", point.bytes),
                format!("--seconds={}", length.as_secs_f64()),
                format!("--warmup={}", (length / 4).as_secs_f64()),
            ];
            let outcome = generate(lab.world()?, addr, LoadKind::Echo, &arguments, lab.stop())?;
            Ok(per(outcome.seconds, outcome.requests))
        }
        Wire::Memory => {
            let mut pair = Pair::with(MemoryOptions::new())?;
            pair.offer(&Kind::Echo, Message(64 << 10))?;
            let load = Load {
                kind: LoadKind::Echo,
                target: SocketAddr::new([10, 77, 0, 2].into(), Kind::Echo.default_port()),
                connections: 1,
                size: point.bytes,
                warmup: length / 4,
                length,
                check: Check::Ends,
                peer_pids: Vec::new(),
                peer_cpu: None,
            };
            let run = run_pair(&mut pair, &load)?;
            Ok(per(run.seconds, run.requests))
        }
    }
}

fn paper(bytes: usize) -> Option<[f64; 2]> {
    PAPER.iter().find(|(size, _)| *size == bytes).map(|(_, values)| *values)
}

fn table_1(found: &[(Point<'_>, f64)], time: &dyn Fn(&str, usize) -> Option<f64>) -> Vec<Row> {
    let mut rows: Vec<Row> = found
        .iter()
        .map(|(Point { wire, bytes }, here)| Row::point(wire.name(), ("bytes", *bytes as f64), "us", None, Some(*here)))
        .collect();
    let mut sizes: Vec<usize> = found.iter().map(|(point, _)| point.bytes).collect();
    sizes.dedup();
    for bytes in sizes {
        let at = ("bytes", bytes as f64);
        let values = paper(bytes);
        for (column, name) in ["4.4BSD, Ethernet", "4.4BSD, ATM"].into_iter().enumerate() {
            rows.push(Row::point(name, at, "us", values.map(|values| values[column]), None));
        }
        let decrease = |first: f64, second: f64| 100.0 * (1.0 - second / first);
        let here = time("Baton, TAP", bytes).zip(time("Baton, AF_XDP", bytes));
        rows.push(Row::point(
            "decrease from the first device to the second (TAP, AF_XDP)",
            at,
            "%",
            values.map(|[first, second]| decrease(first, second)),
            here.map(|(first, second)| decrease(first, second)),
        ));
    }
    rows
}
