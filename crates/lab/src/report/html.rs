//! The report as one self-contained HTML page, without scripts or external files. Its plots are inline
//! SVG, and it is readable on a phone and in light and dark mode.

use super::plot::{Group, Mark, Plot, Row};
use super::ratio::ratio_cell;
use super::{Cell, Figure, LoadInfo, Report, Side, Wire, moves_page, short};
use baton_apps::html_text::escape;
use std::fmt::Write as _;

const STYLE: &str = include_str!("style.css");

/// The report as a page.
pub fn render(report: &Report) -> String {
    let mut body = String::new();
    header(&mut body, report);
    ratios(&mut body, report);
    plots(&mut body, report);
    if let Some(moves) = &report.moves {
        moves_page::section(&mut body, moves);
    }
    checks(&mut body, report);
    numbers(&mut body, report);
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

/// A summary of Baton's cost relative to the kernel's.
fn ratios(page: &mut String, report: &Report) {
    let wires: Vec<&Wire> = report.wires.iter().filter(|wire| wire.baseline.is_some()).collect();
    if wires.is_empty() {
        return;
    }
    page.push_str(
        "<h2>CPU for the same work</h2><p class=\"soft\">CPU time of the whole machine, client included, of a GB or a \
         request with Baton serving, divided by that with the kernel serving. Below 1, Baton is cheaper.</p>\
         <div class=\"scroll\"><table class=\"matrix\"><thead><tr><th></th>",
    );
    for wire in &wires {
        let _ = write!(page, "<th scope=\"col\">{}</th>", escape(&wire.name));
    }
    page.push_str("</tr></thead><tbody>");
    for load in &report.loads {
        let _ = write!(page, "<tr><th scope=\"row\">{}</th>", escape(&load.name));
        for wire in &wires {
            page.push_str(&ratio_cell(report.ratio(wire, &load.id, cost(load))));
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div>");
}

fn cost(load: &LoadInfo) -> Figure {
    if load.requests { Figure::CpuPerRequest } else { Figure::CpuPerGb }
}

fn plots(page: &mut String, report: &Report) {
    let bulk = |load: &&LoadInfo| !load.requests;
    let requests = |load: &&LoadInfo| load.requests;
    let all = |_: &&LoadInfo| true;
    let plots = [
        (bars(report, "throughput", "Throughput", Figure::Throughput, &bulk), "More is better."),
        (bars(report, "cpu-gb", "CPU per gigabyte", Figure::CpuPerGb, &bulk), "Whole machine. Less is better."),
        (bars(report, "requests", "Requests per second", Figure::Requests, &requests), "More is better."),
        (
            bars(report, "cpu-request", "CPU per request", Figure::CpuPerRequest, &requests),
            "Whole machine. Less is better.",
        ),
        (spans(report, "latency", "Latency: median to 99th percentile", &requests), "Less is better."),
        (
            bars(report, "tce", "TCP Control Engine", Figure::Tce, &all),
            "Share of one CPU spent on protocol decisions, without data movement.",
        ),
    ];
    page.push_str(
        "<h2>Figures</h2><p class=\"soft key\"><i class=\"k\"></i>kernel serves<i class=\"b\"></i>Baton serves",
    );
    page.push_str(" &nbsp;·&nbsp; thin lines: range of the runs</p><div class=\"plots\">");
    for (plot, about) in plots {
        let Some(svg) = plot.render() else { continue };
        let (title, unit) = (escape(&plot.title), plot.unit);
        let _ = write!(page, "<figure><h3>{title} <span class=\"soft\">{unit}</span></h3>{svg}");
        let _ = write!(page, "<figcaption>{about}</figcaption></figure>");
    }
    page.push_str("</div>");
}

type Pick<'a> = &'a dyn Fn(&&LoadInfo) -> bool;

fn bars(report: &Report, id: &'static str, title: &str, figure: Figure, pick: Pick<'_>) -> Plot {
    let mark = |cell: &Cell| cell.median(figure).map(Mark::Bar);
    plot(report, id, title, figure.unit(), pick, &mark)
}

fn spans(report: &Report, id: &'static str, title: &str, pick: Pick<'_>) -> Plot {
    let mark = |cell: &Cell| Some(Mark::Span(cell.median(Figure::P50)?.median, cell.median(Figure::P99)?.median));
    plot(report, id, title, Figure::P50.unit(), pick, &mark)
}

fn plot(
    report: &Report,
    id: &'static str,
    title: &str,
    unit: &'static str,
    pick: Pick<'_>,
    mark: &dyn Fn(&Cell) -> Option<Mark>,
) -> Plot {
    let rows = |load: &LoadInfo| -> Vec<Row> {
        let row = |wire: &Wire| {
            let mark = mark(report.cell(&wire.id, &load.id)?)?;
            Some(Row { label: wire.name.clone(), side: wire.side, mark })
        };
        report.wires.iter().filter_map(row).collect()
    };
    let groups = report.loads.iter().filter(pick).map(|load| Group { label: load.name.clone(), rows: rows(load) });
    Plot {
        id: id.to_owned(),
        title: title.to_owned(),
        unit,
        groups: groups.filter(|group| !group.rows.is_empty()).collect(),
    }
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

/// Columns of the full table after the rate and the cost.
const FIGURES: [Figure; 4] = [Figure::P50, Figure::P99, Figure::Softirq, Figure::Tce];

fn numbers(page: &mut String, report: &Report) {
    page.push_str(
        "<h2>Numbers</h2><p class=\"soft\">Medians; in brackets the range of the runs. CPU is that of the whole \
         machine; softirq is the part of it that was spent in soft interrupts.</p><div class=\"scroll\"><table><thead><tr>\
         <th></th><th>Rate</th><th>CPU</th><th>p50</th><th>p99</th><th>softirq</th><th>TCE</th></tr></thead><tbody>",
    );
    for load in &report.loads {
        let _ =
            write!(page, "<tr class=\"load\"><th colspan=\"7\" scope=\"rowgroup\">{}</th></tr>", escape(&load.name));
        for wire in &report.wires {
            let Some(cell) = report.cell(&wire.id, &load.id) else { continue };
            let _ = write!(page, "<tr><td>{}</td>", escape(&wire.name));
            let rate = if load.requests { Figure::Requests } else { Figure::Throughput };
            for figure in [rate, cost(load)].into_iter().chain(FIGURES) {
                page.push_str(&number(cell, figure));
            }
            page.push_str("</tr>");
        }
    }
    page.push_str("</tbody></table></div>");
    runs(page, report);
}

fn number(cell: &Cell, figure: Figure) -> String {
    match cell.median(figure) {
        None => "<td></td>".to_owned(),
        Some(value) if cell.runs.len() == 1 => format!("<td>{} {}</td>", short(value.median), figure.unit()),
        Some(value) => format!(
            "<td>{} {} <span class=\"soft\">({} – {})</span></td>",
            short(value.median),
            figure.unit(),
            short(value.min),
            short(value.max)
        ),
    }
}

fn runs(page: &mut String, report: &Report) {
    page.push_str(
        "<details><summary>Every run</summary><div class=\"scroll\"><table><thead><tr><th>Load</th><th>Wire</th><th>s</th>\
         <th>bytes</th><th>requests</th><th>user s</th><th>system s</th><th>irq s</th><th>softirq s</th><th>steal s</th>\
         <th>TCE</th></tr></thead><tbody>",
    );
    for cell in &report.cells {
        for run in &cell.runs {
            let tce = run.tce.map_or(String::new(), |share| format!("{:.2} %", share * 100.0));
            let _ = write!(
                page,
                "<tr><td>{}</td><td>{}</td><td>{:.3}</td><td>{}</td><td>{}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td>\
                 <td>{:.2}</td><td>{:.2}</td><td>{tce}</td></tr>",
                escape(&cell.load),
                escape(&cell.wire),
                run.seconds,
                run.bytes,
                run.requests,
                run.cpu.user,
                run.cpu.system,
                run.cpu.irq,
                run.cpu.softirq,
                run.cpu.steal
            );
        }
    }
    page.push_str("</tbody></table></div></details>");
}

fn setting(page: &mut String, report: &Report) {
    page.push_str("<h2>Machine</h2><dl>");
    for (name, value) in report.machine.facts() {
        let _ = write!(page, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    page.push_str("</dl><h2>Wires</h2><dl>");
    for wire in &report.wires {
        let (name, about, command) = (escape(&wire.name), escape(&wire.about), escape(&wire.command));
        let _ = write!(page, "<dt>{name}</dt><dd>{about}<br><code>{command}</code></dd>");
    }
    page.push_str("</dl><h2>Loads</h2><dl>");
    for load in &report.loads {
        let (name, about, command) = (escape(&load.name), escape(&load.about), escape(&load.command));
        let _ = write!(page, "<dt>{name}</dt><dd>{about}<br><code>{command}</code></dd>");
    }
    page.push_str("</dl>");
}
