//! Two unmodified programs of one machine: through memory that they share, over loopback, and over a Unix
//! domain socket.
//!
//! Client and server are in one namespace. Rounds, ratios and CPU time are those of [`super`]. Each client
//! under `baton run` says at its end how many of its connections were in pairs, which the table and every
//! run show: a connection that was not in a pair went over loopback.
//!
//! `GOALS` lists the ratios that pairs are to reach, and the table says which they reached.
//!
//! The cost of two programs without any network cannot be measured. `redis-benchmark` can send 256 requests
//! at once, over a Unix domain socket: a request's share of the calls that move bytes is then 1/256. The
//! rest is an estimate of the programs' own work, and a low one: without pipelining each request also takes
//! a turn of both event loops, over which no memory helps.

use super::report::{Figure, Report};
use crate::experiment::{Axis, Experiment, Findings, Need};
use crate::report::short;
use crate::workload::ways::LOCAL;
use serde::Serialize;
use std::fmt::Write as _;

/// Both programs on one machine.
pub const EXPERIMENT: Experiment = Experiment {
    id: "programs-local",
    title: "Two unmodified programs of one machine: pairs, next to loopback and Unix domain sockets",
    needs: &[
        Need::ROOT,
        Need { what: "redis", without: Some("leaves out redis") },
        Need { what: "nginx and wrk", without: Some("leaves out nginx") },
        Need { what: "iperf3", without: Some("leaves out bulk") },
    ],
    axes: &[
        Axis { name: "load", about: "what the client does" },
        Axis { name: "way", about: "how client and server reach each other" },
    ],
    command: "baton bench programs --local",
    run: |lab, extent| findings(&super::run(lab, extent, &LOCAL)?),
};

/// The way that is to reach the goals.
const WAY: &str = "pair";

/// The most by which anything may be worse than the kernel's loopback.
const WORST: f64 = 1.03;

/// A goal, as a ratio to the kernel's loopback.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Goal {
    load: &'static str,
    figure: Figure,
    /// The bound: the least for work, the most for all else.
    bound: f64,
}

const fn goal(load: &'static str, figure: Figure, bound: f64) -> Goal {
    Goal { load, figure, bound }
}

/// The ratios that pairs are to reach.
const GOALS: [Goal; 11] = [
    goal("ping-pong", Figure::Median, 0.05),
    goal("ping-pong", Figure::Cost, 0.1),
    goal("redis-get", Figure::Work, 2.0),
    goal("redis-get", Figure::Median, 0.5),
    goal("redis-set", Figure::Work, 2.0),
    goal("redis-set", Figure::Median, 0.5),
    goal("redis-get-1", Figure::Median, 0.25),
    goal("nginx-1k", Figure::Work, 1.5),
    goal("nginx-1m", Figure::Work, 1.0),
    goal("iperf3-1", Figure::Cost, 0.35),
    goal("iperf3-16", Figure::Cost, 0.35),
];

/// A goal, and what was measured.
#[derive(Clone, Debug, Serialize)]
struct Verdict {
    load: String,
    figure: Figure,
    bound: f64,
    /// The ratio here: the median of the rounds.
    here: f64,
    reached: bool,
}

/// The report with the verdicts on the goals.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    report: &'a Report,
    goals: Vec<Verdict>,
}

fn findings(report: &Report) -> anyhow::Result<Findings> {
    let goals = verdicts(report);
    let mut table = report.local_table();
    for Verdict { load, figure, bound, here, reached } in &goals {
        let (what, least) = match figure {
            Figure::Work => ("work a CPU second", "least"),
            Figure::Cost => ("CPU time", "most"),
            Figure::Median => ("p50", "most"),
        };
        let word = if *reached { "reached" } else { "NOT reached" };
        let _ = writeln!(table, "goal, {load}: {what} at {least} {bound}×: {}×, {word}", short(*here));
    }
    let whole = Whole { report, goals };
    Ok(Findings { files: report.rounds(EXPERIMENT.id), ..Findings::new(&whole, table, Vec::new())? })
}

/// The verdicts on the goals whose loads were measured. That nothing is much worse is a goal of every load.
fn verdicts(report: &Report) -> Vec<Verdict> {
    let loads = report.series.iter().filter(|series| series.point.way == WAY).map(|series| &series.point.load);
    let figures = [(Figure::Cost, WORST), (Figure::Median, WORST)];
    let not_worse = loads.flat_map(|load| figures.map(|(figure, bound)| (load.as_str(), figure, bound)));
    let stated = |load: &str, figure| GOALS.iter().any(|goal| goal.load == load && goal.figure == figure);
    let not_worse = not_worse.filter(|(load, figure, _)| !stated(load, *figure));
    let all = GOALS.iter().map(|Goal { load, figure, bound }| (*load, *figure, *bound)).chain(not_worse);
    let verdict = |(load, figure, bound): (&str, Figure, f64)| {
        let here = report.ratio(load, WAY, figure)?.median;
        let reached = if figure == Figure::Work { here >= bound } else { here <= bound };
        Some(Verdict { load: load.to_owned(), figure, bound, here, reached })
    };
    all.filter_map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::{Point, Series};
    use super::*;
    use crate::experiment::plan;
    use crate::report::Machine;
    use crate::workload::client::{LOADS, Load, Outcome};
    use baton_apps::measure::Cpu;

    fn report() -> Report {
        let series = |way: &str, busy: f64, p50_ns| Series {
            point: Point { load: "redis-get".into(), way: way.into() },
            runs: vec![Outcome {
                seconds: 1.0,
                requests: 1000,
                p50_ns,
                cpu: Cpu { busy, ..Cpu::default() },
                ..Outcome::default()
            }],
        };
        Report {
            machine: Machine::default(),
            series: vec![series("kernel", 1.0, 1000), series("pair", 0.4, 600)],
            idle: Vec::new(),
            shares: Vec::new(),
            not_here: Vec::new(),
        }
    }

    #[test]
    fn a_goal_is_reached_or_not() {
        let found = findings(&report()).unwrap();
        for line in [
            "goal, redis-get: work a CPU second at least 2×: 2.50×, reached",
            "goal, redis-get: p50 at most 0.5×: 0.60×, NOT reached",
            "goal, redis-get: CPU time at most 1.03×: 0.40×, reached",
        ] {
            assert!(found.table.contains(line), "{}", found.table);
        }
        let json: serde_json::Value = serde_json::from_str(&found.json).unwrap();
        assert_eq!(json["goals"].as_array().unwrap().len(), 3, "{json}");
        assert_eq!((&json["goals"][0]["figure"], &json["goals"][0]["reached"]), (&"work".into(), &true.into()));
        for key in ["machine", "series", "idle", "shares", "not_here"] {
            assert!(json.get(key).is_some(), "{key}: {json}");
        }
    }

    #[test]
    fn the_whole_plan_has_every_way_and_the_loads_of_every_goal() {
        let plan = plan("whole").unwrap();
        let values = |axis| plan[EXPERIMENT.id].values::<String>(axis).unwrap();
        assert_eq!(values("way"), LOCAL.map(|way| way.id));
        let loads = values("load");
        assert!(GOALS.iter().all(|goal| loads.iter().any(|load| load == goal.load)), "{loads:?}");
        assert!(loads.iter().all(|load| Load::of(load).is_some()), "{:?}", LOADS.map(|load| load.id));
    }
}
