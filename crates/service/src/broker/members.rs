//! The processes that a shared service runs for, unless it runs for everybody. The service accepts
//! their descendants, whatever their user, and ends with the last of them.

use super::Broker;
use super::recovery::RecoveredState;
use crate::checkpoints::Checkpoints;
use baton_ipc::message::Reply;
use baton_ipc::record::{self, Record};
use baton_port::wait::WaitSet;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The processes for which the service lives.
pub(super) struct Members {
    /// The service runs for these processes only.
    few: bool,
    /// The processes' pidfds, by process id.
    all: BTreeMap<u32, Arc<OwnedFd>>,
    /// The end of the last process was reported.
    over: bool,
}

fn open(pid: u32) -> Option<Arc<OwnedFd>> {
    let pid = Pid::from_raw(pid.cast_signed())?;
    pidfd_open(pid, PidfdFlags::empty()).ok().map(Arc::new)
}

impl Members {
    /// The first broker begins with the process `first`; a later one with those of its predecessor.
    pub fn new(first: Option<u32>, recovered: &RecoveredState) -> Members {
        let first = first.filter(|_| recovered.generation == 0);
        let mut all = recovered.members.clone();
        all.extend(first.and_then(|pid| Some((pid, open(pid)?))));
        Members { few: first.is_some() || recovered.few, all, over: false }
    }

    /// The pidfds of the processes.
    pub fn processes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.all.values().map(|process| process.as_fd())
    }

    /// Returns true if a process descends from one of them.
    pub fn have(&self, pid: u32) -> bool {
        self.all.keys().any(|member| descends(pid, *member))
    }

    /// Forgets the processes that have ended. Returns true once, when the last has ended.
    pub fn have_ended(&mut self, set: &WaitSet, checkpoints: &mut Checkpoints) -> bool {
        let ended = |process: &OwnedFd| set.is_ready(process.as_raw_fd());
        self.all.retain(|pid, process| {
            let ended = ended(process);
            if ended {
                checkpoints.forget(record::member(*pid));
            }
            !ended
        });
        self.few && self.all.is_empty() && !std::mem::replace(&mut self.over, true)
    }

    /// Records the processes with the guardian.
    pub fn keep_all(&self, checkpoints: &mut Checkpoints) {
        if self.few {
            checkpoints.keep(record::FEW, &Record::Few {}, &[]);
        }
        for (pid, process) in &self.all {
            checkpoints.keep(record::member(*pid), &Record::Member { pid: *pid }, &[process]);
        }
    }
}

impl Broker {
    /// A program asks the service to run for its process too.
    pub(super) fn on_join(&mut self, client: u32, ask: u64) {
        let pid = self.clients.get(&client).map_or(0, |program| program.pid);
        let process = open(pid).filter(|_| self.members.few && !self.stopping && !self.members.over);
        // A service for everybody does not end with any process.
        let failed = u64::from(self.members.few && process.is_none());
        if let Some(process) = process {
            self.checkpoints.keep(record::member(pid), &Record::Member { pid }, &[&process]);
            self.members.all.insert(pid, process);
        }
        let done = Reply::Done { ask, count: self.members.all.len() as u64, failed, pause_us: 0 };
        self.tell_client(client, &done, Vec::new());
    }
}

/// Returns true if `ancestor` is among the ancestors of `pid`. A process that ends meanwhile has no
/// ancestors.
fn descends(mut pid: u32, ancestor: u32) -> bool {
    // The walk is bounded, because parents may change during it.
    for _ in 0..64 {
        match parent(pid) {
            Some(parent) if parent == ancestor => return true,
            Some(parent @ 2..) => pid = parent,
            _ => return false,
        }
    }
    false
}

/// The parent of a process: field 4 of `proc_pid_stat(5)`. Field 2 may contain anything, but ends
/// with the last parenthesis.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
