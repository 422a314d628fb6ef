//! The chapter about live connections that move, and its forms: lines of the table, a
//! section of the page.
//!
//! A [`Way`] is a way to serve: the kernel alone, or Baton by one kind of steering. It has
//! measured downloads that stayed where they were, and one that moved all the while
//! ([`Live`]), shown as what came when.

use super::plot::{Group, Mark, Plot, Row};
use super::timeline;
use super::{Figure, Run, Side, Wire, median_of, short};
use baton_apps::html_text::escape;
use baton_apps::measure::Median;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The chapter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Moves {
    /// The ways, the kernel first.
    pub ways: Vec<Way>,
}

/// One way to serve a program's downloads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Way {
    /// How it is named.
    pub wire: Wire,
    /// Measured downloads of files of 1 MB.
    pub runs: Vec<Run>,
    /// Measured requests for a file of 1 KB.
    pub requests: Vec<Run>,
    /// The download that moved.
    pub live: Option<Live>,
    /// Why this machine cannot have it.
    pub missing: Option<String>,
}

/// A download that moved to the engine and back while it ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Live {
    /// From the first byte that came to the last.
    pub seconds: f64,
    /// Bytes that came.
    pub bytes: u64,
    /// Bytes that the program sent.
    pub sent: u64,
    /// SHA-256 of what came.
    pub sha256: String,
    /// Whether it is that of what was sent.
    pub equal: bool,
    /// Times that the connection changed sides, those after the engine's death included.
    pub moves: u64,
    /// Longest that a move let the connection stand still, by the service's word.
    pub pause_us: u64,
    /// Longest that the client got nothing, while the engine lived.
    pub gap_us: u64,
    /// What the engine's death did.
    pub killed: Killed,
    /// Length of a slice.
    pub slice_seconds: f64,
    /// What came when, from the first byte on.
    pub slices: Vec<Slice>,
}

/// What the engine's death did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Killed {
    /// When it was killed, after the first byte.
    pub at_seconds: f64,
    /// Time from then until the connection went on in the kernel.
    pub home_us: u64,
    /// Time from then until another engine had it.
    pub again_us: u64,
    /// Longest that the client got nothing around that time.
    pub gap_us: u64,
}

/// What came in a short time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Slice {
    /// Bytes.
    pub bytes: u64,
    /// Whether an engine had the connection.
    pub engine: bool,
}

impl Moves {
    /// A way's CPU time a byte, divided by the kernel's over the same frames.
    pub fn ratio(&self, way: &Way) -> Option<f64> {
        self.ratio_of(way, &|way| median_of(&way.runs, Figure::CpuPerGb))
    }

    /// A way's CPU time a request, divided by the kernel's over the same frames.
    pub fn request_ratio(&self, way: &Way) -> Option<f64> {
        self.ratio_of(way, &|way| median_of(&way.requests, Figure::CpuPerRequest))
    }

    fn ratio_of(&self, way: &Way, figure: &dyn Fn(&Way) -> Option<Median>) -> Option<f64> {
        let value = |way: &Way| figure(way).map(|value| value.median);
        let baseline = self.ways.iter().find(|other| Some(&other.wire.id) == way.wire.baseline.as_ref())?;
        Some(value(way)? / value(baseline).filter(|&value| value > 0.0)?)
    }
}

/// What the chapter is called.
pub const TITLE: &str = "nginx under baton run";

/// What has to be known beside its rows.
pub const NOTE: &str =
    "xdp takes the interface's receive offloads, from the kernel's connections on it too; tc does not";

impl Live {
    /// What happened to it, in a sentence.
    pub fn tell(&self) -> String {
        let ms = |micros: u64| short(micros as f64 / 1e3);
        format!(
            "{} moves while {} MB came, longest pause {} ms; engine killed: on in the kernel after {} ms, longest pause \
             {} ms; digest {}",
            self.moves,
            short(self.bytes as f64 / 1e6),
            ms(self.gap_us),
            ms(self.killed.home_us),
            ms(self.killed.gap_us),
            if self.equal { "equal" } else { "NOT equal" },
        )
    }
}

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
        ("moves-cpu", "CPU a gigabyte", Figure::CpuPerGb, "Whole machine. Less is better."),
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
        let shown = |ratio: Option<f64>| super::html::ratio_cell(ratio.filter(|_| way.wire.side == Side::Baton));
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
    Plot { id, title: title.to_owned(), unit: figure.unit(), groups: vec![Group { label: "1 MB files".into(), rows }] }
}
