//! The results of the arms: table, values, plots, and the paper's statements.

use super::{Arm, FIGURE_6, Point, Report, Run, SETTLED, Sample, Series};
use crate::experiment::{Findings, Source, Statement};
use crate::papers::CH;
use crate::papers::ch2006::PART;
use crate::report::claim::{self, Claim};
use crate::report::html::page;
use crate::report::lines::{Line, Lines};
use crate::report::plot::{Group, Mark, Plot, Row};
use crate::report::{Machine, Side, short};
use baton_apps::measure::{Quartiles, median, quartiles};
use std::fmt::Write as _;

const STATEMENTS: [Statement<Report>; 4] = [
    Statement {
        source: FIGURE_6,
        says: "\"the load control mechanism is able to adjust the number of connections on the NIC in order to avoid \
               overload conditions\" (here: within 5 s)",
        judge: |report| {
            let settled: Vec<Option<f64>> = report.find(Arm::Auto)?.runs.iter().map(Run::settled_s).collect();
            let slowest = settled.iter().copied().try_fold(0.0, |slowest, it| Some(f64::max(slowest, it?)));
            let words = slowest.map_or("never in a run".to_owned(), |slowest| format!("after {slowest:.1} s at most"));
            Some((format!("it sheds no more {words}"), slowest.is_some_and(|it| it <= SETTLED.as_secs_f64())))
        },
    },
    Statement {
        source: FIGURE_6,
        says: "\"The resulting server throughput is very close to that\" with the best manual limit (here: at least \
               0.95 of that, and 0.97 of the kernel's)",
        judge: |report| {
            let (best, to_best) = report.best()?;
            let to_kernel = report.ratio(Arm::Auto, Arm::Kernel)?.median;
            let here = format!("{to_best:.2} of that with {best}, {to_kernel:.2} of that without Baton");
            Some((here, to_best >= 0.95 && to_kernel >= 0.97))
        },
    },
    Statement {
        source: Source { paper: &CH, place: "section 3.2" },
        says: "\"the NIC may also actively restore the connections back to the host operating system\" (here: and none \
               is reset, and no request is lost)",
        judge: |report| {
            let runs = || report.find(Arm::Auto).into_iter().flat_map(|series| &series.runs);
            let sum = |count: fn(&Run) -> u64| runs().map(count).sum::<u64>();
            let (resets, lost, errors) = (sum(|run| run.resets), sum(|run| run.lost), sum(|run| run.errors));
            let again: u64 = runs().map(|run| run.accepted.saturating_sub(report.connections.into())).sum();
            let here =
                format!("{resets} resets, {again} connections made again, {lost} requests lost, {errors} errors");
            (runs().count() > 0).then_some((here, [resets, lost, errors, again] == [0; 4]))
        },
    },
    Statement {
        source: Source { paper: &CH, place: "figure 8" },
        says: "a faster NIC gets more connections: with 400, 600 and 800 MIPS \"from 45% to 70% and 85%\" (here: 90 % of \
               those before the throttle are back before the end)",
        judge: |report| {
            let shares = report.find(Arm::Auto)?.values(|run| run.back_share());
            let least = shares.iter().copied().reduce(f64::min)?;
            Some((format!("{:.0} % of those before the throttle at least", least * 100.0), least >= 0.9))
        },
    },
];

/// Requests a second between the first and the last of some samples.
fn rate(samples: &[Sample]) -> Option<f64> {
    let (first, last) = (samples.first()?, samples.last()?);
    let ms = last.at_ms - first.at_ms;
    (ms > 0).then(|| (last.requests - first.requests) as f64 * 1e3 / ms as f64)
}

impl Run {
    /// Requests a second once load control has to have settled.
    fn rate(&self) -> Option<f64> {
        let from = self.throttled.iter().position(|sample| u128::from(sample.at_ms) >= SETTLED.as_millis())?;
        rate(&self.throttled[from..])
    }

    /// Seconds until the load control shed no more and its queue was short.
    fn settled_s(&self) -> Option<f64> {
        let begun = self.throttled.iter().position(|sample| sample.sheds || sample.queued > sample.high)?;
        let settled = self.throttled[begun..].iter().find(|sample| !sample.sheds && sample.queued <= sample.high)?;
        Some(settled.at_ms as f64 / 1e3)
    }

    /// The part of the connections before the throttle that are on the engine at the end.
    fn back_share(&self) -> Option<f64> {
        let (before, after) = (self.throttled.first()?, self.freed.last()?);
        (before.on_engine > 0).then(|| f64::from(after.on_engine) / f64::from(before.on_engine))
    }
}

