//! The firewall of a network namespace: when its rules change.
//!
//! ```text
//!   nftables:         NFNLGRP_NFTABLES, a transaction ends with NEWGEN --\
//!   legacy iptables:  entries read once a second, counters left out -----+--> poll: changed
//! ```
//!
//! iptables-nft, ufw, firewalld, Docker and fail2ban all end in one of the two. A transaction
//! counts whatever it changes, elements of sets included: bans are often kept there. What packets
//! do counts for nothing: elements that they add (`update @set`), quotas that run out, and elements
//! that time out make no transaction.
//!
//! Not seen: sets of `ipset`, whose changes the kernel tells nobody of, and BPF programs at
//! netfilter's hooks.

mod legacy;

use crate::netlink::Socket;
use legacy::Legacy;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// `NFNLGRP_NFTABLES` of `linux/netfilter/nfnetlink.h`.
const GROUP: u32 = 7;
/// `NFNL_SUBSYS_NFTABLES`, the upper byte of a message's type.
const SUBSYSTEM: u16 = 10 << 8;
/// `NFT_MSG_NEWGEN` of `linux/netfilter/nf_tables.h`: a transaction has ended.
const NEWGEN: u16 = SUBSYSTEM | 15;

/// Follows the rules of the thread's network namespace.
pub(crate) struct Firewall {
    /// None in a kernel without netfilter's netlink.
    events: Option<Socket>,
    legacy: Legacy,
}

impl Firewall {
    /// Follows the rules from now on.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn open() -> io::Result<Firewall> {
        let events = match Socket::listen(rustix::net::netlink::NETFILTER, &[GROUP]) {
            Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => None,
            events => Some(events?),
        };
        let mut legacy = Legacy::default();
        legacy.look(Instant::now());
        Ok(Firewall { events, legacy })
    }

    /// What becomes readable when nftables rules change.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(AsFd::as_fd)
    }

    /// Whether rules have changed since the last call. To be called once a second at least, for
    /// legacy tables make no events.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn poll(&mut self) -> io::Result<bool> {
        let mut changed = self.legacy.look(Instant::now());
        if let Some(events) = &mut self.events {
            // Told too much to keep it all, the kernel has told of a change at least.
            changed |= !events.drain(|kind, _| changed |= kind == NEWGEN)?;
        }
        Ok(changed)
    }
}
