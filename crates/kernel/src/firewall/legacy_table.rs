//! A table of legacy iptables as the kernel gives it, and the sizes in it.

use rustix::net::AddressFamily;

/// The tables of one IP version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Version {
    V4,
    V6,
}

impl Version {
    pub const ALL: [Version; 2] = [Version::V4, Version::V6];

    /// The file that lists the names of its tables, one per line.
    pub fn names(self) -> &'static str {
        match self {
            Version::V4 => "/proc/thread-self/net/ip_tables_names",
            Version::V6 => "/proc/thread-self/net/ip6_tables_names",
        }
    }

    /// The family of the socket that is asked for them.
    pub fn family(self) -> AddressFamily {
        match self {
            Version::V4 => AddressFamily::INET,
            Version::V6 => AddressFamily::INET6,
        }
    }

    /// The level of the socket options that return them.
    pub fn level(self) -> i32 {
        match self {
            Version::V4 => libc::IPPROTO_IP,
            Version::V6 => libc::IPPROTO_IPV6,
        }
    }

    /// The offset of `target_offset` in an entry (`struct ipt_entry`, `ip6t_entry`). `next_offset`
    /// follows it.
    pub fn offsets_at(self) -> usize {
        match self {
            Version::V4 => 88,
            Version::V6 => 140,
        }
    }

    /// The size of an entry without matches and target. The last 16 bytes are its counters.
    pub fn entry_len(self) -> usize {
        match self {
            Version::V4 => 112,
            Version::V6 => 168,
        }
    }
}

/// A table as it was read: `struct ipt_getinfo` and the entries, with their counters cleared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    pub info: Vec<u8>,
    pub entries: Vec<u8>,
}
