//! The papers' statements, and how our results are compared with them.
//!
//! RA is *Optimizing TCP Receive Performance* (receive aggregation); RSC is *Receive Side Coalescing
//! for Accelerating TCP/IP Processing*.

use super::fit::Fit;
use super::{Contender, Figure, Results, Series, routines};
use crate::experiment::{Source, Statement};
use crate::papers::{RA, RSC};
use crate::report::short;
use Contender::{Limit, Rsc, Stretch};

/// Our result in words, and whether it points the same way as the paper's.
type Judged = Option<(String, bool)>;

const fn ra(place: &'static str) -> Source {
    Source { paper: &RA, place }
}

const fn rsc(place: &'static str) -> Source {
    Source { paper: &RSC, place }
}

/// About one connection, with the sender's CPU time in the figures.
pub const LIMIT: &[Statement<Results>] = &[
    Statement {
        source: ra("figure 7"),
        says: "limit 20 over off, CPU-scaled: Linux UP +45 % (3452 to 4660 Mb/s at 93 % CPU), SMP +67 % (2988 to 4660 \
               Mb/s at 93 %), Xen +86 % (1088 to 1877 Mb/s)",
        judge: |results| gains(results, "limit", Figure::PerCpuSecond, &[Limit(20)]),
    },
    Statement {
        source: ra("§5.1"),
        says: "aggregation without ACK offload: +26 %, +36 %, +45 %",
        judge: |results| gains(results, "limit", Figure::PerCpuSecond, &[Stretch(20)]),
    },
    Statement {
        source: ra("figure 11"),
        says: "CPU time a packet follows x + y/k over the limit k",
        judge: |results| {
            let Fit { y, r2, .. } = results.fit()?;
            Some((format!("R² = {r2:.3}"), r2 >= 0.9 && y > 0.0))
        },
    },
    Statement {
        source: ra("figure 11"),
        says: "little is gained beyond 20",
        judge: |results| {
            let cost = |contender| Some(results.find("limit", contender)?.median(Figure::CpuPerByte)?.median);
            let (off, twenty, most) = (cost(Limit(1))?, cost(Limit(20))?, cost(Limit(44))?);
            let here = format!("20 saves {} ns a byte, 44 saves {} more", short(off - twenty), short(twenty - most));
            Some((here, twenty - most < (off - twenty) / 5.0))
        },
    },
    Statement {
        source: rsc("figure 12"),
        says: "CPU saved at several Gb/s: RSC_2 4 to 12 points, RSC_3 and RSC_5 4 to 18",
        judge: |results| gains(results, "limit", Figure::PerCpuSecond, &[Limit(2), Limit(3), Limit(5)]),
    },
];

/// About one connection, by the receiver's CPU alone.
pub const RECEIVER: &[Statement<Results>] = &[
    Statement {
        source: ra("figure 7"),
        says: "limit 20 over off, CPU-scaled: Linux UP +45 %, SMP +67 %, Xen +86 %",
        judge: |results| gains(results, "receiver", Figure::PerReceiverSecond, &[Limit(20)]),
    },
    Statement {
        source: ra("§5.1"),
        says: "aggregation without ACK offload: +26 %, +36 %, +45 %",
        judge: |results| gains(results, "receiver", Figure::PerReceiverSecond, &[Stretch(20)]),
    },
    Statement {
        source: ra("figures 8 and 9"),
        says: "cost of rx, tx, buffer and non-proto at limit 20: divided by 4.3 (UP), 5.5 (SMP)",
        judge: |results| {
            let stack = |wanted| {
                let costs = results.routines.iter().find(|(contender, _)| *contender == wanted);
                costs.map(|(_, costs)| routines::stack(costs))
            };
            let factor = stack(Limit(1))? / stack(Limit(20))?;
            Some((format!("divided by {factor:.1}"), factor > 1.0))
        },
    },
];

/// About the number of connections.
pub const CONNECTIONS: &[Statement<Results>] = &[Statement {
    source: ra("figure 12"),
    says: "+40 % at 400 connections (SMP)",
    judge: |results| {
        let series = results.all("connections", Limit(20)).find(|series| series.point.work.connections == 400)?;
        let gain = results.gain(series, Figure::PerReceiverSecond)?;
        Some((percent(gain), gain > 0.0))
    },
}];

/// About the size of messages.
pub const MESSAGES: &[Statement<Results>] = &[
    Statement {
        source: rsc("figure 10"),
        says: "Linux at 1 Gb/s, CPU saved: RSC_2 2 to 4 points, RSC_5 5 to 7",
        judge: |results| gains(results, "messages", Figure::PerCpuSecond, &[Rsc(2), Rsc(5)]),
    },
    Statement {
        source: rsc("figure 12"),
        says: "several Gb/s: RSC_2 4 to 12 points, RSC_3 and RSC_5 4 to 18",
        judge: |results| gains(results, "messages", Figure::PerCpuSecond, &[Rsc(2), Rsc(3), Rsc(5)]),
    },
];

