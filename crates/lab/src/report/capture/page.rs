//! The report of `baton trace` as an HTML page.

use super::{acks_saved, cautions, delay, length, model, percent, profiles, rules, sentence, verdict};
use crate::report::plot::{Group, Mark, Plot, Row};
use crate::report::{Side, html, short};
use baton_analyse::report::Report;
use baton_apps::html_text::escape;
use baton_apps::measure::Median;
use std::fmt::Write as _;

/// Rows of the plot of run lengths; all longer runs share the last row.
const LENGTH_ROWS: usize = 24;

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
    body.push_str("</dl>");
    profiles::page(&mut body, report);
    body.push_str("<div class=\"plots\">");
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
