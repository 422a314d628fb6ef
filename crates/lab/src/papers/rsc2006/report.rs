//! Figures 4 to 8 of RSC (*Receive Side Coalescing for Accelerating TCP/IP Processing*), reproduced, with
//! the paper's statements next to our results.

use super::{Cell, STUDIED};
use crate::report::Machine;
use crate::report::html;
use crate::report::lines::{Line, Lines};
use baton_analyse::sweep::Axis;
use baton_apps::html_text::escape;
use serde::Serialize;
use std::fmt::Write as _;

/// All experiments.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The machine that they ran on.
    pub machine: Machine,
    /// Each of them.
    pub cells: Vec<Cell>,
    /// The paper's statements and our results.
    pub claims: Vec<Claim>,
}

/// A statement of the paper, and our result.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// Number of the figure.
    pub figure: u8,
    /// The paper's words.
    pub paper: &'static str,
    /// Our result.
    pub here: String,
    /// True if our result agrees.
    pub holds: bool,
}

/// A figure: what its lines and its steps are.
struct Figure {
    number: u8,
    title: &'static str,
    /// x, its name.
    x: &'static str,
}

const FIGURES: [Figure; 5] = [
    Figure { number: 4, title: "4, 8 and 16 connections", x: "bytes of a message; one line per number of connections" },
    Figure { number: 5, title: "16 to 90 connections", x: "bytes of a message; one line per number of connections" },
    Figure { number: 6, title: "cache entries", x: "entries; one line per message size; 16 connections" },
    Figure { number: 7, title: "buffer size", x: "bytes; one line per message size; 16 connections" },
    Figure { number: 8, title: "moderation window", x: "frames; one line per message size; 16 connections" },
];

/// Why figures here differ from the paper's.
const WHY: &str = "The paper's senders were machines of their own behind two switches, where packets of several \
    senders mix; here the senders share one queue at 1 Gb/s, which keeps a burst of a sender together. Their stacks \
    cut messages by the segmentation offload of 2006; today's sends up to 64 KB in a burst. A message of 2 KB is two \
    frames, of which one can be joined: 50 % is the most, and a window's end now and then parts the two.";

fn kib(bytes: usize) -> String {
    format!("{} KB", bytes >> 10)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// "a to b" of some shares.
fn range(shares: &[f64]) -> String {
    let (low, high) = shares.iter().fold((1.0_f64, 0.0_f64), |(low, high), s| (low.min(*s), high.max(*s)));
    if shares.is_empty() { "not measured".to_owned() } else { format!("{} to {}", percent(low), percent(high)) }
}

fn at_least(shares: &[f64], bound: f64) -> bool {
    !shares.is_empty() && shares.iter().all(|share| *share >= bound)
}

impl Outcome {
    /// Compares the experiments with the paper's statements.
    pub fn new(machine: Machine, cells: Vec<Cell>) -> Outcome {
        let claims = claims(&cells);
        Outcome { machine, cells, claims }
    }

    /// Lines of a figure: label, and share in percent by x.
    fn lines(&self, figure: u8) -> Vec<Line> {
        let studied = || self.cells.iter().filter(|cell| cell.senders == STUDIED);
        let by_senders = |wanted: &[usize]| {
            let line = |senders: &usize| {
                let cells = self.cells.iter().filter(|cell| cell.senders == *senders);
                let points = cells.map(|cell| (cell.message as f64, cell.base() * 100.0)).collect();
                Line { label: senders.to_string(), points, paper: false }
            };
            wanted.iter().map(line).filter(|line| !line.points.is_empty()).collect()
        };
        let by_value = |axis: Axis| {
            let line = |cell: &Cell| {
                let points = cell.points.iter().filter(|point| point.axis == axis);
                let points = points.map(|point| (f64::from(point.value), point.share() * 100.0)).collect();
                Line { label: kib(cell.message), points, paper: false }
            };
            studied().map(line).filter(|line| !line.points.is_empty()).collect()
        };
        match figure {
            4 => by_senders(&[4, 8, 16]),
            5 => by_senders(&[16, 30, 60, 90]),
            6 => by_value(Axis::Cache),
            7 => by_value(Axis::Buffer),
            _ => by_value(Axis::Window),
        }
    }

    /// The figures as tables for a terminal.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for figure in &FIGURES {
            let lines = self.lines(figure.number);
            let Some(first) = lines.first() else { continue };
            let _ = writeln!(out, "RSC Figure {}: {} — % of frames joined", figure.number, figure.title);
            let steps: String = first.points.iter().map(|(x, _)| format!("{x:>8}")).collect();
            let _ = writeln!(out, "  {:>8}{steps}   ({})", "", figure.x);
            for line in &lines {
                let values: String = line.points.iter().map(|(_, y)| format!("{y:>8.1}")).collect();
                let _ = writeln!(out, "  {:>8}{values}", line.label);
            }
            for claim in self.claims.iter().filter(|claim| claim.figure == figure.number) {
                let mark = if claim.holds { "same here" } else { "DIFFERS" };
                let _ = writeln!(out, "  paper: \"{}\"\n  here:  {} ({mark})", claim.paper, claim.here);
            }
            out.push('\n');
        }
        let _ = writeln!(out, "{WHY}");
        out
    }

    /// Every point as comma-separated values.
    pub fn csv(&self) -> String {
        let mut out = "senders,message,axis,value,frames_in,eliminated,runs\n".to_owned();
        for cell in &self.cells {
            for point in &cell.points {
                let (axis, value) = match point.axis {
                    Axis::Connections => ("base", 0),
                    other => (other.name(), point.value),
                };
                let _ = writeln!(
                    out,
                    "{},{},{axis},{value},{},{},{}",
                    cell.senders, cell.message, point.frames_in, point.eliminated, point.runs
                );
            }
        }
        out
    }

    /// The figures as plots.
    pub fn page(&self) -> String {
        let mut body = "<div class=\"plots\">".to_owned();
        for figure in &FIGURES {
            let lines = self.lines(figure.number);
            if lines.is_empty() {
                continue;
            }
            let title = format!("Figure {}: {}", figure.number, figure.title);
            let id = format!("rsc-{}", figure.number);
            let plot = Lines { id, title: title.clone(), unit: "% of frames joined", lines };
            let _ = write!(
                body,
                "<figure><h3>{}</h3>{}<figcaption>x: {}</figcaption>",
                escape(&title),
                plot.render(),
                figure.x
            );
            for claim in self.claims.iter().filter(|claim| claim.figure == figure.number) {
                let mark = if claim.holds { "the same here" } else { "different here" };
                let _ = write!(
                    body,
                    "<p class=\"soft\">Paper: “{}” Here: {} ({mark}).</p>",
                    escape(claim.paper),
                    escape(&claim.here)
                );
            }
            body.push_str("</figure>");
        }
        let _ = write!(body, "</div><h2>Why it differs</h2><p>{WHY}</p><h2>Machine</h2><dl>");
        for (name, value) in self.machine.facts() {
            let _ = write!(body, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
        }
        body.push_str("</dl>");
        let lead = "Frames that receive side coalescing joins, of 10,000 that a receiver gets from real kernel senders, \
            by the rules of RSC §4.";
        html::page("RSC Figures 4 to 8, reproduced", lead, &body)
    }
}

