//! The report of `baton trace` for a terminal.

use super::{acks_saved, cautions, delay, length, model, percent, profiles, rules, sentence, verdict};
use crate::report::short;
use baton_analyse::report::Report;
use std::fmt::Write as _;

/// Columns for the name of a flow; two IPv6 addresses get a line of their own.
const FLOW_COLUMNS: usize = 46;

/// The report for a terminal.
pub fn text(report: &Report, colour: bool) -> String {
    let (bold, plain) = if colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let mut out = String::new();
    let _ = writeln!(out, "{bold}{}{plain}", verdict(report));
    let _ = writeln!(out, "{}", sentence(report));
    let _ = writeln!(out, "{}\n", rules(&report.rules));
    let acks = &report.acks;
    let facts = [
        ("runs of two or more", report.runs.to_string()),
        ("data segments held", report.segments.to_string()),
        ("added delay", delay(report)),
        ("ACKs saved", acks_saved(acks)),
        ("CPU saved", model(report)),
        ("bytes on the wire", format!("{} in {} s", report.wire_bytes, short(report.seconds))),
    ];
    for (name, value) in facts {
        let _ = writeln!(out, "{name:<20} {value}");
    }
    profiles::text(&mut out, report);
    counts(&mut out, "went on alone", report.reasons.iter().map(|(name, count)| ((*name).to_owned(), *count)));
    counts(&mut out, "what ended runs", report.flushes.iter().map(|(name, count)| ((*name).to_owned(), *count)));
    counts(&mut out, "run length", report.run_lengths.iter().map(|line| (length(line), line.runs)));
    if !report.flows.is_empty() {
        let _ = writeln!(out, "\n{:<48} {:>10} {:>10} {:>8}", "largest flows", "in", "out", "joined");
        for flow in &report.flows {
            let mut name = format!("{} > {}", flow.source, flow.destination);
            if name.len() > FLOW_COLUMNS {
                let _ = writeln!(out, "  {name}");
                name.clear();
            }
            let _ = writeln!(
                out,
                "  {name:<FLOW_COLUMNS$} {:>10} {:>10} {:>8}",
                flow.frames_in,
                flow.frames_out,
                percent(flow.eliminated_share)
            );
        }
    }
    for caution in cautions(report) {
        let _ = writeln!(out, "\nnote: {caution}");
    }
    out
}

fn counts(out: &mut String, title: &str, lines: impl Iterator<Item = (String, u64)>) {
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}");
    let largest = lines.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    for (name, count) in lines {
        let bar = "█".repeat((count * 30).div_ceil(largest) as usize);
        let _ = writeln!(out, "  {name:<16} {count:>12}  {bar}");
    }
}
