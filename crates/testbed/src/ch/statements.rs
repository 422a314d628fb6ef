//! Statements of CH as checks: whether each of its comparisons holds here, with both figures.

use super::metric::Metric::{ContentRate, HostIdle, MeanDelay, NicPackets, RequestRate, Response};
use super::runs::Runs;
use crate::workload::Kind;

/// One comparison of the paper.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Statement {
    /// The claim, with its section.
    pub claim: String,
    /// Unit of both figures.
    pub unit: &'static str,
    /// The paper's figure.
    pub paper: Option<f64>,
    /// The figure here.
    pub here: f64,
    /// The bounds within which the claim holds.
    pub within: (f64, f64),
}

impl Statement {
    /// Whether the claim holds here.
    pub fn holds(&self) -> bool {
        (self.within.0..=self.within.1).contains(&self.here)
    }
}

/// Limits of the sweep that looks for the best fixed one, in connections.
const SWEEP: [u32; 5] = [512, 768, 1024, 1280, 1536];

const ANY: f64 = f64::INFINITY;

/// Checks all statements.
pub fn statements(runs: &mut Runs<'_>) -> Vec<Statement> {
    let mut checks = Checks { runs, all: Vec::new() };
    checks.naive_offload_loses();
    checks.host_first_gains();
    checks.load_control_is_near_the_best_limit();
    checks.every_workload_gains();
    checks.long_lived_connections_bring_more();
    checks.faster_processors_serve_more();
    checks.response_times_follow();
    checks.all
}

struct Checks<'a, 'b> {
    runs: &'a mut Runs<'b>,
    all: Vec<Statement>,
}

impl Checks<'_, '_> {
    fn add(
        &mut self,
        claim: impl Into<String>,
        unit: &'static str,
        paper: Option<f64>,
        here: Option<f64>,
        within: (f64, f64),
    ) {
        let here = here.unwrap_or(f64::NAN);
        self.all.push(Statement { claim: claim.into(), unit, paper, here, within });
    }

    fn naive_offload_loses(&mut self) {
        for (name, paper) in
            [("W-1024-N-N-FCFS-400", Some(-30.0)), ("I-1024-N-N-FCFS-400", None), ("S-2048-N-N-FCFS-400", None)]
        {
            let here = self.runs.gain(name, &baseline(&name[..1]), RequestRate);
            self.add(
                format!("{name} serves fewer requests than without offload (§5.1)"),
                "%",
                paper,
                here,
                (-ANY, 0.0),
            );
        }
        let idle = self.runs.value("W-1024-N-N-FCFS-400", HostIdle);
        self.add("W-1024-N-N: the host waits for its packets (§5.1)", "% idle", Some(62.0), idle, (20.0, 100.0));
        let delay = self.runs.value("W-1024-N-N-FCFS-400", MeanDelay);
        self.add(
            "W-1024-N-N: a host packet crosses in more than 1 ms (§5.1)",
            "us",
            Some(1000.0),
            delay,
            (1000.0, ANY),
        );
        let delay = self.runs.value("W-0-N-N-FCFS-400", MeanDelay);
        self.add("W-0-N-N: it crosses in less than 10 us (§5.1)", "us", Some(10.0), delay, (0.0, 10.0));
        let here = self.runs.gain("W-4096-P-N-FCFS-400", "W-0-N-N-FCFS-400", RequestRate);
        self.add("W-4096-P-N: all connections on the NIC lose (§1, §5.1)", "%", Some(-44.0), here, (-ANY, -14.0));
    }

    fn host_first_gains(&mut self) {
        for (kind, paper) in [(Kind::WorldCup, Some(16.0)), (Kind::Ibm, None), (Kind::SpecWebStatic, None)] {
            let (letter, places) = (kind.letter(), kind.clients() / 2);
            let name = format!("{letter}-{places}-P-N-FCFS-400");
            let here = self.runs.gain(&name, &baseline(letter), RequestRate);
            self.add(format!("{name} gains by host first (§5.1)"), "%", paper, here, (0.0, ANY));
        }
        let delay = self.runs.value("W-1024-P-N-FCFS-400", MeanDelay);
        self.add("W-1024-P-N: a host packet crosses in less than 13 us (§5.1)", "us", Some(13.0), delay, (0.0, 13.0));
    }

