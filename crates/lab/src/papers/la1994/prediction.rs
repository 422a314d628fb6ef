//! Round trips with header prediction and without it (LA §3: table 4, figure 1).

use super::trips::{self, MTU, Trips, Variant};
use super::{TRIPS, findings};
use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Row, of};
use crate::workload::memory::{Pair, run_pair};
use baton_apps::load::{Check, Kind as LoadKind, Load};
use baton_apps::services::{Kind, Message};
use baton_engine::engine::EngineConfig;
use baton_port::MemoryOptions;
use baton_tcp::config::Prediction;
use std::fmt;
use std::net::SocketAddr;

/// Round trips with header prediction and without it.
pub const EXPERIMENT: Experiment = Experiment {
    id: "la-prediction",
    title: "Round trips with header prediction, by Baton's rule and 4.4BSD's, and without",
    needs: &[],
    axes: &[Axis { name: "message_bytes", about: "bytes of a request and of its answer" }, TRIPS],
    command: "baton lab la",
    run,
};

/// The paper's round trips in microseconds: without prediction, and with 4.4BSD's.
const PAPER: [(usize, [f64; 2]); 8] = [
    (4, [1110.0, 1021.0]),
    (20, [1127.0, 1039.0]),
    (80, [1324.0, 1289.0]),
    (200, [1560.0, 1520.0]),
    (500, [2186.0, 2140.0]),
    (1400, [2962.0, 2976.0]),
    (4000, [5950.0, 5891.0]),
    (8000, [11477.0, 10636.0]),
];

/// Kinds of segments by the name of their counters.
const KINDS: [(&str, &str); 3] = [("data", "data alone"), ("ack", "ACK alone"), ("data_ack", "data with ACK")];

/// A kind with a smaller share of the segments than this, in percent, is that of timers and of the handshake.
const RARE: f64 = 2.0;

/// Variants in the order of the table.
const VARIANTS: [Predicts; 4] = [
    Predicts { rule: Prediction::Off, runs: false, name: "no prediction" },
    Predicts { rule: Prediction::Bsd, runs: false, name: "4.4BSD's rule" },
    Predicts { rule: Prediction::Full, runs: false, name: "Baton's rule" },
    Predicts { rule: Prediction::Full, runs: true, name: "Baton's rule, with runs" },
];

/// A rule of both engines.
#[derive(Clone, Copy)]
struct Predicts {
    rule: Prediction,
    /// Segments that arrive together are handled as one; otherwise each alone, as in 4.4BSD.
    runs: bool,
    name: &'static str,
}

impl Variant for Predicts {
    fn tune(self, config: &mut EngineConfig) {
        config.tcp.prediction = self.rule;
        if !self.runs {
            config.coalesce = 1;
        }
    }
}

impl fmt::Display for Predicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Findings> {
    let mut sizes = Vec::new();
    for bytes in extent.values(Axis::MESSAGES.name)? {
        sizes.push((bytes, trips::alternate(lab, extent, bytes, &VARIANTS)?));
    }
    let mut table = table_4(&sizes);
    for variant in VARIANTS {
        lab.step(&format!("one way · {variant}"))?;
        table.extend(one_way(variant, extent)?);
    }
    findings(extent, [of("la-table-4", table), of("la-figure-1", figure_1(&sizes))].concat())
}