/// About latency.
pub const LATENCY: &[Statement<Results>] = &[Statement {
    source: ra("table 1"),
    says: "requests a second, off and limit 20: Linux UP 7874 and 7894, SMP 7970 and 7985, Xen 6965 and 6953",
    judge: |results| {
        let series = results.find("latency", Limit(20))?;
        let rate = |series: &Series| Some(series.median(Figure::Requests)?.median);
        let (off, limit) = (rate(results.base(series)?)?, rate(series)?);
        Some((format!("{} and {}", short(off), short(limit)), (limit / off - 1.0).abs() < 0.05))
    },
}];

impl Results {
    /// The series of a contender in a chapter, one for each work.
    pub(super) fn all<'a>(&'a self, chapter: &'a str, contender: Contender) -> impl Iterator<Item = &'a Series> {
        let wanted = move |series: &&Series| series.point.chapter == chapter && series.point.contender == contender;
        self.series.iter().filter(wanted)
    }

    /// The first of them.
    pub(super) fn find(&self, chapter: &str, contender: Contender) -> Option<&Series> {
        self.series.iter().find(|Series { point, .. }| point.chapter == chapter && point.contender == contender)
    }

    /// How much larger a figure is than without coalescing, as a share.
    pub(super) fn gain(&self, series: &Series, figure: Figure) -> Option<f64> {
        Some(series.ratio(self.base(series)?, figure)? - 1.0)
    }
}

fn percent(gain: f64) -> String {
    format!("{:+.0} %", gain * 100.0)
}

/// Gains of contenders over no coalescing, the least and the most of each over all works. It points the
/// papers' way if each gains at every work. `None` if no contender was measured.
fn gains(results: &Results, chapter: &str, figure: Figure, contenders: &[Contender]) -> Judged {
    let (mut words, mut holds) = (Vec::new(), true);
    for contender in contenders {
        let gains = results.all(chapter, *contender).filter_map(|series| results.gain(series, figure));
        let range = gains.map(|gain| (gain, gain)).reduce(|(low, high), (gain, _)| (low.min(gain), high.max(gain)));
        let Some((low, high)) = range else { continue };
        holds &= low > 0.0;
        let range = if low == high { percent(low) } else { format!("{} to {}", percent(low), percent(high)) };
        words.push(format!("{} {range}", contender.name()));
    }
    (!words.is_empty()).then(|| (format!("{}, in {} over off", words.join(", "), figure.unit()), holds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::bump::{CHAPTERS, Point, Work};
    use crate::report::Machine;
    use baton_apps::load::{Kind, Outcome};
    use baton_apps::measure::Cpu;

    /// Results of the chapter about the limit: CPU seconds of each contender for the same bytes.
    fn results(busy: &[(Contender, f64)]) -> Results {
        let work = Work { kind: Kind::Send, connections: 1, size: 64 << 10 };
        let series = busy.iter().map(|&(contender, busy)| {
            let cpu = Cpu { busy, ..Cpu::default() };
            let run = Outcome { seconds: 1.0, bytes: 1_000_000_000, cpu, ..Outcome::default() };
            Series { point: Point { chapter: "limit".into(), contender, work }, runs: vec![run] }
        });
        let series = series.collect();
        Results { machine: Machine::default(), series, bumps: Vec::new(), routines: Vec::new() }
    }

    fn verdicts(results: &Results) -> Vec<Option<bool>> {
        CHAPTERS[0].statements.iter().map(|statement| statement.claim(results).holds).collect()
    }

    #[test]
    fn results_like_the_papers_agree_with_them() {
        let costs = |k: u32| (Limit(k), 1.0 + 3.0 / f64::from(k));
        let mut busy: Vec<_> = [1, 2, 3, 5, 20, 44].map(costs).into();
        busy.push((Stretch(20), 2.0));
        assert_eq!(verdicts(&results(&busy)), [Some(true); 5]);
    }

    #[test]
    fn a_loss_differs_and_what_is_missing_is_not_measured() {
        let loses = results(&[(Limit(1), 1.0), (Limit(20), 2.0)]);
        assert_eq!(verdicts(&loses), [Some(false), None, None, None, None]);
        let claim = CHAPTERS[0].statements[0].claim(&loses);
        assert_eq!(claim.here, "limit 20 -50 %, in Gb/CPU s over off");
    }
}
