//! Takes stock: the processes of the service, the resources they hold, and what they leave in the kernel.

use aya::maps::loaded_maps;
use aya::programs::{loaded_links, loaded_programs};
use baton_testkit::{LONG, Netns};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A process of the service.
#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    /// The command that it was started with: `service`, `engine` and so on.
    pub role: String,
}

/// Live processes whose environment contains this word.
pub fn processes(word: &str) -> Vec<Process> {
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = pids.filter_map(|pid| {
        let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).ok();
        read("environ")?.split(|byte| *byte == 0).find(|variable| *variable == word.as_bytes())?;
        let words = read("cmdline")?;
        let role = String::from_utf8_lossy(words.split(|byte| *byte == 0).nth(1)?).into_owned();
        Some(Process { pid, role })
    });
    found.collect()
}

/// A number from `/proc/PID/status`.
fn status(pid: u32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// The resources of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Holds {
    pub descriptors: u64,
    pub mappings: u64,
    pub threads: u64,
    /// Private memory in kilobytes.
    pub private_kb: u64,
    /// Shared memory that it has touched, in kilobytes.
    pub shared_kb: u64,
}

/// The resources that a process holds now, or `None` once it has ended.
pub fn holds(pid: u32) -> Holds {
    let count = |path: &str| fs::read_dir(format!("/proc/{pid}/{path}")).map_or(0, |entries| entries.count() as u64);
    let mappings = fs::read_to_string(format!("/proc/{pid}/maps")).map_or(0, |text| text.lines().count() as u64);
    let number = |name| status(pid, name).unwrap_or(0);
    Holds {
        descriptors: count("fd"),
        mappings,
        threads: count("task"),
        private_kb: number("RssAnon:"),
        shared_kb: number("RssShmem:"),
    }
}

/// Objects in the kernel that a service may leave behind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kernel {
    /// Ids of BPF programs, maps and links.
    bpf: BTreeSet<(&'static str, u32)>,
    pins: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    /// Interfaces, by namespace.
    interfaces: BTreeMap<String, BTreeSet<String>>,
}

impl Kernel {
    pub fn now(sides: [&Netns; 2]) -> Kernel {
        let programs = loaded_programs().flatten().map(|program| ("program", program.id()));
        let maps = loaded_maps().flatten().map(|map| ("map", map.id()));
        let links = loaded_links().flatten().map(|link| ("link", link.id()));
        let interfaces = sides.map(|side| {
            let text = side.run("ip -o link show");
            let names = text.lines().filter_map(|line| Some(line.split(": ").nth(1)?.split('@').next()?.to_owned()));
            (side.name().to_owned(), names.collect())
        });
        Kernel {
            bpf: programs.chain(maps).chain(links).collect(),
            pins: names(Path::new("/sys/fs/bpf/baton")),
            namespaces: names(Path::new("/run/netns")),
            interfaces: interfaces.into_iter().collect(),
        }
    }

    /// Waits until the objects stay the same for a second: a broker loads some after its start, and the kernel
    /// removes others with a delay.
    #[track_caller]
    pub fn at_rest(sides: [&Netns; 2]) -> Kernel {
        let (mut kernel, mut since) = (Kernel::now(sides), Instant::now());
        let begun = since;
        while since.elapsed() < Duration::from_secs(1) {
            assert!(begun.elapsed() < LONG, "objects in the kernel still change: {kernel:?}");
            std::thread::sleep(Duration::from_millis(100));
            let now = Kernel::now(sides);
            if now != kernel {
                (kernel, since) = (now, Instant::now());
            }
        }
        kernel
    }

    /// Total number of objects.
    fn count(&self) -> usize {
        let interfaces = self.interfaces.values().map(BTreeSet::len).sum::<usize>();
        self.bpf.len() + self.pins.len() + self.namespaces.len() + interfaces
    }

    /// Waits until only objects of `self` are left: the kernel removes unreferenced objects, but
    /// with a delay.
    #[track_caller]
    pub fn assert_nothing_more(&self, sides: [&Netns; 2]) {
        let begun = Instant::now();
        loop {
            let now = Kernel::now(sides);
            let more = now.bpf.difference(&self.bpf).next().is_some() || !now.pins.is_subset(&self.pins);
            if !more && now.namespaces == self.namespaces && now.interfaces == self.interfaces {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "left behind: {now:?}, before: {self:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Names in a directory; empty if it does not exist.
fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Samples of the resources that processes hold, one per round. None of them may grow.
#[derive(Default)]
pub struct Growth {
    processes: BTreeMap<String, Vec<Holds>>,
    kernel: Vec<usize>,
}

impl Growth {
    pub fn look(&mut self, who: &str, holds: Holds) {
        self.processes.entry(who.to_owned()).or_default().push(holds);
    }

    pub fn look_at_kernel(&mut self, kernel: &Kernel) {
        self.kernel.push(kernel.count());
    }

    /// True if the kernel has been looked at.
    pub fn knows_kernel(&self) -> bool {
        !self.kernel.is_empty()
    }

    /// Compares the last third of the samples with the largest values of the first third.
    ///
    /// The samples are taken under load, so memory differs a little between them.
    #[track_caller]
    pub fn assert_none(&self) {
        assert!(self.kernel.last() <= self.kernel.first(), "objects in the kernel: {:?}", self.kernel);
        for (who, looks) in &self.processes {
            let third = looks.len().div_ceil(3);
            let (first, last) = (&looks[..third], &looks[looks.len() - third..]);
            let figure = |name, of: fn(&Holds) -> u64, slack: u64| {
                let before = first.iter().map(of).max().unwrap_or(0);
                let after = last.iter().map(of).min().unwrap_or(0);
                assert!(after <= before + slack, "{who}: {name} grew from {before} to {after}: {looks:?}");
            };
            figure("descriptors", |h| h.descriptors, 8);
            figure("mappings", |h| h.mappings, 16);
            figure("threads", |h| h.threads, 0);
            figure("private memory", |h| h.private_kb, 16 << 10);
            // The shared memory touched depends on the load, so it is not compared; a leak of it
            // shows as mappings and descriptors.
        }
    }

    /// The first and the last sample of each.
    pub fn summary(&self) -> Vec<(String, Holds, Holds)> {
        let ends = |looks: &Vec<Holds>| Some((*looks.first()?, *looks.last()?));
        self.processes.iter().filter_map(|(who, looks)| ends(looks).map(|(a, b)| (who.clone(), a, b))).collect()
    }
}
