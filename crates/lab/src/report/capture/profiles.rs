//! The rules side by side, as text and as a table of the page.

use super::percent;
use crate::report::wrap::wrap;
use baton_analyse::report::{ProfileLine, Report, Rules};
use std::fmt::Write as _;

/// Names rules for people.
fn about(rules: &Rules) -> &'static str {
    match &*rules.profile {
        "rsc" => "a NIC with buffers",
        "ra" => "in front of a stack",
        _ => "Linux's GRO",
    }
}

/// Memory and window in a few words.
fn sizes(rules: &Rules) -> String {
    let most = rules.limit.map_or(format!("{} B", rules.buffer), |limit| format!("{limit} segments"));
    let window = match (rules.window_packets, rules.window_us) {
        (Some(frames), _) => format!(", {frames} frames"),
        (None, Some(us)) => format!(", {us} µs"),
        (None, None) => String::new(),
    };
    format!("{} × {most}{window}", rules.cache)
}

/// The chosen rules are marked, where there are others.
fn mark(report: &Report, line: &ProfileLine) -> &'static str {
    if line.rules == report.rules { "*" } else { "" }
}

/// The table for a terminal; nothing if there is one set of rules.
pub fn text(out: &mut String, report: &Report) {
    if report.profiles.len() < 2 {
        return;
    }
    let _ = writeln!(out, "\n{:<27}{:>8}{:>9}{:>8}  rules", "side by side", "joined", "out", "CPU");
    for line in &report.profiles {
        let name = format!("{}{}, {}", line.rules.profile, mark(report, line), about(&line.rules));
        let saved = format!("{:+.1} %", -line.cpu_saved * 100.0);
        let figures = format!("{:>8}{:>9}{saved:>8}", percent(line.eliminated_share), line.frames_out);
        let _ = writeln!(out, "{}", wrap(&format!("  {name:<25}{figures}  {}", sizes(&line.rules)), 30));
    }
}

/// The table of the page; nothing if there is one set of rules.
pub fn page(body: &mut String, report: &Report) {
    if report.profiles.len() < 2 {
        return;
    }
    body.push_str(
        "<h2>Side by side</h2><div class=\"scroll\"><table><thead><tr><th>rules</th><th></th><th>joined</th><th>frames \
         out</th><th>runs</th><th>CPU saved</th><th>memory and window</th></tr></thead><tbody>",
    );
    for line in &report.profiles {
        let _ = write!(
            body,
            "<tr><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            line.rules.profile,
            mark(report, line),
            about(&line.rules),
            percent(line.eliminated_share),
            line.frames_out,
            line.runs,
            percent(line.cpu_saved),
            sizes(&line.rules)
        );
    }
    body.push_str("</tbody></table></div>");
}
