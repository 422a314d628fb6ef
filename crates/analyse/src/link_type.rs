//! Numbers of the link types, as tcpdump.org/linktypes.html has them.
#![allow(missing_docs)]

pub const NULL: u16 = 0;
pub const ETHERNET: u16 = 1;
pub const RAW_BSD: u16 = 12;
pub const RAW_OPENBSD: u16 = 14;
pub const RAW: u16 = 101;
pub const LOOP: u16 = 108;
pub const LINUX_SLL: u16 = 113;
pub const IPV4: u16 = 228;
pub const IPV6: u16 = 229;
pub const LINUX_SLL2: u16 = 276;