impl Report {
    fn find(&self, arm: Arm) -> Option<&Series> {
        self.series.iter().find(|series| series.point.arm == arm)
    }

    fn ratio(&self, arm: Arm, base: Arm) -> Option<Quartiles> {
        quartiles(&self.find(arm)?.ratios(self.find(base)?, Run::rate))
    }

    /// The fixed limit with the highest rate, and the ratio of load control's rate to it.
    fn best(&self) -> Option<(Arm, f64)> {
        let rate = |series: &Series| median(&series.values(Run::rate)).map_or(0.0, |m| m.median);
        let fixed = self.series.iter().filter(|series| matches!(series.point.arm, Arm::Fixed(_)));
        let best = fixed.max_by(|a, b| rate(a).total_cmp(&rate(b)))?.point.arm;
        Some((best, self.ratio(Arm::Auto, best)?.median))
    }

    fn claims(&self) -> Vec<Claim> {
        STATEMENTS.iter().map(|statement| statement.claim(self)).collect()
    }

    /// The results in every form.
    ///
    /// # Errors
    /// If they have no form in JSON.
    pub fn findings(&self) -> anyhow::Result<Findings> {
        Ok(Findings::new(self, self.table(), self.claims())?.with(self.csv(), self.page()))
    }

    fn table(&self) -> String {
        let heads = ["requests/s", "to the kernel", "on engine", "settled", "back", "resets", "lost", "errors"];
        let mut out = format!("{:<20}", "");
        heads.iter().for_each(|head| out.push_str(&format!("{head:>14}")));
        out.push('\n');
        for series @ Series { point: Point { arm }, runs } in &self.series {
            let middle = |figure: &dyn Fn(&Run) -> Option<f64>| median(&series.values(figure)).map(|m| m.median);
            let text = |value: Option<f64>, unit: &str| value.map_or(String::new(), |v| format!("{}{unit}", short(v)));
            let last = |run: &Run| run.throttled.last().map(|sample| f64::from(sample.on_engine));
            let is_auto = *arm == Arm::Auto;
            let sum = |count: fn(&Run) -> u64| runs.iter().map(count).sum::<u64>().to_string();
            let cells = [
                text(middle(&Run::rate), ""),
                self.ratio(*arm, Arm::Kernel).map_or(String::new(), |q| format!("{:.2}", q.median)),
                text(middle(&last), ""),
                text(middle(&Run::settled_s).filter(|_| is_auto), " s"),
                text(middle(&Run::back_share).map(|share| share * 100.0), " %"),
                sum(|run| run.resets),
                sum(|run| run.lost),
                sum(|run| run.errors),
            ];
            let _ = write!(out, "{:<20}", arm.to_string());
            cells.iter().for_each(|cell| out.push_str(&format!("{cell:>14}")));
            out.push('\n');
        }
        let _ = writeln!(
            out,
            "{} connections; engine with {PART} % of a CPU; medians of {} rounds; requests after {} s; connections on \
             the engine at the end of the throttle; other programs used {:.0} % of the CPUs just before",
            self.connections,
            self.series.first().map_or(0, |series| series.runs.len()),
            SETTLED.as_secs(),
            self.machine.background * 100.0
        );
        claim::lines(&mut out, &self.claims());
        out
    }

    fn csv(&self) -> String {
        let mut out =
            "arm,round,throttled,at_ms,requests,on_engine,soft_limit,queued,high,sheds,idle_permille\n".to_owned();
        for Series { point, runs } in &self.series {
            for (round, run) in runs.iter().enumerate() {
                for (throttled, samples) in [(true, &run.throttled), (false, &run.freed)] {
                    for Sample { at_ms, requests, on_engine, soft_limit, queued, high, sheds, idle_permille } in samples
                    {
                        let _ = writeln!(
                            out,
                            "{point},{round},{throttled},{at_ms},{requests},{on_engine},{soft_limit},{queued},{high},\
                             {sheds},{idle_permille}"
                        );
                    }
                }
            }
        }
        out
    }

    /// Lines of a run of load control: a figure for each second.
    fn line(run: &Run, label: &str, figure: fn(&Sample) -> u32) -> Line {
        let samples = run.throttled.iter().chain(&run.freed);
        let mut points: Vec<(f64, f64)> =
            samples.map(|sample| ((sample.at_ms / 1000) as f64, f64::from(figure(sample)))).collect();
        points.dedup_by_key(|(second, _)| *second);
        Line { label: label.to_owned(), points, paper: false }
    }

