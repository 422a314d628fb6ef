//! The chapter about live connections that move, as a section of the page.

use super::moves::{Moves, Way};
use super::plot::{Group, Mark, Plot, Row};
use super::ratio::ratio_cell;
use super::{Figure, Run, Side, median_of, short, timeline};
use baton_apps::html_text::escape;
use std::fmt::Write as _;

/// The chapter as a section of the page.
pub(super) fn section(page: &mut String, moves: &Moves) {
    page.push_str(
        "<h2>nginx under baton run</h2><p class=\"soft\">nginx, unchanged, in the kernel and under <code>baton \
         run</code>; <code>wrk</code> fetches files on 32 connections, client and server on this machine. Each kind is \
         compared with the kernel over the same frames. One download of each kind, at a steady rate, moves to the \
         kernel and back again and again; half way, after a rest there, its engine is killed, and a new one takes it \
         on.</p>",
    );
    rates(page, moves);
    lives(page, moves);
    page.push_str("<div class=\"plots\">");
    for (id, title, figure, about) in [
        ("moves-throughput", "Throughput", Figure::Throughput, "More is better."),
        ("moves-cpu", "CPU per gigabyte", Figure::CpuPerGb, "Whole machine. Less is better."),
    ] {
        if let Some(svg) = bars(moves, id, title, figure).render() {
            let unit = figure.unit();
            let _ = write!(page, "<figure><h3>{title} <span class=\"soft\">{unit}</span></h3>{svg}");
            let _ = write!(page, "<figcaption>{about}</figcaption></figure>");
        }
    }
    for way in &moves.ways {
        if let Some(live) = &way.live {
            page.push_str(&timeline::figure(&way.wire, live));
        }
    }
    page.push_str("</div><dl>");
    for way in &moves.ways {
        let (name, about, command) = (escape(&way.wire.name), escape(&way.wire.about), escape(&way.wire.command));
        let _ = write!(page, "<dt>{name}</dt><dd>{about}<br><code>{command}</code></dd>");
    }
    page.push_str("</dl>");
}

fn rates(page: &mut String, moves: &Moves) {
    page.push_str(
        "<div class=\"scroll\"><table><thead><tr><th></th><th>1 MB files</th><th>CPU</th><th>CPU vs kernel</th>\
         <th>1 KB files</th><th>CPU</th><th>CPU vs kernel</th></tr></thead><tbody>",
    );
    for way in &moves.ways {
        let name = escape(&way.wire.name);
        if let Some(why) = &way.missing {
            let _ =
                write!(page, "<tr><td>{name}</td><td colspan=\"6\" class=\"why\">not here: {}</td></tr>", escape(why));
            continue;
        }
        let number = |runs: &[Run], figure: Figure| match median_of(runs, figure) {
            Some(value) => format!("{} {}", short(value.median), figure.unit()),
            None => "–".to_owned(),
        };
        let shown = |ratio: Option<f64>| ratio_cell(ratio.filter(|_| way.wire.side == Side::Baton));
        let _ = write!(
            page,
            "<tr><td>{name}</td><td>{}</td><td>{}</td>{}<td>{}</td><td>{}</td>{}</tr>",
            number(&way.runs, Figure::Throughput),
            number(&way.runs, Figure::CpuPerGb),
            shown(moves.ratio(way)),
            number(&way.requests, Figure::Requests),
            number(&way.requests, Figure::CpuPerRequest),
            shown(moves.request_ratio(way)),
        );
    }
    page.push_str("</tbody></table></div>");
}

fn lives(page: &mut String, moves: &Moves) {
    if moves.ways.iter().all(|way| way.live.is_none()) {
        return;
    }
    page.push_str(
        "<div class=\"scroll\"><table><thead><tr><th></th><th>MB</th><th>Moves</th><th>Longest<br>standstill</th>\
         <th>Longest pause<br>for curl</th><th>Engine killed:<br>in the kernel after</th><th>in a new<br>engine after</th>\
         <th>pause<br>for curl</th><th>Digest</th></tr></thead><tbody>",
    );
    for way in &moves.ways {
        let Some(live) = &way.live else { continue };
        let ms = |micros: u64| format!("{} ms", short(micros as f64 / 1e3));
        let (class, digest) = if live.equal { ("good", "equal") } else { ("bad", "NOT equal") };
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"{class}\">{digest}</td></tr>",
            escape(&way.wire.name),
            short(live.bytes as f64 / 1e6),
            live.moves,
            ms(live.pause_us),
            ms(live.gap_us),
            ms(live.killed.home_us),
            ms(live.killed.again_us),
            ms(live.killed.gap_us),
        );
    }
    page.push_str("</tbody></table></div>");
}

fn bars(moves: &Moves, id: &'static str, title: &str, figure: Figure) -> Plot {
    let row = |way: &Way| {
        let mark = Mark::Bar(median_of(&way.runs, figure)?);
        Some(Row { label: way.wire.name.clone(), side: way.wire.side, mark })
    };
    let rows = moves.ways.iter().filter_map(row).collect();
    Plot {
        id: id.to_owned(),
        title: title.to_owned(),
        unit: figure.unit(),
        groups: vec![Group { label: "1 MB files".into(), rows }],
    }
}
