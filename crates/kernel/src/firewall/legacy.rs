//! Tables of legacy iptables (`ip_tables`, `ip6_tables`). The kernel does not report their changes,
//! so they are read and compared.
//!
//! Only existing tables are read, because a request for another makes the kernel create it. A table
//! is read whole. Its packet counters are cleared, because every packet changes them.

use super::entries::table;
use super::legacy_table::{Table, Version};
use super::ruleset::Ruleset;
use crate::sys;
use rustix::net::{SocketFlags, SocketType, socket_with};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The shortest time between two looks, and the largest share of the time that looks may take.
const LOOK: Duration = Duration::from_secs(1);
const SHARE: u32 = 50;
/// The largest table that is read, in bytes of entries.
const LARGEST: usize = 256 << 20;

/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES` of `linux/netfilter_ipv4/ip_tables.h`. They are the
/// same for IPv6.
const GET_INFO: i32 = 64;
const GET_ENTRIES: i32 = 65;
/// The size of `struct ipt_getinfo`, and the offset in it of the entries' size.
const INFO_LEN: usize = 84;
const INFO_SIZE: usize = 80;
/// The size of a table's name, and of the part of `struct ipt_get_entries` before the entries.
const NAME_LEN: usize = 32;
const HEAD_LEN: usize = 40;

/// The tables of a network namespace at the last look. `None` marks an unreadable table.
#[derive(Default)]
pub(crate) struct Legacy {
    tables: BTreeMap<(Version, String), Option<Table>>,
    look_at: Option<Instant>,
}

impl Legacy {
    /// The tables that packets of a connection pass. NAT is left out, because it sees only their
    /// first packet.
    pub fn ruleset(&self) -> Ruleset {
        let tables = self.tables.iter().filter(|((_, name), _)| name != "nat");
        Ruleset::new(tables.map(|((version, name), raw)| table(*version, name, raw.as_ref())).collect())
    }

    /// Looks at the tables, if it is time. Returns true if they differ from the last look.
    pub fn look(&mut self, now: Instant) -> bool {
        if self.look_at.is_some_and(|look_at| now < look_at) {
            return false;
        }
        let found = Version::ALL.into_iter().flat_map(|version| {
            let names = std::fs::read_to_string(version.names()).unwrap_or_default();
            let names: Vec<String> = names.lines().map(str::to_owned).collect();
            names.into_iter().map(move |name| (version, name))
        });
        let mut tables = BTreeMap::new();
        for (version, name) in found {
            let table = match read(version, &name) {
                // The table was replaced meanwhile. The next look reads the new one.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                table => table.ok(),
            };
            tables.insert((version, name), table);
        }
        self.look_at = Some(now + LOOK.max(now.elapsed() * SHARE));
        let changed = tables != self.tables;
        self.tables = tables;
        changed
    }
}

fn read(version: Version, name: &str) -> io::Result<Table> {
    let socket = socket_with(version.family(), SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut info = vec![0; INFO_LEN];
    let len = name.len().min(NAME_LEN - 1);
    info[..len].copy_from_slice(&name.as_bytes()[..len]);
    ask(socket.as_fd(), version, GET_INFO, &mut info)?;
    let size = u32::from_ne_bytes([info[INFO_SIZE], info[INFO_SIZE + 1], info[INFO_SIZE + 2], info[INFO_SIZE + 3]]);
    if size as usize > LARGEST {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let mut entries = vec![0; HEAD_LEN + size as usize];
    entries[..NAME_LEN].copy_from_slice(&info[..NAME_LEN]);
    entries[NAME_LEN..NAME_LEN + 4].copy_from_slice(&size.to_ne_bytes());
    ask(socket.as_fd(), version, GET_ENTRIES, &mut entries)?;
    entries.drain(..HEAD_LEN);
    clear_counters(version, &mut entries);
    Ok(Table { info, entries })
}

fn ask(socket: BorrowedFd<'_>, version: Version, what: i32, value: &mut [u8]) -> io::Result<()> {
    match sys::get(socket, version.level(), what, value)? {
        len if len == value.len() => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn clear_counters(version: Version, entries: &mut [u8]) {
    let (mut at, len) = (0, version.entry_len());
    while let Some(entry) = entries.get_mut(at..).filter(|rest| rest.len() >= len) {
        entry[len - 16..len].fill(0);
        let next = version.offsets_at() + 2;
        let next = usize::from(u16::from_ne_bytes([entry[next], entry[next + 1]]));
        if next < len {
            return;
        }
        at += next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_left_out_and_bad_lengths_end_the_walk() {
        let version = Version::V4;
        let entry = |next: u16| {
            let mut entry = vec![7; 120];
            entry[90..92].copy_from_slice(&next.to_ne_bytes());
            entry
        };
        let mut entries = [entry(120), entry(5), entry(120)].concat();
        clear_counters(version, &mut entries);
        let cleared: Vec<bool> = (0..3).map(|at| entries[at * 120 + 96..at * 120 + 112] == [0; 16]).collect();
        assert_eq!(cleared, [true, true, false]);
        assert!(entries[112..120] == [7; 8] && entries[95] == 7);
        clear_counters(version, &mut entries[..50]);
    }
}
