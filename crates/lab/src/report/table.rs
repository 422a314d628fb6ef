//! The report as one table for a terminal.

use super::both_ends;
use super::moves::{self, Moves};
use super::{Figure, Matrix, Report, Run, median_of, short};
use std::fmt::Write as _;

/// Columns after the wire's name, with their widths.
const COLUMNS: [(&str, usize); 7] =
    [("rate", 12), ("CPU", 12), ("CPU vs kernel", 15), ("p50", 10), ("p99", 10), ("softirq", 9), ("TCE", 8)];

/// How parts of the table are set off.
struct Ink {
    bold: &'static str,
    dim: &'static str,
    good: &'static str,
    bad: &'static str,
    plain: &'static str,
}

const COLOUR: Ink = Ink { bold: "\x1b[1m", dim: "\x1b[2m", good: "\x1b[32m", bad: "\x1b[31m", plain: "\x1b[0m" };
const NONE: Ink = Ink { bold: "", dim: "", good: "", bad: "", plain: "" };

/// The table, in colour if asked for.
pub fn render(report: &Report, colour: bool) -> String {
    let ink = if colour { &COLOUR } else { &NONE };
    let ways = report.moves.iter().flat_map(|moves| &moves.ways).map(|way| &way.wire);
    let here = report.both_ends.iter().flat_map(|here| &here.wires);
    let names = report.wires.iter().chain(ways).chain(here).map(|wire| wire.name.chars().count());
    let name_width = names.max().unwrap_or(0) + 4;
    let mut out = String::new();
    let heads: String = COLUMNS.iter().map(|(head, width)| format!("{head:>width$}")).collect();
    let _ = writeln!(out, "{}{:name_width$}{heads}{}", ink.dim, "", ink.plain);
    rows(&mut out, report.matrix(), "", name_width, ink);
    if let Some(chapter) = &report.moves {
        moving(&mut out, chapter, name_width, ink);
    }
    if let Some(chapter) = &report.both_ends {
        rows(&mut out, chapter.matrix(), &format!("{}: ", both_ends::TITLE.to_lowercase()), name_width, ink);
    }
    for check in report.checks.iter().filter(|check| !check.ok) {
        let _ = writeln!(out, "{}WRONG{} {}: {}: {}", ink.bad, ink.plain, check.wire, check.what, check.seen);
    }
    let right = report.checks.iter().filter(|check| check.ok).count();
    let _ = writeln!(out, "{right} of {} checks right", report.checks.len());
    if let Some(caution) = report.caution() {
        let _ = writeln!(out, "caution: {caution}");
    }
    for what in &report.not_shown {
        let _ = writeln!(out, "not shown: {what}");
    }
    out
}

/// The rows of each load, below its name, which `before` comes before.
fn rows(out: &mut String, matrix: Matrix<'_>, before: &str, name_width: usize, ink: &Ink) {
    for load in matrix.loads {
        let _ = writeln!(out, "{}{before}{}{}", ink.bold, load.name, ink.plain);
        for wire in matrix.wires {
            let Some(cell) = matrix.cell(&wire.id, &load.id) else { continue };
            let cost = if load.requests { Figure::CpuPerRequest } else { Figure::CpuPerGb };
            let cells = row(&cell.runs, load.requests, matrix.ratio(wire, &load.id, cost), ink);
            let _ = writeln!(out, "  {:<width$}{cells}", wire.name, width = name_width - 2);
        }
    }
}

/// The rows of the chapter about live connections that move.
fn moving(out: &mut String, chapter: &Moves, name_width: usize, ink: &Ink) {
    let width = name_width - 2;
    let here = || chapter.ways.iter().filter(|way| way.missing.is_none());
    for (files, requests) in [("1 MB", false), ("1 KB", true)] {
        let _ = writeln!(out, "{}{}, files of {files} (wrk){}", ink.bold, moves::TITLE, ink.plain);
        for way in here() {
            let cells = match requests {
                false => row(&way.runs, false, chapter.ratio(way), ink),
                true => row(&way.requests, true, chapter.request_ratio(way), ink),
            };
            let _ = writeln!(out, "  {:<width$}{cells}", way.wire.name);
        }
    }
    let _ = writeln!(out, "{}a live download that moves{}", ink.bold, ink.plain);
    for way in &chapter.ways {
        if let Some(why) = &way.missing {
            let _ = writeln!(out, "  {:<width$}not here: {why}", way.wire.name);
        } else if let Some(live) = &way.live {
            let _ = writeln!(out, "  {}: {}", way.wire.name, live.tell());
        }
    }
    let _ = writeln!(out, "  {}{}{}", ink.dim, moves::NOTE, ink.plain);
}

fn row(runs: &[Run], requests: bool, ratio: Option<f64>, ink: &Ink) -> String {
    let (rate, cost) =
        if requests { (Figure::Requests, Figure::CpuPerRequest) } else { (Figure::Throughput, Figure::CpuPerGb) };
    let text = |figure: Figure| match median_of(runs, figure) {
        Some(value) => format!("{} {}", short(value.median), figure.unit()),
        None => String::new(),
    };
    let colour = match ratio {
        Some(ratio) if ratio < 0.95 => ink.good,
        Some(ratio) if ratio > 1.05 => ink.bad,
        _ => "",
    };
    let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}×"));
    let texts =
        [text(rate), text(cost), ratio, text(Figure::P50), text(Figure::P99), text(Figure::Softirq), text(Figure::Tce)];
    let cells = texts.iter().zip(COLUMNS).enumerate().map(|(i, (text, (_, width)))| {
        let set = if i == 2 { colour } else { "" };
        let end = if set.is_empty() { "" } else { ink.plain };
        format!("{set}{text:>width$}{end}")
    });
    let line: String = cells.collect();
    line.trim_end().to_owned()
}
