//! CPU time of the whole machine, from `/proc/stat`, and medians.
//!
//! The times of a process do not include the soft-interrupt work that the kernel does on its behalf,
//! which is most of the work of a network path. So CPU time here is that of all CPUs together. It
//! includes other programs on the machine; [`Cpu::idle_check`] measures how much they use.

use nix::time::ClockId;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::ops::Sub;
use std::time::Duration;

/// Ticks per second in `/proc/stat`: `USER_HZ`, fixed at 100 on x86 and ARM.
const TICKS: f64 = 100.0;

/// The line of all CPUs in `/proc/stat`.
const ALL: &str = "cpu ";

/// CPU time in seconds, all CPUs together. Only differences mean something.
///
/// `busy` is exact where the kernel stops its tick on idle CPUs (`NO_HZ`): time less idle time, which
/// `kernel/time/tick-sched.c` then counts by the clock. The others are samples, one a tick. Samples miss
/// up to a third of the work of a program that sleeps and wakes thousands of times a second.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cpu {
    /// Time spent working, without stolen time.
    pub busy: f64,
    /// Programs, including niced ones.
    pub user: f64,
    /// The kernel on behalf of programs.
    pub system: f64,
    /// Hardware interrupts.
    pub irq: f64,
    /// Soft interrupts: most of the kernel's network path.
    pub softirq: f64,
    /// Time that the hypervisor gave to other machines.
    pub steal: f64,
}

impl Cpu {
    /// Reads the machine's counters.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read or does not have the format of proc_stat(5).
    pub fn now() -> io::Result<Cpu> {
        Cpu::read(ALL)
    }

    /// Reads the counters of one CPU.
    ///
    /// # Errors
    /// The errors of [`Cpu::now`], and an error if there is no such CPU.
    pub fn of(number: usize) -> io::Result<Cpu> {
        Cpu::read(&format!("cpu{number} "))
    }

    fn read(name: &str) -> io::Result<Cpu> {
        let clock = Duration::from(ClockId::CLOCK_BOOTTIME.now()?).as_secs_f64();
        Cpu::parse(&std::fs::read_to_string("/proc/stat")?, name, clock)
            .ok_or_else(|| io::Error::other(format!("/proc/stat has no line {name}")))
    }

    /// `clock` is the time at which the kernel wrote `stat`, in seconds.
    fn parse(stat: &str, name: &str, clock: f64) -> Option<Cpu> {
        let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
        let fields: Vec<f64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let seconds = |i: usize| fields.get(i).map(|ticks| ticks / TICKS);
        let cpus = if name == ALL { stat.lines().filter(|line| line.starts_with("cpu")).count() - 1 } else { 1 };
        Some(Cpu {
            busy: clock * cpus as f64 - seconds(3)? - seconds(4)? - seconds(7)?,
            user: seconds(0)? + seconds(1)?,
            system: seconds(2)?,
            irq: seconds(5)?,
            softirq: seconds(6)?,
            steal: seconds(7)?,
        })
    }

    /// The share of soft interrupts in the work, by the samples; `None` if there was no work.
    pub fn softirq_share(&self) -> Option<f64> {
        let all = self.user + self.system + self.irq + self.softirq;
        (all > 0.0).then(|| self.softirq / all)
    }

    /// The share of the machine's CPUs that other programs use, measured while this one waits.
    ///
    /// # Errors
    /// The errors of [`Cpu::now`].
    pub fn idle_check(wait: Duration) -> io::Result<f64> {
        let before = Cpu::now()?;
        std::thread::sleep(wait);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        Ok((Cpu::now()? - before).busy / (wait.as_secs_f64() * cpus))
    }
}

impl Sub for Cpu {
    type Output = Cpu;
    fn sub(self, earlier: Cpu) -> Cpu {
        Cpu {
            busy: self.busy - earlier.busy,
            user: self.user - earlier.user,
            system: self.system - earlier.system,
            irq: self.irq - earlier.irq,
            softirq: self.softirq - earlier.softirq,
            steal: self.steal - earlier.steal,
        }
    }
}

/// CPU time of some programs and of the kernel's soft-interrupt threads, as the scheduler counts it
/// in nanoseconds. It includes the kernel's work on their behalf, soft interrupts that interrupted
/// them, and threads that have ended, but no other programs. On a busy machine it is more accurate
/// than [`Cpu`].
#[derive(Clone, Debug)]
pub struct Tasks {
    pids: Vec<u32>,
}