fn table_4(sizes: &[(usize, Vec<Trips>)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (bytes, found) in sizes {
        let (at, paper) = (("bytes", *bytes as f64), paper(*bytes));
        let Some(off) = found.first() else { continue };
        for (trips, variant) in found.iter().zip(&VARIANTS) {
            let mut row = |what: &str, unit, paper, here: Option<f64>| {
                rows.push(Row::point(&format!("{variant}{what}"), at, unit, paper, here));
            };
            row("", "us", paper_of(variant, paper), trips.micros());
            if variant.rule != Prediction::Off {
                let decrease = paper.map(|[off, on]| 100.0 * (1.0 - on / off));
                row(": decrease", "%", decrease.filter(|_| is_bsd(variant)), trips.decrease(off));
            }
            row(": a packet", "ns", None, trips.packet_nanos());
            row(": decisions, a packet", "ns", None, trips.decision_nanos());
            if variant.rule != Prediction::Off {
                // The paper says where the check succeeds (§3): for half the packets of 8,000 bytes.
                let half = if *bytes == 8000 { 50.0 } else { 0.0 };
                row(": packets predicted", "%", paper.filter(|_| is_bsd(variant)).map(|_| half), predicted(trips));
                for (kind, name) in KINDS {
                    if let Some(share) = predicted_of(trips, kind) {
                        row(&format!(": {name} predicted"), "%", None, Some(share));
                    }
                }
            }
        }
    }
    rows
}

fn figure_1(sizes: &[(usize, Vec<Trips>)]) -> Vec<Row> {
    let points = sizes.iter().flat_map(|(bytes, found)| {
        found.iter().zip(&VARIANTS).map(|(trips, variant)| {
            let paper = paper_of(variant, paper(*bytes));
            Row::point(variant.name, ("bytes", *bytes as f64), "us", paper, trips.micros())
        })
    });
    points.collect()
}

fn paper(bytes: usize) -> Option<[f64; 2]> {
    PAPER.iter().find(|(size, _)| *size == bytes).map(|(_, values)| *values)
}

fn is_bsd(variant: &Predicts) -> bool {
    variant.rule == Prediction::Bsd
}

/// The paper's round trip by a variant's rule.
fn paper_of(variant: &Predicts, paper: Option<[f64; 2]>) -> Option<f64> {
    let [off, on] = paper?;
    match variant.rule {
        Prediction::Off => Some(off),
        Prediction::Bsd => Some(on),
        _ => None,
    }
}

/// The share of all segments that were predicted, in percent.
fn predicted(trips: &Trips) -> Option<f64> {
    let hits: u64 = KINDS.iter().map(|(kind, _)| trips.counter(&format!("tce.{kind}_predicted"))).sum();
    share(hits, segments(trips))
}

/// The share of a kind's segments that were predicted, in percent; `None` if there are hardly any.
fn predicted_of(trips: &Trips, kind: &str) -> Option<f64> {
    let of_kind = trips.counter(&format!("tce.{kind}_segments"));
    share(of_kind, segments(trips)).filter(|share| *share > RARE)?;
    share(trips.counter(&format!("tce.{kind}_predicted")), of_kind)
}

/// Segments of all kinds.
fn segments(trips: &Trips) -> u64 {
    KINDS.iter().map(|(kind, _)| trips.counter(&format!("tce.{kind}_segments"))).sum()
}

/// One number in percent of another.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// The shares that are predicted of bulk data from one engine to the other, for which 4.4BSD made its rule.
fn one_way(variant: Predicts, extent: &Extent) -> anyhow::Result<Vec<Row>> {
    if variant.rule == Prediction::Off {
        return Ok(Vec::new());
    }
    let mut pair = Pair::tuned(MemoryOptions::new().mtu(MTU), |config| variant.tune(config))?;
    pair.offer(&Kind::Discard, Message::default())?;
    let load = Load {
        kind: LoadKind::Send,
        target: SocketAddr::new([10, 77, 0, 2].into(), Kind::Discard.default_port()),
        connections: 1,
        size: 0,
        warmup: extent.length() / 4,
        length: extent.length(),
        check: Check::None,
        peer_pids: Vec::new(),
        peer_cpu: None,
    };
    run_pair(&mut pair, &load)?;
    let counted = Trips::counting(&mut pair);
    let shares = KINDS.iter().filter_map(|(kind, name)| Some((name, predicted_of(&counted, kind)?)));
    let row = |(name, share)| Row::new(format!("one way, {variant}: {name} predicted"), "%", None, Some(share));
    Ok(shares.map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan;
    use baton_apps::signal::Stop;

    /// The rows of the quick plan.
    fn rows() -> Vec<(&'static str, Row)> {
        let stop = Stop::default();
        let extent = plan("quick").unwrap().remove(EXPERIMENT.id).unwrap();
        run(&Lab::in_memory(&stop, &|_| ()), &extent).unwrap().rows
    }

    #[test]
    fn only_the_rule_of_bsd_misses_answers_that_acknowledge_their_requests() {
        let rows = rows();
        let here =
            |name: &str| rows.iter().find(|(_, row)| row.name == name).unwrap_or_else(|| panic!("{name}")).1.here;
        for bytes in [4, 500] {
            let predicted = |rule: &str| here(&format!("{rule}: data with ACK predicted, bytes {bytes}")).unwrap();
            assert_eq!(predicted("4.4BSD's rule"), 0.0, "{bytes} bytes");
            assert!(predicted("Baton's rule") > 95.0, "{bytes} bytes");
        }
        for rule in ["4.4BSD's rule", "Baton's rule"] {
            assert!(here(&format!("one way, {rule}: data alone predicted")).unwrap() > 50.0, "{rule}");
        }
        assert!(rows.iter().filter(|(id, _)| *id == "la-figure-1").all(|(_, row)| row.here > Some(0.0)));
    }
}
