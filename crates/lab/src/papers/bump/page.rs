//! The findings as a table, as raw values and as a page.

use super::routines;
use super::{CHAPTERS, Chapter, Contender, Figure, Findings, Series};
use crate::report::Side;
use crate::report::html::page;
use crate::report::plot::{Group, Mark, Plot, Row};
use crate::report::short;
use baton_apps::html_text::escape;
use baton_apps::measure::Median;
use std::fmt::Write as _;

/// A fit of CPU time over the limit k.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fit {
    /// The part that does not depend on the limit, in the unit of the values.
    pub x: f64,
    /// The part that is divided by the limit.
    pub y: f64,
    /// Coefficient of determination.
    pub r2: f64,
}

/// Fits `x + y/k` to pairs of k and value by least squares; `None` of fewer than three.
pub fn fit(points: &[(u32, f64)]) -> Option<Fit> {
    let n = points.len() as f64;
    if points.len() < 3 {
        return None;
    }
    let pairs: Vec<(f64, f64)> = points.iter().map(|(k, value)| (1.0 / f64::from(*k), *value)).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / n;
    let (mean_u, mean_v) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
    let y = sum(&|p| (p.0 - mean_u) * (p.1 - mean_v)) / sum(&|p| (p.0 - mean_u).powi(2));
    let x = mean_v - y * mean_u;
    let rest = sum(&|p| (p.1 - x - y * p.0).powi(2));
    let all = sum(&|p| (p.1 - mean_v).powi(2));
    Some(Fit { x, y, r2: 1.0 - rest / all })
}

impl Findings {
    fn of<'a>(&'a self, chapter: &'a Chapter) -> impl Iterator<Item = &'a Series> {
        self.series.iter().filter(move |series| series.chapter == chapter.name)
    }

    /// The series without coalescing at the same work.
    fn base(&self, series: &Series) -> Option<&Series> {
        let off = |contender| matches!(contender, Contender::Limit(1) | Contender::Rsc(1));
        self.series.iter().find(|s| s.chapter == series.chapter && s.work == series.work && off(s.contender))
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
            .filter(|series| series.chapter == "limit")
            .filter_map(|series| match series.contender {
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
        let _ = writeln!(out, "{}", chapter.title);
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
                series.contender.name(),
                series.work.connections,
                series.work.size,
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
        for line in chapter.paper {
            let _ = writeln!(out, "  paper: {line}");
        }
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
                    series.chapter,
                    series.contender.name(),
                    series.work.connections,
                    series.work.size,
                    run.seconds,
                    run.bytes,
                    run.requests,
                    run.cpu.busy(),
                    run.peer_cpu.map_or(String::new(), |cpu| format!("{:.2}", cpu.busy())),
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
            id,
            title: chapter.title.to_owned(),
            unit: figure.unit(),
            groups: self.groups(chapter, figure),
        };
        figures.into_iter().map(plot).collect()
    }

    /// One group for each work. Where the paper has a comparable gain, a bar shows it applied to our
    /// own base.
    fn groups(&self, chapter: &Chapter, figure: Figure) -> Vec<Group> {
        let mut groups = Vec::new();
        for work in chapter.works {
            let mut rows = Vec::new();
            for series in self.of(chapter).filter(|series| series.work == *work) {
                let Some(value) = series.median(figure) else { continue };
                let side = if series.contender == Contender::Kernel { Side::Kernel } else { Side::Baton };
                rows.push(Row { label: series.contender.name(), side, mark: Mark::Bar(value) });
                let gain = paper_gain(chapter.name, series.contender, work.connections);
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

/// The paper's CPU-scaled gain over no coalescing.
fn paper_gain(chapter: &str, contender: Contender, connections: usize) -> Option<f64> {
    match (chapter, contender, connections) {
        ("limit" | "receiver", Contender::Limit(20), _) => Some(1.67),
        ("limit" | "receiver", Contender::Stretch(20), _) => Some(1.36),
        ("connections", Contender::Limit(20), 400) => Some(1.40),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_finds_what_points_were_made_of() {
        let points: Vec<(u32, f64)> = [1, 2, 3, 5, 20, 44].map(|k| (k, 0.4 + 1.2 / f64::from(k))).into();
        let Fit { x, y, r2 } = fit(&points).unwrap();
        assert!((x - 0.4).abs() < 1e-9 && (y - 1.2).abs() < 1e-9 && (r2 - 1.0).abs() < 1e-9, "{x} {y} {r2}");
        assert_eq!(fit(&points[..2]), None);
    }
}