    fn page(&self) -> String {
        let mut body = String::from("<div class=\"plots\">");
        let row = |series: &Series| {
            let side = if series.point.arm == Arm::Auto { Side::Baton } else { Side::Kernel };
            Some(Row { label: series.point.to_string(), side, mark: Mark::Bar(median(&series.values(Run::rate))?) })
        };
        let rows = self.series.iter().filter_map(row).collect();
        let label = format!("{} connections, engine with {PART} % of a CPU", self.connections);
        let groups = vec![Group { label, rows }];
        let plot = Plot { id: "rate".to_owned(), title: "Requests by limit".to_owned(), unit: "requests/s", groups };
        if let Some(svg) = plot.render() {
            let _ =
                write!(body, "<figure><h3>{} <span class=\"soft\">{}</span></h3>{svg}</figure>", plot.title, plot.unit);
        }
        if let Some(run) = self.find(Arm::Auto).and_then(|series| series.runs.first()) {
            let lines = vec![
                Self::line(run, "there", |sample| sample.on_engine),
                Self::line(run, "limit", |sample| sample.soft_limit),
            ];
            let plot =
                Lines { id: "load".into(), title: "Connections on the engine".into(), unit: "connections", lines };
            let freed = run.freed.first().map_or(0.0, |sample| sample.at_ms as f64 / 1e3);
            let _ = write!(
                body,
                "<figure><h3>Connections on the engine, and their limit</h3>{}<figcaption>x: seconds since the engine \
                 got {PART} % of a CPU; from {freed:.0} s on it has all of it</figcaption></figure>",
                plot.render()
            );
        }
        body.push_str("</div><h2>The paper's statements</h2>");
        claim::paragraphs(&mut body, &self.claims());
        let _ = write!(body, "<h2>Numbers</h2><div class=\"scroll\"><pre>{}</pre></div>", self.table());
        let Machine { cpus, cpu, kernel, .. } = &self.machine;
        let lead = format!("nginx under wrk, with an engine that is too slow. {cpus} × {cpu}, Linux {kernel}.");
        page("Load control", &lead, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: u64, requests: u64, queued: u32, on_engine: u32) -> Sample {
        Sample { at_ms, requests, queued, on_engine, high: 64, ..Sample::default() }
    }

    fn run(rate: u64, back: u32) -> Run {
        Run {
            throttled: vec![
                sample(0, 0, 0, 100),
                sample(1000, 1, 65, 90),
                sample(3000, 2, 64, 50),
                sample(5000, 100, 0, 50),
                sample(15_000, 100 + 10 * rate, 0, 50),
            ],
            freed: vec![sample(16_000, 0, 0, back)],
            resets: 0,
            accepted: 100,
            lost: 0,
            errors: 0,
        }
    }

    fn report(auto: Run) -> Report {
        let series = |arm, run| Series { point: Point { arm }, runs: vec![run] };
        let series = vec![
            series(Arm::Kernel, run(1000, 0)),
            series(Arm::Fixed(10), run(800, 0)),
            series(Arm::Fixed(20), run(1010, 0)),
            series(Arm::Auto, auto),
        ];
        Report { machine: Machine::here(0.0), connections: 100, series }
    }

    fn holds(auto: Run) -> Vec<Option<bool>> {
        report(auto).claims().into_iter().map(|claim| claim.holds).collect()
    }

    #[test]
    fn each_statement_can_fail() {
        let all = |failing: usize| (0..4).map(|at| Some(at != failing)).collect::<Vec<_>>();
        assert_eq!(holds(run(980, 90)), all(4));
        let mut slow = run(980, 90);
        slow.throttled[2].queued = 65;
        slow.throttled[3].queued = 65;
        assert_eq!(holds(slow), all(0));
        assert_eq!(holds(run(950, 90)), all(1), "less than the kernel");
        let spoilers: [fn(&mut Run); 4] =
            [|run| run.resets = 1, |run| run.lost = 1, |run| run.errors = 1, |run| run.accepted = 101];
        for spoil in spoilers {
            let mut run = run(980, 90);
            spoil(&mut run);
            assert_eq!(holds(run), all(2));
        }
        assert_eq!(holds(run(980, 89)), all(3));
    }

    #[test]
    fn the_best_limit_is_that_with_the_highest_rate() {
        assert_eq!(report(run(505, 90)).best(), Some((Arm::Fixed(20), 0.5)));
    }
}
