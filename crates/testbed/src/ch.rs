//! Experiments of CH: each configuration is run once, and gives rows beside the paper's.

use crate::figures::{FIGURES, Metric};
use crate::measure::{Measured, median_us};
use crate::select::{ByGain, Selection};
use crate::workload::Kind;
use crate::world::{Config, run};
use baton_policy::rules::Rule;
use core::num::NonZeroU64;

/// One value of an experiment.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Row {
    /// The experiment, such as `ch-figure-5`.
    pub id: &'static str,
    /// Configuration and quantity.
    pub name: String,
    /// Unit of both values.
    pub unit: &'static str,
    /// The paper's value, if it prints one.
    pub paper: Option<f64>,
    /// The value here.
    pub here: f64,
}

impl Metric {
    fn unit(self) -> &'static str {
        match self {
            Metric::RequestRate => "requests/s",
            Metric::SendDelay | Metric::ReceiveDelay => "us",
            Metric::HostIdle | Metric::NicIdle | Metric::HandedOff | Metric::NicPackets => "%",
            Metric::Response => "ms",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Metric::RequestRate => "request rate",
            Metric::SendDelay => "send delay",
            Metric::ReceiveDelay => "receive delay",
            Metric::HostIdle => "host idle",
            Metric::NicIdle => "NIC idle",
            Metric::HandedOff => "connections handed off",
            Metric::NicPackets => "packets on the NIC",
            Metric::Response => "mean response time",
        }
    }

    /// The quantity of a run.
    pub fn of(self, measured: &Measured) -> f64 {
        match self {
            Metric::RequestRate => measured.request_rate(),
            Metric::SendDelay => median_us(&measured.send_delays),
            Metric::ReceiveDelay => median_us(&measured.receive_delays),
            Metric::HostIdle => measured.host_idle(),
            Metric::NicIdle => measured.nic_idle(),
            Metric::HandedOff => measured.handed_off_share(),
            Metric::NicPackets => measured.nic_packet_share(),
            Metric::Response => measured.response_ms(),
        }
    }
}

/// A configuration by the paper's shorthand (CH table 3), with `base` for everything that it leaves
/// open. Returns `None` if it is none, or its workload is not built.
pub fn configuration(shorthand: &str, base: &Config) -> Option<(Config, Box<dyn Selection>)> {
    let parts: Vec<&str> = shorthand.split('-').collect();
    let &[letter, places, priority @ ("P" | "N"), load @ ("L" | "N"), selection, mips] = parts.as_slice() else {
        return None;
    };
    let workload = Kind::ALL.into_iter().find(|kind| kind.letter() == letter)?;
    let selection: Box<dyn Selection> = match selection {
        "FCFS" => Box::new(Rule::FirstCome),
        "predict" => Box::new(ByGain::predict(&base.costs)),
        "oracle" => Box::new(ByGain::oracle(&base.costs)),
        threshold => Box::new(Rule::AfterSends(threshold.strip_prefix('T')?.parse::<NonZeroU64>().ok()?)),
    };
    let config = Config {
        workload,
        clients: workload.clients(),
        places: places.parse().ok()?,
        host_first: priority == "P",
        load_control: load == "L",
        mips: mips.parse().ok().filter(|&mips| mips > 0)?,
        ..base.clone()
    };
    Some((config, selection))
}

/// Runs the configurations that figures of the paper name, the oracle beside them, and returns all
/// rows. `progress` is told each configuration before it runs.
pub fn experiments(base: &Config, progress: &mut dyn FnMut(&str)) -> Vec<Row> {
    let mut names: Vec<&str> = FIGURES.iter().map(|&(_, name, _, _)| name).collect();
    names.push("W-256-P-L-oracle-400");
    names.sort_unstable();
    names.dedup();
    let mut rows = Vec::new();
    for name in names {
        progress(name);
        let Some((config, mut selection)) = configuration(name, base) else { continue };
        let measured = run(&config, selection.as_mut());
        let row = |id, metric: Metric, paper| Row {
            id,
            name: format!("{name} {}", metric.label()),
            unit: metric.unit(),
            paper,
            here: metric.of(&measured),
        };
        let printed = FIGURES.iter().filter(|figure| figure.1 == name);
        rows.extend(printed.map(|&(id, _, metric, paper)| row(id, metric, Some(paper))));
        if name.contains("oracle") {
            rows.push(row("ch-figure-7", Metric::NicPackets, None));
            rows.push(row("ch-figure-7", Metric::RequestRate, None));
        }
        if name == "W-4096-P-L-FCFS-400" {
            rows.extend(measured.course.iter().map(|&(at, limit, _)| Row {
                id: "ch-figure-6",
                name: format!("soft limit after {} ms", at / 1_000_000),
                unit: "connections",
                paper: None,
                here: f64::from(limit),
            }));
        }
    }
    rows.sort_by_key(|row| row.id);
    rows
}

/// Gain of `configuration` over the baseline with each cost changed by −20 and +20 %, in percent of the
/// request rate: the sensitivity of that conclusion.
pub fn sensitivity(base: &Config, shorthand: &str) -> Vec<Row> {
    let gain = |costs| {
        let base = Config { costs, ..base.clone() };
        let rate =
            |name| configuration(name, &base).map_or(0.0, |(config, mut s)| run(&config, s.as_mut()).request_rate());
        100.0 * (rate(shorthand) / rate("W-0-N-N-FCFS-400") - 1.0)
    };
    let mut rows = Vec::new();
    for (name, access) in crate::costs::Costs::ENTRIES {
        for percent in [80, 120] {
            let mut costs = base.costs;
            *access(&mut costs) = *access(&mut costs) * percent / 100;
            rows.push(Row {
                id: "ch-sensitivity",
                name: format!("{shorthand} gain, {name} at {percent} %"),
                unit: "%",
                paper: None,
                here: gain(costs),
            });
        }
    }
    rows
}