    fn load_control_is_near_the_best_limit(&mut self) {
        for kind in [Kind::WorldCup, Kind::Ibm, Kind::SpecWebStatic] {
            let (letter, times) = (kind.letter(), kind.clients() / 2048);
            let by_hand = SWEEP.map(|places| format!("{letter}-{}-P-N-FCFS-400", places * times));
            let best = by_hand.iter().filter_map(|name| self.runs.value(name, RequestRate)).fold(0.0, f64::max);
            let here = self.runs.value(&format!("{letter}-4096-P-L-FCFS-400"), RequestRate);
            let here = here.map(|here| 100.0 * (here / best - 1.0));
            let paper = (kind == Kind::WorldCup).then_some(-3.1);
            self.add(
                format!("{letter}: load control against the best fixed limit (§5.1)"),
                "%",
                paper,
                here,
                (-5.0, ANY),
            );
        }
    }

    fn every_workload_gains(&mut self) {
        let papers = [12.0, 23.0, 28.0, 31.0];
        for (kind, paper) in Kind::ALL.into_iter().zip(papers) {
            let letter = kind.letter();
            let here = self.runs.gain(&format!("{letter}-4096-P-L-FCFS-400"), &baseline(letter), RequestRate);
            self.add(format!("{letter} gains 12 % or more at 400 MIPS (§5.1)"), "%", Some(paper), here, (12.0, ANY));
        }
        for kind in Kind::ALL {
            let letter = kind.letter();
            let here = self.runs.gain(&format!("{letter}-4096-P-L-FCFS-800"), &baseline(letter), RequestRate);
            let paper = (kind == Kind::WorldCup).then_some(58.6);
            self.add(format!("{letter} gains 31 % or more at 800 MIPS (§5.3)"), "%", paper, here, (31.0, ANY));
        }
        let rate = self.runs.value("D-4096-P-L-FCFS-400", ContentRate);
        self.add("D: content is near 1 Gb/s at 400 MIPS (§5.3)", "Mb/s", Some(1000.0), rate, (800.0, 1200.0));
    }

    fn long_lived_connections_bring_more(&mut self) {
        let (few, many) = ("W-256-P-L-FCFS-400", "W-256-P-L-T20-400");
        let here = self.runs.value(many, NicPackets).zip(self.runs.value(few, NicPackets)).map(|(t, f)| t / f);
        self.add("W-256: T20 brings more packets to the NIC than FCFS (§5.2)", "times", Some(2.0), here, (1.0, ANY));
        let here = self.runs.gain(many, few, RequestRate);
        self.add("W-256: T20 serves more requests than FCFS (§5.2)", "%", Some(6.0), here, (0.0, ANY));
    }

    fn faster_processors_serve_more(&mut self) {
        for (letter, papers) in [("W", [14.0, 24.3]), ("I", [21.0, 3.0]), ("S", [16.0, 13.0])] {
            for (mips, paper) in [600, 800].into_iter().zip(papers) {
                let name = |mips: u32| format!("{letter}-4096-P-L-FCFS-{mips}");
                let here = self.runs.gain(&name(mips), &name(mips - 200), RequestRate);
                let claim = format!("{letter}: {mips} MIPS serve more than {} (§5.3)", mips - 200);
                self.add(claim, "%", Some(paper), here, (0.0, ANY));
            }
        }
        let here = self.runs.gain("D-4096-P-L-FCFS-800", "D-4096-P-L-FCFS-400", RequestRate);
        self.add("D: faster NICs do not serve more (§5.3)", "%", Some(0.0), here, (-5.0, 5.0));
    }

    fn response_times_follow(&mut self) {
        let names = ["W-1024-N-N-FCFS-400", "W-1024-P-L-FCFS-400", "W-4096-P-L-FCFS-600", "W-4096-P-L-FCFS-800"];
        let papers = [62.3, -1.6, -13.1, -34.4];
        for ((name, paper), within) in
            names.into_iter().zip(papers).zip([(0.0, ANY), (-ANY, 0.0), (-ANY, 0.0), (-ANY, 0.0)])
        {
            let here = self.runs.gain(name, "W-0-N-N-FCFS-400", Response);
            self.add(
                format!("{name}: mean response time against the baseline's (§5.3)"),
                "%",
                Some(paper),
                here,
                within,
            );
        }
    }
}

fn baseline(letter: &str) -> String {
    format!("{letter}-0-N-N-FCFS-400")
}
