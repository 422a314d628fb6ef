//! Loads by wires as parts of the page: ratios, plots and numbers.

use super::both_ends::{BothEnds, TITLE};
use super::plot::{Group, Mark, Plot, Row};
use super::ratio::ratio_cell;
use super::{Cell, Figure, LoadInfo, Matrix, Wire, short};
use baton_apps::html_text::escape;
use std::fmt::Write as _;

/// The summary and the plots of the page's main part.
pub(super) fn section(page: &mut String, matrix: Matrix<'_>) {
    if matrix.wires.iter().any(|wire| wire.baseline.is_some()) {
        page.push_str(
            "<h2>CPU for the same work</h2><p class=\"soft\">CPU time of the whole machine, client included, of a GB \
             or a request with Baton serving, divided by that with the kernel serving. Below 1, Baton is cheaper.</p>",
        );
        ratios(page, matrix);
    }
    page.push_str("<h2>Figures</h2>");
    plots(page, matrix, "", ["kernel serves", "Baton serves"]);
}

/// The chapter about programs of one machine.
pub(super) fn chapter(page: &mut String, here: &BothEnds) {
    let _ = write!(page, "<h2>{TITLE}</h2>");
    page.push_str(
        "<p class=\"soft\">Two unmodified programs of this machine, over the kernel's loopback, over memory that they \
         share under <code>baton run</code>, and over a Unix domain socket where both know one. CPU time \
         of the whole machine, of a GB or a request, divided by that over loopback: below 1, it is cheaper.</p>",
    );
    ratios(page, here.matrix());
    plots(page, here.matrix(), "here-", ["the kernel carries", "Baton carries"]);
    table(page, here.matrix());
    describe(page, here.matrix());
}

/// The full table of the page's main part, and every run.
pub(super) fn numbers(page: &mut String, matrix: Matrix<'_>) {
    page.push_str(
        "<h2>Numbers</h2><p class=\"soft\">Medians; in brackets the range of the runs. CPU is that of the whole \
         machine; softirq is the part of it that was spent in soft interrupts.</p>",
    );
    table(page, matrix);
    runs(page, matrix);
}

/// Describes the wires and the loads.
pub(super) fn describe(page: &mut String, matrix: Matrix<'_>) {
    let wires = matrix.wires.iter().map(|wire| (&wire.name, &wire.about, &wire.command));
    let loads = matrix.loads.iter().map(|load| (&load.name, &load.about, &load.command));
    page.push_str("<dl>");
    for (name, about, command) in wires.chain(loads) {
        let (name, about, command) = (escape(name), escape(about), escape(command));
        let _ = write!(page, "<dt>{name}</dt><dd>{about}<br><code>{command}</code></dd>");
    }
    page.push_str("</dl>");
}

