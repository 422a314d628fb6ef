//! The properties of a machine that are needed to interpret its results.

use serde::{Deserialize, Serialize};
use std::fs::read_to_string;

/// The machine on which a report's results were measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's name.
    pub cpu: String,
    /// Number of usable CPUs.
    pub cpus: usize,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// The kernel's release.
    pub kernel: String,
    /// This program's version.
    pub baton: String,
    /// Share of the CPUs that other programs used just before the measurement, 0 to 1.
    pub background: f64,
}

impl Machine {
    /// Examines this machine. Properties that cannot be found out stay empty.
    pub fn here(background: f64) -> Machine {
        let field = |file: &str, name: &str| {
            let text = read_to_string(file).ok()?;
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let kib = field("/proc/meminfo", "MemTotal").and_then(|value| value.split(' ').next()?.parse::<f64>().ok());
        Machine {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: kib.unwrap_or(0.0) / f64::from(1 << 20),
            kernel: read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            baton: env!("CARGO_PKG_VERSION").to_owned(),
            background,
        }
    }

    /// The facts as pairs of name and value.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        vec![
            ("CPU", format!("{} × {}", self.cpus, self.cpu)),
            ("Memory", format!("{:.0} GiB", self.memory_gib)),
            ("Kernel", self.kernel.clone()),
            ("Baton", self.baton.clone()),
            ("Used by others", format!("{:.0} % of the CPUs just before", self.background * 100.0)),
        ]
    }
}
