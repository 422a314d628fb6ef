//! Counters that `baton run` reads: what moved, what did not, and why.
//!
//! The counters are in a file that all processes of one run map ([`baton_ipc::account`]). So
//! `baton run` can read them at any time, and the counts of a process that is killed are not lost.
//! Without a file nothing is counted.

use crate::config::config;
use crate::os::counters::Counters;
use baton_ipc::account::{COUNT, ENTRIES, ENTRY, NAME};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::{pread, pwrite};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

/// Adds one to the counter of this name.
pub fn count(name: &str) {
    crate::log::counted(name);
    add(name, 1);
}

/// Adds `times` to the counter of this name.
pub fn add(name: &str, times: u64) {
    if let Some(account) = account()
        && let Some(at) = account.find(name).or_else(|| account.enter(name))
    {
        account.counters.add(at, times);
    }
}

/// Adds the bytes that a call moved. They are counted at once, so that the count is right even if
/// the program is killed.
pub fn add_bytes(sent: bool, count: usize) {
    static PLACES: [OnceLock<Option<usize>>; 2] = [const { OnceLock::new() }; 2];
    let Some(account) = account() else { return };
    let name = if sent { "bytes sent" } else { "bytes received" };
    let place = PLACES[usize::from(sent)].get_or_init(|| account.find(name).or_else(|| account.enter(name)));
    if let Some(at) = place {
        account.counters.add(*at, count as u64);
    }
}

struct Account {
    file: OwnedFd,
    counters: Counters,
}

fn account() -> Option<&'static Account> {
    static ACCOUNT: OnceLock<Option<Account>> = OnceLock::new();
    ACCOUNT.get_or_init(|| Account::open().ok()).as_ref()
}

impl Account {
    fn open() -> io::Result<Account> {
        let path = config().account.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let file = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let file = crate::descriptors::out_of_the_way(file);
        Ok(Account { counters: Counters::map(&file)?, file })
    }

    fn find(&self, name: &str) -> Option<usize> {
        (0..ENTRIES).find(|at| self.counters.is_named(*at, name))
    }

    /// Adds a name, unless another process has added it. Returns `None` if the file is full.
    fn enter(&self, name: &str) -> Option<usize> {
        // A longer name is truncated.
        let ends = (0..NAME).rev().find(|at| name.is_char_boundary(*at))?;
        let name = &name[..ends];
        flock(&self.file, FlockOperation::LockExclusive).ok()?;
        let at = self.find(name).or_else(|| {
            let free = (0..ENTRIES).find(|at| self.counters.is_named(*at, ""))?;
            let mut bytes = [0; NAME];
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            let offset = (free * ENTRY + COUNT) as u64;
            pwrite(&self.file, &bytes, offset).ok()?;
            // The mapping shows the same pages, so the counter's name is there from now on.
            pread(&self.file, &mut bytes, offset).ok()?;
            Some(free)
        });
        let _ = flock(&self.file, FlockOperation::Unlock);
        at
    }
}