impl Tasks {
    /// This program, `others`, and the soft-interrupt threads.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn with(others: &[u32]) -> io::Result<Tasks> {
        let mut pids = vec![std::process::id()];
        pids.extend(others);
        for entry in std::fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // It may have ended in the meantime.
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.starts_with("ksoftirqd/") {
                pids.push(pid);
            }
        }
        Ok(Tasks { pids })
    }

    /// Their CPU time so far, in seconds.
    ///
    /// # Errors
    /// If one of them has ended.
    pub fn seconds(&self) -> io::Result<f64> {
        let spent = self.pids.iter().map(|pid| {
            let pid = i32::try_from(*pid).map_err(|_| ErrorKind::InvalidInput)?;
            Ok(Duration::from(ClockId::pid_cpu_clock_id(Pid::from_raw(pid))?.now()?))
        });
        Ok(spent.sum::<io::Result<Duration>>()?.as_secs_f64())
    }
}

/// A median with the smallest and the largest value.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Median {
    /// The middle value, or the mean of the middle two for an even number of values.
    pub median: f64,
    /// The smallest of the samples.
    pub min: f64,
    /// The largest of the samples.
    pub max: f64,
}

/// The median of `values`, or `None` if there are none.
pub fn median(values: &[f64]) -> Option<Median> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let mid = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[mid] } else { (sorted[mid - 1] + sorted[mid]) / 2.0 };
    Some(Median { median, min, max })
}

/// A median with the first and the third quartile.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Quartiles {
    /// First quartile: a quarter of the values is smaller.
    pub first: f64,
    /// The median of the samples.
    pub median: f64,
    /// Third quartile: a quarter of the values is larger.
    pub third: f64,
}

impl Quartiles {
    /// Formats the values as a ratio for a table.
    pub fn ratio(&self) -> String {
        format!("{:.2} ({:.2}–{:.2})", self.median, self.first, self.third)
    }
}

/// The quartiles of `values`, interpolated between neighbours; `None` if there are no values.
pub fn quartiles(values: &[f64]) -> Option<Quartiles> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = |share: f64| {
        let place = share * last as f64;
        let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        below + (above - below) * place.fract()
    };
    Some(Quartiles { first: at(0.25), median: at(0.5), third: at(0.75) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_line_is_split_as_the_manual_says() {
        let stat = "cpu  100 50 200 9999 7 10 300 40 0 0\ncpu0 1 2 3\ncpu1 0 0 100 0 0 0 0 0 0 0\n";
        let cpu = Cpu::parse(stat, ALL, 55.0).unwrap();
        // Two CPUs for 55 s, less what they were idle, waited for a disk and were stolen.
        assert!((cpu.busy - (110.0 - 99.99 - 0.07 - 0.4)).abs() < 1e-9);
        assert_eq!(cpu, Cpu { busy: cpu.busy, user: 1.5, system: 2.0, irq: 0.1, softirq: 3.0, steal: 0.4 });
        assert!((cpu.softirq_share().unwrap() - 3.0 / 6.6).abs() < 1e-9);
        assert_eq!(Cpu::default().softirq_share(), None);
        assert_eq!(Cpu::parse(stat, "cpu1 ", 55.0).unwrap().busy, 55.0);
        for short in ["cpu0 ", "cpu2 "] {
            assert_eq!(Cpu::parse(stat, short, 55.0), None);
        }
        assert!(Cpu::now().unwrap().busy > 0.0);
    }

    #[test]
    fn the_time_of_tasks_grows_with_their_work() {
        let tasks = Tasks::with(&[]).unwrap();
        let (before, start) = (tasks.seconds().unwrap(), std::time::Instant::now());
        while start.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        assert!(tasks.seconds().unwrap() > before);
        // No process id exceeds Linux's PID_MAX_LIMIT.
        for nobody in [u32::MAX, 1 << 22] {
            assert!(Tasks::with(&[nobody]).unwrap().seconds().is_err());
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(Median { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn quartiles_lie_between_values_in_proportion() {
        assert_eq!(quartiles(&[]), None);
        let found = quartiles(&[3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
        assert_eq!(found, Quartiles { first: 2.0, median: 3.0, third: 4.0 });
        assert_eq!(quartiles(&[1.0, 2.0]).unwrap().ratio(), "1.50 (1.25–1.75)");
    }
}
