//! Finds the children of a process, including orphans that it adopted.

use rustix::process::Pid;
use std::fs;

/// The current children of this process, including ended ones that were not yet reaped.
pub fn children() -> Vec<Pid> {
    children_of("self")
}

/// A process and all its descendants.
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
