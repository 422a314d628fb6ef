//! The results of `baton trace sweep`, as a table, as comma-separated values and as an HTML page.

use super::capture::rules;
use super::caution::Caution;
use super::grid::Grid;
use super::lines::{Line, Lines};
use super::origin::Origin;
use super::wrap::wrap;
use super::{html, thousands};
use baton_analyse::classifier::Tunnelled;
use baton_analyse::gain::Gain;
use baton_analyse::link::{ReservedBits, UnknownLinks};
use baton_analyse::report::{FileLine, Rules};
use baton_analyse::sweep::{Axis, Point};
use baton_apps::html_text::escape;
use serde::Serialize;
use std::fmt::Write as _;

/// All points of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// How much memory is enough, in a sentence.
    pub verdict: String,
    /// The base rules, of which one number varies at a time.
    pub rules: Rules,
    /// One result for each value of the swept parameter.
    pub points: Vec<Point>,
    /// The results of entries by sizes.
    pub grid: Grid,
    /// Frames of link types that cannot be read, by link type.
    pub unknown_links: UnknownLinks,
    /// Bits that are set though the formats of the captures reserve them.
    pub reserved_bits: ReservedBits,
    /// TCP segments in tunnels, by kind.
    #[serde(flatten)]
    pub tunnelled: Tunnelled,
    /// One line for each capture that was read.
    pub files: Vec<FileLine>,
}

impl Outcome {
    fn axes(&self) -> impl Iterator<Item = (Axis, Vec<&Point>)> {
        let of = |axis| (axis, self.points.iter().filter(|point| point.axis == axis).collect::<Vec<_>>());
        Axis::ALL.into_iter().map(of).filter(|(_, points)| !points.is_empty())
    }

    /// The points as comma-separated values, with those of the grid behind the others.
    pub fn csv(&self) -> String {
        let mut out = "axis,value,frames_in,frames_out,eliminated,runs,entries,size\n".to_owned();
        for point in &self.points {
            let Point { axis, value, gain } = point;
            let Gain { frames_in, frames_out, eliminated, runs } = gain;
            let _ = writeln!(out, "{},{value},{frames_in},{frames_out},{eliminated},{runs},,", axis.name());
        }
        out.push_str(&self.grid.csv());
        out
    }

    /// The points for a terminal.
    pub fn table(&self) -> String {
        let mut out = format!("{}\n{}\n\n", wrap(&self.verdict, 0), wrap(&rules(&self.rules), 2));
        let _ = write!(out, "Share of frames joined to another, by memory:\n{}", self.grid.table());
        out.push_str("\nShare of frames joined to another, one number varied at a time\n");
        for (axis, points) in self.axes() {
            let _ = writeln!(out, "\n{} ({})", axis.name(), axis.about());
            for point in points {
                let bar = "█".repeat((point.gain.share() * 30.0).round() as usize);
                let (share, runs) = (point.gain.share() * 100.0, thousands(point.gain.runs));
                let _ = writeln!(out, "  {:>8} {share:>6.1} % {runs:>12} runs  {bar}", point.value);
            }
        }
        for caution in self.cautions() {
            caution.text(&mut out);
        }
        out
    }

    fn cautions(&self) -> impl Iterator<Item = Caution> {
        let reserved = self.reserved_bits.caution().map(Caution::new);
        let tunnels = self.tunnelled.cautions().map(Caution::new);
        Caution::links(&self.unknown_links)
            .into_iter()
            .chain(reserved)
            .chain(tunnels)
            .chain(Caution::files(&self.files))
    }

    /// The points as plots.
    pub fn page(&self, origin: &Origin) -> String {
        let mut body = format!("<p class=\"soft\">{}</p>", escape(&rules(&self.rules)));
        origin.html(&mut body, &self.files);
        for caution in self.cautions() {
            caution.html(&mut body);
        }
        body.push_str(&self.grid.html());
        body.push_str("<h2>One number at a time</h2><div class=\"plots\">");
        for (axis, points) in self.axes() {
            let points = points.iter().map(|point| (f64::from(point.value), point.gain.share() * 100.0)).collect();
            let plot = Lines {
                id: axis.name().to_owned(),
                title: format!("By {}", axis.name()),
                unit: "% of frames joined",
                lines: vec![Line { label: String::new(), points, paper: false }],
            };
            let _ = write!(
                body,
                "<figure><h3>By {}</h3>{}<figcaption>{}</figcaption></figure>",
                axis.name(),
                plot.render(),
                escape(axis.about())
            );
        }
        body.push_str("</div>");
        html::page("What coalescing would gain, and with what", &format!("{}.", self.verdict), &body)
    }
}
