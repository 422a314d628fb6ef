//! Rows for the tables and figures of RA and RSC that the chapters repeat.

use super::Contender::{self, Limit, Rsc, Stretch};
use super::routines::{Costs, Group, stack};
use super::{Figure, Results};
use crate::experiment::{Row, Rows, of};

/// Payload of a full segment, in bytes.
const SEGMENT: f64 = 1448.0;

/// The rows that the chapters find.
pub fn rows(results: &Results) -> Rows {
    [
        of("ra-figure-2", figure_2(results)),
        of("ra-figure-3", figure_3(results)),
        of("ra-figure-4", figure_4(results)),
        of("ra-figure-7", figure_7(results)),
        of("ra-figure-9", figure_9(results)),
        of("ra-figure-11", figure_11(results)),
        of("ra-figure-12", figure_12(results)),
        of("ra-table-1", table_1(results)),
        of("rsc-figure-10", rsc_figure_10(results)),
        of("rsc-figure-12", rsc_figure_12(results)),
    ]
    .concat()
}

fn costs(results: &Results, wanted: Contender) -> Option<&Costs> {
    results.routines.iter().find(|(contender, _)| *contender == wanted).map(|(_, costs)| costs)
}

/// The share of some groups in the receiver's time without aggregation, in percent.
fn share(results: &Results, groups: &[Group]) -> Option<f64> {
    let costs = costs(results, Limit(1))?;
    let part: f64 = groups.iter().filter_map(|group| costs.get(group)).sum();
    Some(100.0 * part / costs.values().sum::<f64>())
}

/// Rows of shares; none if nothing was sampled.
fn shares(results: &Results, wanted: &[(&str, &[Group], f64)]) -> Vec<Row> {
    let row = |&(name, groups, paper): &(&str, &[Group], f64)| {
        Some(Row::new(name, "% of CPU time", Some(paper), Some(share(results, groups)?)))
    };
    wanted.iter().filter_map(row).collect()
}

const STACK: &[Group] = &[Group::Rx, Group::Tx, Group::Buffer, Group::NonProto];

fn figure_2(results: &Results) -> Vec<Row> {
    let per_packet = &[Group::Rx, Group::Tx, Group::Buffer, Group::NonProto, Group::Driver];
    shares(results, &[("per-byte", &[Group::PerByte], 14.0), ("per-packet", per_packet, 70.0)])
}

fn figure_3(results: &Results) -> Vec<Row> {
    shares(
        results,
        &[
            ("per-byte", &[Group::PerByte], 17.0),
            ("rx and tx", &[Group::Rx, Group::Tx], 21.0),
            ("buffer and non-proto", &[Group::Buffer, Group::NonProto], 25.0),
            ("driver", &[Group::Driver], 21.0),
        ],
    )
}

fn figure_4(results: &Results) -> Vec<Row> {
    shares(results, &[("rx, tx, buffer and non-proto", STACK, 48.0), ("per-byte", &[Group::PerByte], 16.0)])
}

fn figure_7(results: &Results) -> Vec<Row> {
    let per_cpu = |contender| {
        let series = results.find("receiver", contender)?;
        Some(series.median(Figure::PerReceiverSecond)?.median * 1000.0)
    };
    let gain = |chapter, contender, figure| {
        let series = results.find(chapter, contender)?;
        Some(results.gain(series, figure)? * 100.0)
    };
    let smp = |contender| gain("receiver", contender, Figure::PerReceiverSecond);
    let both = |contender| gain("limit", contender, Figure::PerCpuSecond);
    vec![
        Row::new("SMP, original", "Mb/CPU s", Some(2988.0), per_cpu(Limit(1))),
        Row::new("SMP, optimized", "Mb/CPU s", Some(4660.0 / 0.93), per_cpu(Limit(20))),
        Row::new("SMP, gain", "%", Some(67.0), smp(Limit(20))),
        Row::new("SMP, gain without ACK offload", "%", Some(36.0), smp(Stretch(20))),
        Row::new("gain, with the sender's CPU time", "%", None, both(Limit(20))),
        Row::new("gain without ACK offload, with the sender's CPU time", "%", None, both(Stretch(20))),
        Row::new("UP, original", "Mb/CPU s", Some(3452.0), None),
        Row::new("UP, gain", "%", Some(45.0), None),
        Row::new("UP, gain without ACK offload", "%", Some(26.0), None),
        Row::new("Xen, original", "Mb/CPU s", Some(1088.0), None),
        Row::new("Xen, gain", "%", Some(86.0), None),
        Row::new("Xen, gain without ACK offload", "%", Some(45.0), None),
    ]
}

