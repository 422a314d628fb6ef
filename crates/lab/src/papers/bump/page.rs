//! The findings as a table, as raw values and as a page.

use super::fit::{Fit, fit};
use super::routines;
use super::{CHAPTERS, Chapter, Contender, Figure, Point, Results, Series, Work};
use crate::experiment::Findings;
use crate::papers::exhibits;
use crate::report::Side;
use crate::report::claim::{self, Claim};
use crate::report::html::page;
use crate::report::plot::{Group, Mark, Plot, Row};
use crate::report::short;
use baton_apps::html_text::escape;
use baton_apps::measure::Median;
use std::fmt::Write as _;

impl Results {
    /// The results in every form.
    ///
    /// # Errors
    /// If they have no form in JSON.
    pub fn findings(&self) -> anyhow::Result<Findings> {
        let claims = self.chapters().flat_map(|chapter| self.claims(chapter)).collect();
        Ok(Findings::new(self, self.table(), claims)?.with(self.csv(), self.page()).showing(super::rows::rows(self)))
    }

    /// The papers' statements about a chapter, compared with the results.
    fn claims(&self, chapter: &Chapter) -> Vec<Claim> {
        chapter.statements.iter().map(|statement| statement.claim(self)).collect()
    }

    /// The series of a chapter.
    fn of<'a>(&'a self, chapter: &'a Chapter) -> impl Iterator<Item = &'a Series> {
        self.series.iter().filter(move |series| series.point.chapter == chapter.name)
    }

    /// The series without coalescing at the same work.
    pub(super) fn base(&self, series: &Series) -> Option<&Series> {
        let off = |contender| matches!(contender, Contender::Limit(1) | Contender::Rsc(1));
        let Point { chapter, work, .. } = &series.point;
        self.series
            .iter()
            .find(|Series { point, .. }| point.chapter == *chapter && point.work == *work && off(point.contender))
    }

