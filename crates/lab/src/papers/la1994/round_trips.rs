//! Round trips by size over every device (LA table 1), and without checksums (table 7).

use super::findings;
use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Need, Row, of};
use crate::report::Run;
use crate::workload::generate::generate;
use crate::workload::memory::{Pair, run_pair};
use crate::workload::site::Site;
use crate::workload::wires::links;
use anyhow::ensure;
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
    title: "Round trips by size over every device, and in memory without checksums",
    needs: &[Need::ROOT],
    axes: &[Axis { name: "message_bytes", about: "bytes of a request and of its answer" }],
    command: "baton lab la",
    run,
};

/// The paper's round trips in microseconds: Ethernet, ATM, and ATM without TCP's checksum.
const PAPER: [(usize, [f64; 3]); 8] = [
    (4, [1940.0, 1021.0, 1020.0]),
    (20, [2337.0, 1039.0, 1020.0]),
    (80, [2590.0, 1289.0, 1233.0]),
    (200, [2804.0, 1520.0, 1392.0]),
    (500, [4101.0, 2140.0, 1808.0]),
    (1400, [6554.0, 2976.0, 2083.0]),
    (4000, [13168.0, 5891.0, 3633.0]),
    (8000, [22141.0, 10636.0, 6233.0]),
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
    Memory(Sums),
}

/// The check of a segment's bytes on a wire in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sums {
    /// TCP's checksum.
    Checked,
    /// The device: neither engine sums.
    Offloaded,
    /// Nobody, as both engines agreed (`baton_wire::tcp::unsummed`).
    Negotiated,
}

const SUMMED: Wire<'static> = Wire::Memory(Sums::Checked);
const OFFLOADED: Wire<'static> = Wire::Memory(Sums::Offloaded);
const NEGOTIATED: Wire<'static> = Wire::Memory(Sums::Negotiated);

impl Wire<'_> {
    fn name(&self) -> &str {
        match self {
            Wire::Device { name, .. } => name,
            Wire::Memory(Sums::Checked) => "Baton, memory",
            Wire::Memory(Sums::Offloaded) => "Baton, memory, no checksum (device)",
            Wire::Memory(Sums::Negotiated) => "Baton, memory, no checksum (agreed)",
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
        devices.chain([SUMMED, OFFLOADED, NEGOTIATED])
    };
    let sizes: Vec<usize> = extent.values(Axis::MESSAGES.name)?;
    let groups = sizes.iter().map(|&bytes| wires().map(|wire| Point { wire, bytes }).collect()).collect();
    let series = lab.alternate(extent.rounds, groups, |point| round_trip(lab, point, extent.length()))?;
    let found: Vec<(Point<'_>, f64)> =
        series.into_iter().filter_map(|series| Some((series.point, median(&series.runs)?.median))).collect();
    let time = |name: &str, bytes| {
        found.iter().find(|(point, _)| point.wire.name() == name && point.bytes == bytes).map(|(_, time)| *time)
    };
    findings(extent, [of("la-table-1", table_1(&found, &time)), of("la-table-7", table_7(&sizes, &time))].concat())
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
        Wire::Memory(sums) => {
            let run = in_memory(sums, point.bytes, length)?;
            Ok(per(run.seconds, run.requests))
        }
    }
}

/// Round trips between two engines on a wire in memory.
fn in_memory(sums: Sums, bytes: usize, length: Duration) -> anyhow::Result<Run> {
    let options = MemoryOptions::new().checksum_offload(sums == Sums::Offloaded);
    let mut pair = Pair::tuned(options, |config| config.tcp.unsummed = sums == Sums::Negotiated)?;
    pair.offer(&Kind::Echo, Message(64 << 10))?;
    let load = Load {
        kind: LoadKind::Echo,
        target: SocketAddr::new([10, 77, 0, 2].into(), Kind::Echo.default_port()),
        connections: 1,
        size: bytes,
        warmup: length / 4,
        length,
        check: Check::Ends,
        peer_pids: Vec::new(),
        peer_cpu: None,
    };
    let run = run_pair(&mut pair, &load)?;
    let counters = pair.engine_stats().map(|stats| stats.counters).unwrap_or_default();
    let unsummed = counters.get("streamer.rx_unsummed").copied().unwrap_or(0);
    let agreed = unsummed > run.requests / 2;
    ensure!(agreed == (sums == Sums::Negotiated), "{unsummed} segments without checksums in {} requests", run.requests);
    Ok(run)
}

fn paper(bytes: usize) -> Option<[f64; 3]> {
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
            values.map(|[first, second, _]| decrease(first, second)),
            here.map(|(first, second)| decrease(first, second)),
        ));
    }
    rows
}

fn table_7(sizes: &[usize], time: &dyn Fn(&str, usize) -> Option<f64>) -> Vec<Row> {
    let mut rows = Vec::new();
    for &bytes in sizes {
        let (at, values) = (("bytes", bytes as f64), paper(bytes));
        let sum = time(SUMMED.name(), bytes);
        rows.push(Row::point("checksum", at, "us", values.map(|[_, sum, _]| sum), sum));
        for (how, wire) in [("by the device", OFFLOADED), ("by agreement", NEGOTIATED)] {
            let none = time(wire.name(), bytes);
            let saving = |sum: f64, none: f64| 100.0 * (1.0 - none / sum);
            rows.push(Row::point(&format!("no checksum, {how}"), at, "us", values.map(|[_, _, none]| none), none));
            let paper = values.map(|[_, sum, none]| saving(sum, none));
            let here = sum.zip(none).map(|(sum, none)| saving(sum, none));
            rows.push(Row::point(&format!("saving, {how}"), at, "%", paper, here));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether sums are left out is checked in each run, by the counters of the engine.
    #[test]
    fn sums_are_left_out_only_where_they_are_to_be() {
        for sums in [Sums::Checked, Sums::Offloaded, Sums::Negotiated] {
            let run = in_memory(sums, 500, Duration::from_millis(50)).unwrap();
            assert!(run.requests > 0);
        }
    }

    #[test]
    fn both_ways_to_leave_sums_out_are_beside_the_papers() {
        let time = |name: &str, _| match name {
            "Baton, memory" => Some(4.0),
            "Baton, memory, no checksum (device)" => Some(3.0),
            "Baton, memory, no checksum (agreed)" => Some(2.0),
            _ => None,
        };
        let rows = table_7(&[8000], &time);
        let saving = |how: &str| rows.iter().find(|row| row.name == format!("saving, {how}, bytes 8000")).unwrap();
        assert_eq!((saving("by the device").here, saving("by agreement").here), (Some(25.0), Some(50.0)));
        assert!(rows.iter().all(|row| row.paper.is_some()) && rows.len() == 5);
    }
}
