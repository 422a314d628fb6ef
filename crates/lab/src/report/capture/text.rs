//! The report of `baton trace` for a terminal, of which no line but a path takes more than 80 columns.

use super::{acks_saved, cautions, delay, files, length, model, percent, profiles, rules, sentence, verdict, warnings};
use crate::report::short;
use crate::report::wrap::{COLUMNS, row, wrap};
use baton_analyse::acks::{Acks, SizeFrom};
use baton_analyse::flows::Sort;
use baton_analyse::report::Report;
use std::fmt::Write as _;

/// The report for a terminal.
pub fn text(report: &Report, colour: bool) -> String {
    let (bold, plain) = if colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let mut out = String::new();
    let _ = writeln!(out, "{bold}{}{plain}", wrap(&verdict(report), 0));
    let _ = writeln!(out, "{}", wrap(&sentence(report), 2));
    let _ = writeln!(out, "{}", wrap(&rules(&report.rules), 2));
    out.push_str(&files::text(&report.files));
    out.push('\n');
    let facts = [
        ("runs of two or more", report.runs.to_string()),
        ("data segments held", report.segments.to_string()),
        ("added delay", delay(report)),
        ("ACKs saved", acks_saved(&report.acks)),
        ("CPU saved", model(report)),
        ("bytes on the wire", format!("{} in {} s", report.wire_bytes, short(report.seconds))),
    ];
    for (name, value) in facts {
        let _ = writeln!(out, "{}", wrap(&format!("{name:<20} {value}"), 21));
    }
    profiles::text(&mut out, report);
    out.push_str(&acks(&report.acks));
    counts(&mut out, "went on alone", report.reasons.iter().map(|(name, count)| ((*name).to_owned(), *count)));
    counts(&mut out, "what ended runs", report.flushes.iter().map(|(name, count)| ((*name).to_owned(), *count)));
    counts(&mut out, "run length", report.run_lengths.iter().map(|line| (length(line), line.runs)));
    out.push_str(&flows(report));
    // The facts of a single capture say already why it was not read to its end.
    let notes = if report.files.len() == 1 { warnings(report) } else { cautions(report) };
    for note in notes {
        note.text(&mut out);
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
        let bar = "█".repeat((u128::from(count) * 30).div_ceil(largest.into()) as usize);
        let _ = writeln!(out, "  {name:<16} {count:>12}  {bar}");
    }
}

/// The acknowledgments as they were and as they would be.
fn acks(acks: &Acks) -> String {
    if acks.without == 0 && acks.captured == 0 {
        return String::new();
    }
    let mut out = format!("\n{:<48} {:>14} {:>15}\n", "ACKs in the other direction", "frames", "bytes");
    for (name, frames, bytes) in [
        ("in the captures", acks.captured, acks.captured_bytes),
        ("of a stack, for the segments as they came", acks.without, acks.without_bytes),
        ("of a stack, for runs", acks.with, acks.with_bytes),
        ("of a driver that expands these as templates", acks.expanded, acks.expanded_bytes),
    ] {
        row(&mut out, name, &format!(" {frames:>14} {bytes:>15}"));
    }
    let origin = match acks.frame_bytes_from {
        SizeFrom::Captured => "the mean of those in the captures",
        SizeFrom::Usual => "66 over IPv4 and 86 over IPv6, with timestamps: the captures have none",
    };
    let _ = writeln!(out, "{}", wrap(&format!("  an ACK has {:.1} bytes: {origin}", acks.frame_bytes), 2));
    out
}

/// The flows that are listed.
fn flows(report: &Report) -> String {
    if report.flows.is_empty() {
        return String::new();
    }
    let (title, second) = match report.flows_by {
        Sort::Frames => ("largest flows", "out"),
        Sort::Bytes => ("flows with most payload", "bytes"),
        Sort::Gain => ("flows with most joined frames", "out"),
    };
    let mut out = format!("\n{title:<46} {:>10} {second:>12} {:>8}\n", "in", "joined");
    for flow in &report.flows {
        let second = if report.flows_by == Sort::Bytes { flow.payload_bytes } else { flow.frames_out };
        let figures = format!(" {:>10} {second:>12} {:>8}", flow.frames_in, percent(flow.eliminated_share));
        let mut name = format!("{} > {}", flow.source, flow.destination);
        if 2 + name.len() > COLUMNS {
            let _ = writeln!(out, "  {} >", flow.source);
            name.clone_from(&flow.destination);
        }
        row(&mut out, &name, &figures);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_analyse::acks::Acks;
    use baton_analyse::coalesce::{Checksums, Limits, Profile};
    use baton_analyse::cost::Prices;
    use baton_analyse::report::{self, Delay, FileLine, FlowLine, Listing, RunLength};
    use baton_analyse::tally::Tally;

    use crate::report::thousands;

    const HUGE: u64 = u64::MAX;

    /// A report whose counts are as large as they can be.
    fn huge(sort: Sort) -> Report {
        let rules = report::Rules::of(&Limits::of(Profile::Rsc).into(), Checksums::Trust);
        let listing = Listing { top: 10, sort };
        let file = |path: &str| FileLine {
            path: path.to_owned(),
            trouble: Some(format!("damaged at byte {HUGE}: a block whose two lengths differ")),
            bytes: Some(HUGE),
            facts: None,
            figures: None,
        };
        let mut report =
            Report::new(&Tally::default(), rules, Prices::default(), listing, vec![file("a.pcap"), file("b.pcap")]);
        (report.frames_in, report.frames_out, report.eliminated, report.runs) = (HUGE, HUGE, HUGE, HUGE);
        (report.segments, report.wire_bytes, report.seconds, report.flows_forgotten) = (HUGE, HUGE, 1.8e10, HUGE);
        (report.stamps_back, report.lengths_bounded) = (HUGE, HUGE);
        report.added_delay_ns = Delay { p50: HUGE, p99: HUGE, max: HUGE, unmeasured: HUGE, histogram: Vec::new() };
        let acks = &mut report.acks;
        *acks = Acks { without: HUGE, with: HUGE, saved: HUGE, captured: HUGE, expanded: HUGE, ..*acks };
        (acks.captured_bytes, acks.without_bytes, acks.saved_bytes) = (HUGE, HUGE, HUGE);
        report.reasons.insert("traffic_class", HUGE);
        report.profiles.push(report.profiles[0].clone());
        report.profiles.iter_mut().for_each(|line| line.frames_out = HUGE);
        report.run_lengths.push(RunLength { from: u32::MAX / 2, to: u32::MAX, runs: HUGE });
        report.tunnelled.tunnels.insert("geneve", HUGE);
        let address = "[fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd]:65535".to_owned();
        report.flows.push(FlowLine {
            source: address.clone(),
            destination: address,
            frames_in: HUGE,
            frames_out: HUGE,
            eliminated_share: 1.0,
            payload_bytes: HUGE,
        });
        report
    }

    #[test]
    fn the_largest_counts_fit_a_terminal() {
        for sort in [Sort::Frames, Sort::Bytes, Sort::Gain] {
            let said = text(&huge(sort), false);
            for line in said.lines() {
                assert!(line.chars().count() <= COLUMNS, "{line}");
            }
            // Each of them is there: as count of the verdict's line, of the flow, and so on.
            let forms = [HUGE.to_string(), thousands(HUGE)];
            assert!(forms.map(|form| said.matches(&form).count()).iter().sum::<usize>() >= 26, "{said}");
        }
    }
}
