//! What was moved, what was not, and why: counted where `baton run` reads it.
//!
//! The counters lie in a file that all processes of one run map, so that a process that is
//! killed has told what it did, and that it can be read meanwhile:
//!
//! ```text
//!   file = [entry; ENTRIES]      entry = count (8 bytes) | name, ended by zero (120 bytes)
//! ```
//!
//! Names are entered under a lock of the file, and stay. Without a file nothing is counted.

use crate::config::config;
use crate::sys::counters::{Counters, ENTRIES, NAME};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::{pread, pwrite};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

/// A name and its number of times.
pub fn count(name: &str) {
    crate::log::counted(name);
    add(name, 1);
}

/// As [`count`], more than once.
pub fn add(name: &str, times: u64) {
    if let Some(account) = account()
        && let Some(at) = account.find(name).or_else(|| account.enter(name))
    {
        account.counters.add(at, times);
    }
}

/// Bytes that a call carried: counted at once, so that they are known of a program that is killed.
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

    /// Enters a name that is not there yet; none if there is no room.
    fn enter(&self, name: &str) -> Option<usize> {
        // What is longer is told by its beginning.
        let ends = (0..NAME).rev().find(|at| name.is_char_boundary(*at))?;
        let name = &name[..ends];
        flock(&self.file, FlockOperation::LockExclusive).ok()?;
        let at = self.find(name).or_else(|| {
            let free = (0..ENTRIES).find(|at| self.counters.is_named(*at, ""))?;
            let mut bytes = [0; NAME];
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            let offset = (free * (NAME + 8) + 8) as u64;
            pwrite(&self.file, &bytes, offset).ok()?;
            // The mapping is of the same pages.
            pread(&self.file, &mut bytes, offset).ok()?;
            Some(free)
        });
        let _ = flock(&self.file, FlockOperation::Unlock);
        at
    }
}
