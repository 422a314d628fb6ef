//! The report of `baton trace`, as text and as an HTML page.

use super::plot::{Group, Mark, Plot, Row};
use super::{Side, html, short};
use baton_analyse::report::{Acks, Report, Rules, RunLength};
use baton_apps::html_text::escape;
use baton_apps::measure::Median;
use std::fmt::Write as _;

/// Rows of the plot of run lengths; all longer runs share the last row.
const LENGTH_ROWS: usize = 24;

/// The rules in a line.
pub(super) fn rules(rules: &Rules) -> String {
    let limit = rules.limit.map_or("no limit".to_owned(), |limit| format!("{limit} segments"));
    let window = match (rules.window_packets, rules.window_us) {
        (Some(frames), _) => format!("a window of {frames} frames"),
        (None, Some(us)) => format!("a window of {us} µs"),
        (None, None) => "no window".to_owned(),
    };
    let (profile, cache, buffer) = (rules.profile, rules.cache, rules.buffer);
    format!(
        "{profile}: {cache} runs at a time, {buffer} bytes and {limit} each, {window}, checksums: {}",
        rules.checksum
    )
}

fn time(ns: u64) -> String {
    match ns as f64 {
        ns if ns >= 1e9 => format!("{} s", short(ns / 1e9)),
        ns if ns >= 1e6 => format!("{} ms", short(ns / 1e6)),
        ns => format!("{} µs", short(ns / 1e3)),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn length(line: &RunLength) -> String {
    if line.from == line.to { line.from.to_string() } else { format!("{}–{}", line.from, line.to) }
}

fn verdict(report: &Report) -> String {
    format!("{}: {}", report.verdict.answer.word(), report.verdict.because)
}

fn sentence(report: &Report) -> String {
    format!(
        "{} of {} frames ({}) would be joined to another; a stack would see {}",
        report.eliminated,
        report.frames_in,
        percent(report.eliminated_share),
        report.frames_out,
    )
}

fn model(report: &Report) -> String {
    let prices = report.cpu.prices;
    format!(
        "{} of the CPU time by a model with {} ns per frame, {} ns per byte and {} ns per coalesced segment ({} s become {} s)",
        percent(report.cpu.saved),
        prices.frame_ns,
        prices.byte_ns,
        prices.segment_ns,
        short(report.cpu.without_seconds),
        short(report.cpu.with_seconds),
    )
}

fn delay(report: &Report) -> String {
    let delay = &report.added_delay_ns;
    let unmeasured = if delay.unmeasured > 0 { format!(" ({} not measured)", delay.unmeasured) } else { String::new() };
    format!("p50 {}, p99 {}, max {}{unmeasured}", time(delay.p50), time(delay.p99), time(delay.max))
}

fn acks_saved(acks: &Acks) -> String {
    format!(
        "{} of {} that a receiver makes without runs (one template for a run; {} in the captures)",
        acks.saved, acks.without, acks.captured
    )
}

/// Columns for the name of a flow; two IPv6 addresses get a line of their own.
const FLOW_COLUMNS: usize = 46;

/// Warnings that affect the results.
fn cautions(report: &Report) -> Vec<String> {
    let links = report.unknown_links.cautions();
    let back = (report.stamps_back > 0).then(|| {
        format!("time stamps that go back: {}; delays and windows in time depend on them", report.stamps_back)
    });
    let tunnels = report.tunnels.iter().map(|(kind, segments)| {
        format!("TCP segments that lie in {kind}, where a coalescer does not see them: {segments}")
    });
    let lengths = (report.lengths_bounded > 0).then(|| {
        format!(
            "lengths that the frame's IP header contradicts: {}; what the header says counts",
            report.lengths_bounded
        )
    });
    let forgotten = (report.flows_forgotten > 0).then(|| {
        format!(
            "more flows than the table holds: {} lost their place, figures of flows are lower bounds",
            report.flows_forgotten
        )
    });
    let files = report.files.iter().filter_map(|file| Some(format!("{}: {}", file.path, file.trouble.as_ref()?)));
    links.chain(tunnels).chain(back).chain(lengths).chain(forgotten).chain(files).collect()
}

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

/// The report as a self-contained HTML page.
pub fn page(report: &Report) -> String {
    let mut body = format!("<p>{}.</p><p class=\"soft\">{}</p>", sentence(report), escape(&rules(&report.rules)));
    for caution in cautions(report) {
        let _ = write!(body, "<p class=\"caution\">{}.</p>", escape(&caution));
    }
    let acks = &report.acks;
    let facts = [
        ("Runs of two or more", report.runs.to_string()),
        ("Data segments held", report.segments.to_string()),
        ("Added delay", delay(report)),
        ("ACKs saved", acks_saved(acks)),
        ("CPU saved", model(report)),
        ("On the wire", format!("{} bytes in {} s", report.wire_bytes, short(report.seconds))),
    ];
    body.push_str("<dl>");
    for (name, value) in facts {
        let _ = write!(body, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    body.push_str("</dl><div class=\"plots\">");
    let name = |(name, count): (&&'static str, &u64)| ((*name).to_owned(), *count as f64);
    figure(&mut body, "runs", "Runs by length", "runs", lengths(report));
    figure(&mut body, "reasons", "Frames that went on alone", "frames", report.reasons.iter().map(name).collect());
    figure(&mut body, "flushes", "What ended runs", "runs", report.flushes.iter().map(name).collect());
    body.push_str("</div>");
    flows(&mut body, report);
    html::page("What coalescing would gain", &format!("{}.", verdict(report)), &body)
}

fn lengths(report: &Report) -> Vec<(String, f64)> {
    let (shown, rest) = report.run_lengths.split_at(report.run_lengths.len().min(LENGTH_ROWS));
    let mut rows: Vec<_> = shown.iter().map(|line| (length(line), line.runs as f64)).collect();
    if let Some(first) = rest.first() {
        rows.push((format!("{} and more", first.from), rest.iter().map(|line| line.runs as f64).sum()));
    }
    rows
}

fn figure(body: &mut String, id: &'static str, title: &str, unit: &'static str, rows: Vec<(String, f64)>) {
    let row = |(label, value): (String, f64)| Row {
        label,
        side: Side::Baton,
        mark: Mark::Bar(Median { median: value, min: value, max: value }),
    };
    let group = Group { label: String::new(), rows: rows.into_iter().map(row).collect() };
    let plot = Plot { id: id.to_owned(), title: title.to_owned(), unit, groups: vec![group] };
    if let Some(svg) = plot.render() {
        let _ = write!(body, "<figure><h3>{} <span class=\"soft\">{unit}</span></h3>{svg}</figure>", escape(title));
    }
}

fn flows(body: &mut String, report: &Report) {
    if report.flows.is_empty() {
        return;
    }
    body.push_str(
        "<h2>Largest flows</h2><div class=\"scroll\"><table><thead><tr><th>from</th><th>to</th><th>frames in</th>\
         <th>out</th><th>joined</th><th>payload, bytes</th></tr></thead><tbody>",
    );
    for flow in &report.flows {
        let _ = write!(
            body,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&flow.source),
            escape(&flow.destination),
            flow.frames_in,
            flow.frames_out,
            percent(flow.eliminated_share),
            flow.payload_bytes
        );
    }
    body.push_str("</tbody></table></div>");
}
