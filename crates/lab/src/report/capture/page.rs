//! The report of `baton trace` as an HTML page.

use super::{acks_saved, cautions, delay, files, length, model, percent, profiles, rules, sentence, verdict};
use crate::report::origin::Origin;
use crate::report::plot::{Group, Mark, Plot, Row};
use crate::report::{Side, html, short, thousands};
use baton_analyse::report::{DelayBucket, Report};
use baton_apps::html_text::escape;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Rows of the plot of run lengths; all longer runs share the last row.
const LENGTH_ROWS: usize = 24;

/// The report as a self-contained HTML page.
pub fn page(report: &Report, origin: &Origin) -> String {
    let mut body = format!("<p>{}.</p><p class=\"soft\">{}</p>", sentence(report), escape(&rules(&report.rules)));
    origin.html(&mut body, &report.files);
    for caution in cautions(report) {
        caution.html(&mut body);
    }
    let wire = format!("{} bytes in {} s", thousands(report.wire_bytes), short(report.seconds));
    let [start, end] = files::extent(&report.files);
    let facts = [
        ("Start", start),
        ("End", end),
        ("Runs of two or more", thousands(report.runs)),
        ("Data segments held", thousands(report.segments)),
        ("Added delay", delay(report)),
        ("ACKs saved", acks_saved(&report.acks)),
        ("CPU saved", model(report)),
        ("On the wire", wire),
    ];
    body.push_str("<h2>Figures</h2><dl>");
    for (name, value) in facts {
        let _ = write!(body, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    body.push_str("</dl>");
    profiles::page(&mut body, report);
    body.push_str("<div class=\"plots\">");
    let (lengths, flushes) = (lengths(report), named(&report.flushes));
    // Both are of all runs, so they have one scale.
    let most = lengths.iter().chain(&flushes).map(|(_, runs)| *runs).max().unwrap_or(0);
    figure(&mut body, "runs", "Runs by length", "runs", lengths, most);
    figure(&mut body, "flushes", "What ended runs", "runs", flushes, most);
    figure(&mut body, "reasons", "Frames that went on alone", "frames", named(&report.reasons), 0);
    let delays = report.added_delay_ns.histogram.iter().map(|bucket| (held(bucket), bucket.segments));
    figure(&mut body, "delay", "Added delay of segments", "segments", delays.collect(), 0);
    body.push_str("</div>");
    flows(&mut body, report);
    html::page("What coalescing would gain", &format!("{}.", verdict(report)), &body)
}

fn named(counts: &BTreeMap<&'static str, u64>) -> Vec<(String, u64)> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn lengths(report: &Report) -> Vec<(String, u64)> {
    let (shown, rest) = report.run_lengths.split_at(report.run_lengths.len().min(LENGTH_ROWS));
    let mut rows: Vec<_> = shown.iter().map(|line| (length(line), line.runs)).collect();
    if let Some(first) = rest.first() {
        rows.push((format!("{} and more", first.from), rest.iter().map(|line| line.runs).sum()));
    }
    rows
}

/// The delays of a bucket. Its bound is a round number in the largest unit that it has one of.
fn held(bucket: &DelayBucket) -> String {
    match bucket.up_to {
        0 => "none".to_owned(),
        ns if ns >= 1_000_000_000 => format!("to {} s", thousands(ns / 1_000_000_000)),
        ns if ns >= 1_000_000 => format!("to {} ms", ns / 1_000_000),
        ns if ns >= 1000 => format!("to {} µs", ns / 1000),
        ns => format!("to {ns} ns"),
    }
}

/// Appends a plot of counts, beside plots of the same unit that reach `most`.
fn figure(body: &mut String, id: &str, title: &str, unit: &'static str, rows: Vec<(String, u64)>, most: u64) {
    let row = |(label, count): (String, u64)| Row { label, side: Side::Baton, mark: Mark::Count(count) };
    let group = Group { label: String::new(), rows: rows.into_iter().map(row).collect() };
    let plot = Plot { id: id.to_owned(), title: title.to_owned(), unit, groups: vec![group] };
    if let Some(svg) = plot.render_beside(most as f64) {
        let _ = write!(body, "<figure><h3>{} <span class=\"soft\">{unit}</span></h3>{svg}</figure>", escape(title));
    }
}

fn flows(body: &mut String, report: &Report) {
    if report.flows.is_empty() {
        return;
    }
    body.push_str(
        "<h2>Largest flows</h2><div class=\"scroll\"><table><thead><tr><th>from, to</th><th>frames in</th><th>out</th>\
         <th>joined</th><th>payload, bytes</th></tr></thead><tbody>",
    );
    for flow in &report.flows {
        let _ = write!(
            body,
            "<tr><td class=\"flow\">{}<br>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&flow.source),
            escape(&flow.destination),
            thousands(flow.frames_in),
            thousands(flow.frames_out),
            percent(flow.eliminated_share),
            thousands(flow.payload_bytes)
        );
    }
    body.push_str("</tbody></table></div>");
}