/// The statements of RSC §5, compared with the experiments.
fn claims(cells: &[Cell]) -> Vec<Claim> {
    let base = |senders: &[usize], least: usize| -> Vec<f64> {
        let wanted = |cell: &&Cell| senders.contains(&cell.senders) && cell.message >= least;
        cells.iter().filter(wanted).map(Cell::base).collect()
    };
    let studied: Vec<&Cell> = cells.iter().filter(|cell| cell.senders == STUDIED).collect();
    let of = |message: usize, axis: Axis, value: u32| {
        studied.iter().find(|cell| cell.message == message).and_then(|cell| cell.share(axis, value))
    };
    let gain = |message: usize, axis: Axis, from: u32, to: u32| Some(of(message, axis, to)? - of(message, axis, from)?);
    let gains = |messages: &[usize], axis: Axis, from: u32, to: u32| -> Vec<f64> {
        messages.iter().filter_map(|&message| gain(message, axis, from, to)).collect()
    };
    let few = base(&[4, 8, 16], 2048);
    let many = base(&[16, 30, 60, 90], 2048);
    let three: Vec<f64> = studied
        .iter()
        .filter(|cell| cell.message >= 2048)
        .filter_map(|cell| Some(cell.share(Axis::Cache, 8)? - cell.share(Axis::Cache, 3)?))
        .collect();
    let large = gains(&[8 << 10, 16 << 10, 32 << 10, 64 << 10], Axis::Buffer, 4096, 8192);
    let small = gains(&[2 << 10, 4 << 10], Axis::Buffer, 4096, 8192);
    let sizes = [4 << 10, 8 << 10, 16 << 10];
    let sixteen: Vec<f64> = sizes.iter().filter_map(|&message| of(message, Axis::Window, 16)).collect();
    let doubled = gains(&sizes, Axis::Window, 16, 32);
    let further = gains(&sizes, Axis::Window, 32, 64);
    let close = |gains: &[f64], bound: f64| !gains.is_empty() && gains.iter().all(|gain| gain.abs() <= bound);
    vec![
        Claim {
            figure: 4,
            paper: "about 50 to 80% coalescing is possible, and there is not much variation […] between 4, 8 and 16 connections",
            here: format!("{} with messages of 2 KB and more", range(&few)),
            holds: at_least(&few, 0.5),
        },
        Claim {
            figure: 5,
            paper: "we can still achieve more than 50% coalescing […] even when there are large number of connections",
            here: format!("{} with messages of 2 KB and more", range(&many)),
            holds: at_least(&many, 0.5),
        },
        Claim {
            figure: 6,
            paper: "RSC cache size of 3 entries allows us to achieve close to maximum coalescing",
            here: format!("8 entries add {} of the frames to what 3 join", range(&three)),
            holds: close(&three, 0.05),
        },
        Claim {
            figure: 7,
            paper: "8KB buffer yields more coalescing for payloads larger than 4KB",
            here: format!("8 KB join {} more of the frames than 4 KB", range(&large)),
            holds: !large.is_empty() && large.iter().all(|gain| *gain > 0.0),
        },
        Claim {
            figure: 7,
            paper: "amount of coalescing is same with 4 and 8 KB buffers for 2KB and 4KB payload sizes",
            here: format!("8 KB join {} more of the frames", range(&small)),
            holds: close(&small, 0.01),
        },
        Claim {
            figure: 8,
            paper: "we can achieve more than 50% coalescing even with a 16 packet window",
            here: format!("{} with messages of 4, 8 and 16 KB", range(&sixteen)),
            holds: at_least(&sixteen, 0.5),
        },
        Claim {
            figure: 8,
            paper: "from 16 packets to 32 packets shows 5-10% improvement in coalescing and beyond 32 packets the rate of improvement diminishes",
            here: format!("32 for 16 adds {} of the frames, 64 for 32 adds {}", range(&doubled), range(&further)),
            holds: !further.is_empty()
                && doubled.iter().all(|gain| (0.05..=0.1).contains(gain))
                && doubled.iter().zip(&further).all(|(first, second)| second <= first),
        },
    ]
}