    /// Chapters of which there are runs.
    fn chapters(&self) -> impl Iterator<Item = &'static Chapter> {
        CHAPTERS.iter().filter(|chapter| self.of(chapter).next().is_some())
    }

    /// How CPU time a byte depends on the limit (RA §5.2).
    pub fn fit(&self) -> Option<Fit> {
        let points: Vec<(u32, f64)> = self
            .series
            .iter()
            .filter(|series| series.point.chapter == "limit")
            .filter_map(|series| match series.point.contender {
                Contender::Limit(k) => Some((k, series.median(Figure::CpuPerByte)?.median)),
                _ => None,
            })
            .collect();
        fit(&points)
    }

    /// The figures as a table for a terminal.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for chapter in self.chapters() {
            self.chapter(&mut out, chapter);
        }
        let _ = writeln!(
            out,
            "medians (smallest–largest) of alternated rounds; 'over off' is the median of the rounds' ratios\n\
             CPU time is the whole machine's, the sender's included; where the receiver has a CPU of its own, that one's\n\
             others used {:.0} % of the CPUs just before",
            self.machine.background * 100.0
        );
        out
    }

    fn chapter(&self, out: &mut String, chapter: &Chapter) {
        let (rate, unit, per) = match chapter.figure() {
            Figure::Requests => (Figure::Requests, "/s", ""),
            figure => (Figure::Throughput, "Gb/s", figure.unit()),
        };
        let _ = writeln!(out, "{}", title(chapter));
        let _ =
            writeln!(out, "  {:<28}{:>12}{:>8}{:>26}{:>12}{:>10}", "", "connections", "bytes", unit, per, "over off");
        for series in self.of(chapter) {
            let Some(value) = series.median(rate) else { continue };
            let per = chapter.figure();
            let ratio = self.base(series).and_then(|base| series.ratio(base, per));
            let gain = ratio.map_or(String::new(), |ratio| format!("{:+.0} %", (ratio - 1.0) * 100.0));
            let efficiency = series.median(per).filter(|_| !chapter.requests);
            let _ = writeln!(
                out,
                "  {:<28}{:>12}{:>8}{:>26}{:>12}{:>10}",
                series.point.contender.name(),
                series.point.work.connections,
                series.point.work.size,
                format!("{} ({}–{})", short(value.median), short(value.min), short(value.max)),
                efficiency.map_or(String::new(), |value| short(value.median)),
                gain,
            );
        }
        if let (true, Some(Fit { x, y, r2 })) = (chapter.name == "limit", self.fit()) {
            let _ = writeln!(
                out,
                "  CPU time per byte at limit k is x + y/k: x = {} ns, y = {} ns, R² = {r2:.3}",
                short(x),
                short(y)
            );
        }
        if chapter.routines {
            routines::table(out, &self.routines);
        }
        claim::lines(out, &self.claims(chapter));
        for line in chapter.differs {
            let _ = writeln!(out, "  differs: {line}");
        }
    }

    /// Every run as comma-separated values.
    pub fn csv(&self) -> String {
        let mut out =
            "chapter,contender,connections,size,seconds,bytes,requests,cpu_busy_s,receiver_busy_s,p50_ns\n".to_owned();
        for series in &self.series {
            for run in &series.runs {
                let _ = writeln!(
                    out,
                    "{},\"{}\",{},{},{:.6},{},{},{:.2},{},{}",
                    series.point.chapter,
                    series.point.contender.name(),
                    series.point.work.connections,
                    series.point.work.size,
                    run.seconds,
                    run.bytes,
                    run.requests,
                    run.cpu.busy,
                    run.peer_cpu.map_or(String::new(), |cpu| format!("{:.2}", cpu.busy)),
                    run.latency_ns.map_or(String::new(), |[p50, ..]| p50.to_string()),
                );
            }
        }
        out
    }

    /// A page with the figures as plots and the table.
    pub fn page(&self) -> String {
        let mut body = String::from("<div class=\"plots\">");
        for chapter in self.chapters() {
            for plot in self.plots(chapter) {
                if let Some(svg) = plot.render() {
                    let _ = write!(
                        body,
                        "<figure><h3>{} <span class=\"soft\">{}</span></h3>{svg}</figure>",
                        escape(&plot.title),
                        plot.unit
                    );
                }
            }
        }
        let _ = write!(body, "</div><h2>Numbers</h2><div class=\"scroll\"><pre>{}</pre></div>", escape(&self.table()));
        let lead = format!(
            "The kernel's TCP receives over a veth pair, single segments, with Baton's bump in front of it. {} × {}, \
             Linux {}.",
            self.machine.cpus, self.machine.cpu, self.machine.kernel
        );
        page("What coalescing saves the kernel", &lead, &body)
    }

    fn plots(&self, chapter: &Chapter) -> Vec<Plot> {
        let mut figures = vec![(chapter.name, chapter.figure())];
        if chapter.name == "limit" {
            figures.push(("limit-cpu", Figure::CpuPerByte));
        }
        let plot = |(id, figure): (&'static str, Figure)| Plot {
            id: id.to_owned(),
            title: title(chapter),
            unit: figure.unit(),
            groups: self.groups(chapter, figure),
        };
        figures.into_iter().map(plot).collect()
    }

    /// One group for each work. Where the paper has a comparable gain, a bar shows it applied to our
    /// own base.
    fn groups(&self, chapter: &Chapter, figure: Figure) -> Vec<Group> {
        let mut groups = Vec::new();
        let mut works: Vec<Work> = self.of(chapter).map(|series| series.point.work).collect();
        works.dedup();
        for work in works {
            let mut rows = Vec::new();
            for series in self.of(chapter).filter(|series| series.point.work == work) {
                let Some(value) = series.median(figure) else { continue };
                let side = if series.point.contender == Contender::Kernel { Side::Kernel } else { Side::Baton };
                rows.push(Row { label: series.point.contender.name(), side, mark: Mark::Bar(value) });
                let gain = paper_gain(chapter.name, series.point.contender, work.connections);
                if let (true, Some(gain), Some(base)) = (figure == chapter.figure(), gain, self.base(series))
                    && let Some(off) = base.median(figure)
                {
                    let value = off.median * gain;
                    let mark = Mark::Bar(Median { median: value, min: value, max: value });
                    rows.push(Row { label: format!("paper: off × {gain}"), side: Side::Kernel, mark });
                }
            }
            groups.push(Group { label: format!("{} connections, {} bytes", work.connections, work.size), rows });
        }
        groups
    }
}

/// The title of a chapter, with the places in papers that it repeats.
fn title(chapter: &Chapter) -> String {
    let sources: Vec<String> = exhibits::of(chapter.experiment.id).map(ToString::to_string).collect();
    format!("{} ({})", chapter.experiment.title, sources.join(", "))
}

/// The paper's CPU-scaled gain over no coalescing.
fn paper_gain(chapter: &str, contender: Contender, connections: usize) -> Option<f64> {
    match (chapter, contender, connections) {
        ("limit" | "receiver", Contender::Limit(20), _) => Some(1.67),
        ("limit" | "receiver", Contender::Stretch(20), _) => Some(1.36),
        ("connections", Contender::Limit(20), 400) => Some(1.40),
        _ => None,
    }
}
