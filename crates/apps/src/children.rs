//! Processes that are another's children: its own, and those that were left to it.

use rustix::process::Pid;
use std::fs;

/// This process's that there are now, also those that have ended and were not waited for.
pub fn children() -> Vec<Pid> {
    children_of("self")
}

/// A process, its children, theirs, and so on.
pub fn family(pid: Pid) -> Vec<Pid> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(parent) = all.get(at) {
        all.extend(children_of(&parent.to_string()));
        at += 1;
    }
    all
}

fn children_of(process: &str) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| pids(&list)).collect()
}

fn pids(list: &str) -> Vec<Pid> {
    list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}
