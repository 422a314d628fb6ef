//! Figures 4 to 8 of RSC (*Receive Side Coalescing for Accelerating TCP/IP Processing*), reproduced, with
//! the paper's statements next to our results.

use super::claims::claims;
use super::rows::rows;
use super::{Cell, Outcome, STUDIED};
use crate::experiment::Findings;
use crate::papers::exhibits::rsc::WHY;
use crate::report::claim;
use crate::report::claim::Claim;
use crate::report::html;
use crate::report::lines::{Line, Lines};
use crate::report::origin::Origin;
use baton_analyse::sweep::Axis;
use baton_apps::html_text::escape;
use std::fmt::Write as _;

/// A figure: what its lines and its steps are.
struct Figure {
    number: u8,
    title: &'static str,
    /// x, its name.
    x: &'static str,
}

const FIGURES: [Figure; 5] = [
    Figure { number: 4, title: "4, 8 and 16 connections", x: "bytes of a message; one line per number of connections" },
    Figure { number: 5, title: "16 to 90 connections", x: "bytes of a message; one line per number of connections" },
    Figure { number: 6, title: "cache entries", x: "entries; one line per message size; 16 connections" },
    Figure { number: 7, title: "buffer size", x: "bytes; one line per message size; 16 connections" },
    Figure { number: 8, title: "moderation window", x: "frames; one line per message size; 16 connections" },
];

fn kib(bytes: usize) -> String {
    format!("{} KB", bytes >> 10)
}

impl Outcome {
    /// The results in every form. The page names its origin.
    ///
    /// # Errors
    /// If they have no form in JSON.
    pub fn findings(&self, origin: &Origin) -> anyhow::Result<Findings> {
        Ok(Findings::new(self, self.table(), claims(self))?.with(self.csv(), self.page(origin)).showing(rows(self)))
    }

    /// The paper's statements about a figure, compared with the transfers.
    fn claims(&self, figure: u8) -> Vec<Claim> {
        let source = format!("RSC figure {figure}");
        claims(self).into_iter().filter(|claim| claim.source == source).collect()
    }

    /// Lines of a figure: label, and share in percent by x.
    pub(super) fn lines(&self, figure: u8) -> Vec<Line> {
        let studied = || self.cells.iter().filter(|cell| cell.senders == STUDIED);
        let by_senders = |wanted: &[usize]| {
            let line = |senders: &usize| {
                let cells = self.cells.iter().filter(|cell| cell.senders == *senders);
                let points = cells.map(|cell| (cell.message as f64, cell.base() * 100.0)).collect();
                Line { label: senders.to_string(), points, paper: false }
            };
            wanted.iter().map(line).filter(|line| !line.points.is_empty()).collect()
        };
        let by_value = |axis: Axis| {
            let line = |cell: &Cell| {
                let points = cell.points.iter().filter(|point| point.axis == axis);
                let points = points.map(|point| (f64::from(point.value), point.gain.share() * 100.0)).collect();
                Line { label: kib(cell.message), points, paper: false }
            };
            studied().map(line).filter(|line| !line.points.is_empty()).collect()
        };
        match figure {
            4 => by_senders(&[4, 8, 16]),
            5 => by_senders(&[16, 30, 60, 90]),
            6 => by_value(Axis::Cache),
            7 => by_value(Axis::Buffer),
            _ => by_value(Axis::Window),
        }
    }

    /// The figures as tables for a terminal.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for figure in &FIGURES {
            let lines = self.lines(figure.number);
            let Some(first) = lines.first() else { continue };
            let _ = writeln!(out, "RSC Figure {}: {} — % of frames joined", figure.number, figure.title);
            let steps: String = first.points.iter().map(|(x, _)| format!("{x:>8}")).collect();
            let _ = writeln!(out, "  {:>8}{steps}   ({})", "", figure.x);
            for line in &lines {
                let values: String = line.points.iter().map(|(_, y)| format!("{y:>8.1}")).collect();
                let _ = writeln!(out, "  {:>8}{values}", line.label);
            }
            claim::lines(&mut out, &self.claims(figure.number));
            out.push('\n');
        }
        let _ = writeln!(out, "{WHY}");
        out
    }

    /// Every point as comma-separated values.
    pub fn csv(&self) -> String {
        let mut out = "senders,message,axis,value,frames_in,eliminated,runs\n".to_owned();
        for cell in &self.cells {
            for point in &cell.points {
                let (axis, value) = match point.axis {
                    Axis::Connections => ("base", 0),
                    other => (other.name(), point.value),
                };
                let _ = writeln!(
                    out,
                    "{},{},{axis},{value},{},{},{}",
                    cell.senders, cell.message, point.gain.frames_in, point.gain.eliminated, point.gain.runs
                );
            }
        }
        out
    }

    /// The figures as plots.
    pub fn page(&self, origin: &Origin) -> String {
        let mut body = String::new();
        origin.html(&mut body, &[]);
        body.push_str("<div class=\"plots\">");
        for figure in &FIGURES {
            let lines = self.lines(figure.number);
            if lines.is_empty() {
                continue;
            }
            let title = format!("Figure {}: {}", figure.number, figure.title);
            let id = format!("rsc-{}", figure.number);
            let plot = Lines { id, title: title.clone(), unit: "% of frames joined", lines };
            let _ = write!(
                body,
                "<figure><h3>{}</h3>{}<figcaption>x: {}</figcaption>",
                escape(&title),
                plot.render(),
                figure.x
            );
            claim::paragraphs(&mut body, &self.claims(figure.number));
            body.push_str("</figure>");
        }
        let _ = write!(body, "</div><h2>Why it differs</h2><p>{WHY}</p><h2>Machine</h2><dl>");
        for (name, value) in self.machine.facts() {
            let _ = write!(body, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
        }
        body.push_str("</dl>");
        let lead = "Frames that receive side coalescing joins, of 10,000 that a receiver gets from real kernel senders, \
            by the rules of RSC §4.";
        html::page("RSC Figures 4 to 8, reproduced", lead, &body)
    }
}