fn figure_9(results: &Results) -> Vec<Row> {
    let (Some(off), Some(limit)) = (costs(results, Limit(1)), costs(results, Limit(20))) else { return Vec::new() };
    let factor = Row::new("stack, divided by", "times", Some(5.5), Some(stack(off) / stack(limit)));
    let group = |group: &Group| {
        let row = |of: &Costs, name| {
            Row::new(format!("{}, {name}", group.name()), "ns/segment", None, Some(*of.get(group).unwrap_or(&0.0)))
        };
        [row(off, "original"), row(limit, "optimized")]
    };
    [factor].into_iter().chain(Group::ALL.iter().flat_map(group)).collect()
}

fn figure_11(results: &Results) -> Vec<Row> {
    let row = |limit: u32| {
        let cost = results.find("limit", Limit(limit))?.median(Figure::CpuPerByte)?.median * SEGMENT;
        Some(Row::point("CPU time", ("limit", f64::from(limit)), "ns/segment", None, Some(cost)))
    };
    let mut rows: Vec<Row> = [1, 2, 3, 5, 10, 20, 32, 44].into_iter().filter_map(row).collect();
    if let Some(fit) = results.fit() {
        rows.push(Row::new("fit of x + y/k, R²", "", None, Some(fit.r2)));
    }
    rows
}

fn figure_12(results: &Results) -> Vec<Row> {
    let row = |series| {
        let gain = results.gain(series, Figure::PerReceiverSecond)? * 100.0;
        let connections = series.point.work.connections;
        let paper = (connections == 400).then_some(40.0);
        Some(Row::point("gain", ("connections", connections as f64), "%", paper, Some(gain)))
    };
    results.all("connections", Limit(20)).filter_map(row).collect()
}

fn table_1(results: &Results) -> Vec<Row> {
    let rate = |contender| Some(results.find("latency", contender)?.median(Figure::Requests)?.median);
    let (off, limit) = (rate(Limit(1)), rate(Limit(20)));
    let ratio = off.zip(limit).map(|(off, limit)| limit / off);
    vec![
        Row::new("SMP, original", "requests/s", Some(7970.0), off),
        Row::new("SMP, optimized", "requests/s", Some(7985.0), limit),
        Row::new("SMP, optimized over original", "times", Some(7985.0 / 7970.0), ratio),
        Row::new("UP, original", "requests/s", Some(7874.0), None),
        Row::new("UP, optimized", "requests/s", Some(7894.0), None),
        Row::new("Xen, original", "requests/s", Some(6965.0), None),
        Row::new("Xen, optimized", "requests/s", Some(6953.0), None),
    ]
}

/// Bytes of a message and CPU time saved, in percent, with at most so many segments in a run.
fn saved(results: &Results, limit: u32) -> Vec<(f64, f64)> {
    let series = results.all("messages", Rsc(limit));
    let point = |series| {
        let gain = results.gain(series, Figure::PerCpuSecond)?;
        Some((series.point.work.size as f64, 100.0 * (1.0 - 1.0 / (1.0 + gain))))
    };
    series.filter_map(point).collect()
}

fn rsc_figure_10(results: &Results) -> Vec<Row> {
    let line = |limit: u32| {
        let name = format!("RSC_{limit}");
        let row = move |(bytes, saved)| Row::point(&name, ("bytes", bytes), "% of CPU time saved", None, Some(saved));
        saved(results, limit).into_iter().map(row)
    };
    [2, 3, 5].into_iter().flat_map(line).collect()
}

fn rsc_figure_12(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    for (limit, least, most) in [(2, 4.0, 12.0), (3, 4.0, 18.0), (5, 4.0, 18.0)] {
        let shares: Vec<f64> = saved(results, limit).into_iter().map(|(_, saved)| saved).collect();
        let bounds = [("least", least, f64::min as fn(f64, f64) -> f64), ("most", most, f64::max)];
        rows.extend(bounds.into_iter().filter_map(|(name, paper, of)| {
            let here = shares.iter().copied().reduce(of)?;
            Some(Row::new(format!("RSC_{limit}, {name}"), "% of CPU time saved", Some(paper), Some(here)))
        }));
    }
    rows
}
