//! The report as one self-contained HTML page, without scripts or external files. Its plots are inline
//! SVG, and it is readable on a phone and in light and dark mode.

use super::{Report, Side, matrix_page, moves_page};
use baton_apps::html_text::escape;
use std::fmt::Write as _;

const STYLE: &str = include_str!("style.css");

/// The report as a page.
pub fn render(report: &Report) -> String {
    let mut body = String::new();
    header(&mut body, report);
    matrix_page::section(&mut body, report.matrix());
    if let Some(moves) = &report.moves {
        moves_page::section(&mut body, moves);
    }
    if let Some(here) = &report.both_ends {
        matrix_page::chapter(&mut body, here);
    }
    checks(&mut body, report);
    matrix_page::numbers(&mut body, report.matrix());
    setting(&mut body, report);
    frame("Baton beside the kernel", &body)
}

/// A page of another measurement: a title, a sentence as text, and the rest as HTML.
pub fn page(title: &str, lead: &str, body: &str) -> String {
    frame(title, &format!("<header><h1>{}</h1><p>{}</p></header>{body}", escape(title), escape(lead)))
}

fn frame(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{}</title><style>{STYLE}</style></head>\
         <body><main>{body}</main></body></html>\n",
        escape(title)
    )
}

fn header(page: &mut String, report: &Report) {
    let kernel = report.wires.iter().any(|wire| wire.side == Side::Kernel);
    let what = if kernel {
        "Programs on the kernel's TCP talk over a wire to the same services, served by Baton and served by the \
         kernel. Runs alternate; figures are medians."
    } else {
        "Two Baton engines talk to each other over a wire in memory. Figures are medians."
    };
    let _ = write!(
        page,
        "<header><h1>Baton beside the kernel</h1><p>{what}</p><p class=\"soft\">{} · {} × {} · Linux {} · {}, {:.0} s \
         in all</p></header>",
        escape(&report.started),
        report.machine.cpus,
        escape(&report.machine.cpu),
        escape(&report.machine.kernel),
        count(report.rounds, "round"),
        report.seconds,
    );
    if let Some(caution) = report.caution() {
        let _ = write!(page, "<p class=\"caution\">Caution: {}.</p>", escape(&caution));
    }
    if !report.not_shown.is_empty() {
        page.push_str("<h2>Not shown here</h2><ul>");
        for what in &report.not_shown {
            let _ = write!(page, "<li>{}</li>", escape(what));
        }
        page.push_str("</ul>");
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn checks(page: &mut String, report: &Report) {
    if report.checks.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Checks</h2><div class=\"scroll\"><table class=\"text\"><thead><tr><th>Wire</th><th>What</th><th></th>\
         <th>Seen</th></tr></thead><tbody>",
    );
    for check in &report.checks {
        let (class, word) = if check.ok { ("good", "right") } else { ("bad", "WRONG") };
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"{class}\">{word}</td><td>{}</td></tr>",
            escape(&check.wire),
            escape(&check.what),
            escape(&check.seen)
        );
    }
    page.push_str("</tbody></table></div>");
}

fn setting(page: &mut String, report: &Report) {
    page.push_str("<h2>Machine</h2><dl>");
    for (name, value) in report.machine.facts() {
        let _ = write!(page, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    page.push_str("</dl><h2>Wires and loads</h2>");
    matrix_page::describe(page, report.matrix());
}