/// The cost over each wire relative to its baseline's.
fn ratios(page: &mut String, matrix: Matrix<'_>) {
    let wires: Vec<&Wire> = matrix.wires.iter().filter(|wire| wire.baseline.is_some()).collect();
    page.push_str("<div class=\"scroll\"><table class=\"matrix\"><thead><tr><th></th>");
    for wire in &wires {
        let _ = write!(page, "<th scope=\"col\">{}</th>", escape(&wire.name));
    }
    page.push_str("</tr></thead><tbody>");
    for load in matrix.loads {
        let _ = write!(page, "<tr><th scope=\"row\">{}</th>", escape(&load.name));
        for wire in &wires {
            page.push_str(&ratio_cell(matrix.ratio(wire, &load.id, cost(load))));
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div>");
}

fn cost(load: &LoadInfo) -> Figure {
    if load.requests { Figure::CpuPerRequest } else { Figure::CpuPerGb }
}

/// Plots, whose ids begin with `before`, with the words for the kernel's colour and Baton's.
fn plots(page: &mut String, matrix: Matrix<'_>, before: &str, [kernel, baton]: [&str; 2]) {
    let id = |name: &str| format!("{before}{name}");
    let bulk = |load: &&LoadInfo| !load.requests;
    let requests = |load: &&LoadInfo| load.requests;
    let all = |_: &&LoadInfo| true;
    let plots = [
        (bars(matrix, &id("throughput"), "Throughput", Figure::Throughput, &bulk), "More is better."),
        (bars(matrix, &id("cpu-gb"), "CPU per gigabyte", Figure::CpuPerGb, &bulk), "Whole machine. Less is better."),
        (bars(matrix, &id("requests"), "Requests per second", Figure::Requests, &requests), "More is better."),
        (
            bars(matrix, &id("cpu-request"), "CPU per request", Figure::CpuPerRequest, &requests),
            "Whole machine. Less is better.",
        ),
        (spans(matrix, &id("latency"), "Latency: median to 99th percentile", &requests), "Less is better."),
        (
            bars(matrix, &id("tce"), "TCP Control Engine", Figure::Tce, &all),
            "Share of one CPU spent on protocol decisions, without data movement.",
        ),
    ];
    let _ = write!(
        page,
        "<p class=\"soft key\"><i class=\"k\"></i>{kernel}<i class=\"b\"></i>{baton} &nbsp;·&nbsp; thin lines: range of \
         the runs</p><div class=\"plots\">"
    );
    for (plot, about) in plots {
        let Some(svg) = plot.render() else { continue };
        let (title, unit) = (escape(&plot.title), plot.unit);
        let _ = write!(page, "<figure><h3>{title} <span class=\"soft\">{unit}</span></h3>{svg}");
        let _ = write!(page, "<figcaption>{about}</figcaption></figure>");
    }
    page.push_str("</div>");
}

type Pick<'a> = &'a dyn Fn(&&LoadInfo) -> bool;

fn bars(matrix: Matrix<'_>, id: &str, title: &str, figure: Figure, pick: Pick<'_>) -> Plot {
    let mark = |cell: &Cell| cell.median(figure).map(Mark::Bar);
    plot(matrix, id, title, figure.unit(), pick, &mark)
}

fn spans(matrix: Matrix<'_>, id: &str, title: &str, pick: Pick<'_>) -> Plot {
    let mark = |cell: &Cell| Some(Mark::Span(cell.median(Figure::P50)?.median, cell.median(Figure::P99)?.median));
    plot(matrix, id, title, Figure::P50.unit(), pick, &mark)
}

fn plot(
    matrix: Matrix<'_>,
    id: &str,
    title: &str,
    unit: &'static str,
    pick: Pick<'_>,
    mark: &dyn Fn(&Cell) -> Option<Mark>,
) -> Plot {
    let rows = |load: &LoadInfo| -> Vec<Row> {
        let row = |wire: &Wire| {
            let mark = mark(matrix.cell(&wire.id, &load.id)?)?;
            Some(Row { label: wire.name.clone(), side: wire.side, mark })
        };
        matrix.wires.iter().filter_map(row).collect()
    };
    let groups = matrix.loads.iter().filter(pick).map(|load| Group { label: load.name.clone(), rows: rows(load) });
    Plot {
        id: id.to_owned(),
        title: title.to_owned(),
        unit,
        groups: groups.filter(|group| !group.rows.is_empty()).collect(),
    }
}

/// Columns of the full table after the rate and the cost.
const FIGURES: [Figure; 4] = [Figure::P50, Figure::P99, Figure::Softirq, Figure::Tce];

fn table(page: &mut String, matrix: Matrix<'_>) {
    page.push_str(
        "<div class=\"scroll\"><table><thead><tr><th></th><th>Rate</th><th>CPU</th><th>p50</th><th>p99</th>\
         <th>softirq</th><th>TCE</th></tr></thead><tbody>",
    );
    for load in matrix.loads {
        let _ =
            write!(page, "<tr class=\"load\"><th colspan=\"7\" scope=\"rowgroup\">{}</th></tr>", escape(&load.name));
        for wire in matrix.wires {
            let Some(cell) = matrix.cell(&wire.id, &load.id) else { continue };
            let _ = write!(page, "<tr><td>{}</td>", escape(&wire.name));
            let rate = if load.requests { Figure::Requests } else { Figure::Throughput };
            for figure in [rate, cost(load)].into_iter().chain(FIGURES) {
                page.push_str(&number(cell, figure));
            }
            page.push_str("</tr>");
        }
    }
    page.push_str("</tbody></table></div>");
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

/// Every run.
fn runs(page: &mut String, matrix: Matrix<'_>) {
    page.push_str(
        "<details><summary>Every run</summary><div class=\"scroll\"><table><thead><tr><th>Load</th><th>Wire</th><th>s</th>\
         <th>bytes</th><th>requests</th><th>user s</th><th>system s</th><th>irq s</th><th>softirq s</th><th>steal s</th>\
         <th>TCE</th></tr></thead><tbody>",
    );
    for cell in matrix.cells {
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
