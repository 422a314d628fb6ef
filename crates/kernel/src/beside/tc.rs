//! Other work of tc on an interface's packets, which the engine's frames would skip.
//!
//! ```text
//!   kind tc    wire -> XDP -> TCX programs in their order, ours among them -> filters -> kernel
//!                                            steered to the engine |
//!              engine -> TCX programs and filters of egress -> qdisc -> wire
//!   kind xdp   wire -> ours -> ..      engine -> wire, past everything
//! ```
//!
//! With tc, only what stands behind our program on the way in is skipped. With XDP, all programs
//! and filters in both directions are skipped, and so is a queueing discipline that does more than
//! queue.

use crate::netlink::{Body, Socket, attributes};
use crate::steer::Own;
use crate::sys::{AttachedTo, programs_at};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// `linux/rtnetlink.h`, `linux/pkt_sched.h`, `linux/bpf.h`.
const RTM_GETQDISC: u16 = 38;
const RTM_GETTFILTER: u16 = 46;
const RTNLGRP_TC: u32 = 4;
const TCA_KIND: u16 = 1;
const TCA_INGRESS_BLOCK: u16 = 13;
const TCA_EGRESS_BLOCK: u16 = 14;
const TC_H_INGRESS: u32 = 0xffff_fff1;
const AT_INGRESS: u32 = 0xffff_fff2;
const AT_EGRESS: u32 = 0xffff_fff3;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;
/// `struct tcmsg`.
const HEADER_LEN: usize = 20;
/// Disciplines that neither limit a rate nor select packets.
const PLAIN: [&[u8]; 9] =
    [b"noqueue", b"pfifo_fast", b"pfifo", b"bfifo", b"mq", b"fq", b"fq_codel", b"codel", b"fq_pie"];

pub(super) struct Tc {
    asker: Socket,
    listener: Socket,
}

impl Tc {
    pub fn open() -> io::Result<Tc> {
        let route = None::<rustix::net::Protocol>;
        let listener = Socket::listen(route, &[RTNLGRP_TC])?;
        Ok(Tc { asker: Socket::open(route)?, listener })
    }

    pub fn teller(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Returns true if filters or disciplines of some interface have changed.
    pub fn has_changed(&mut self) -> io::Result<bool> {
        let mut changed = false;
        changed |= !self.listener.drain(|_, _| changed = true)?;
        Ok(changed)
    }

    /// Returns true if an engine's frames would skip a filter or a discipline, whose changes the
    /// kernel reports. An interface that is gone has none.
    pub fn skips(&mut self, index: u32, own: Own) -> io::Result<bool> {
        let disciplines = self.disciplines(index)?;
        if self.has_filters(index, &disciplines, AT_INGRESS)? {
            return Ok(true);
        }
        let shapes = |found: &Discipline| found.parent != TC_H_INGRESS && !PLAIN.contains(&&*found.kind);
        Ok(own == Own::Xdp && (disciplines.iter().any(shapes) || self.has_filters(index, &disciplines, AT_EGRESS)?))
    }

    fn disciplines(&mut self, index: u32) -> io::Result<Vec<Discipline>> {
        let mut all = Vec::new();
        self.asker.dump(RTM_GETQDISC, message(index, 0), |_, body| {
            all.extend(Discipline::parse(body).filter(|found| found.interface == index));
        })?;
        Ok(all)
    }

    /// Returns true if `clsact` or `ingress` has filters for packets that arrive, or leave.
    fn has_filters(&mut self, index: u32, disciplines: &[Discipline], place: u32) -> io::Result<bool> {
        let Some(found) = disciplines.iter().find(|found| found.parent == TC_H_INGRESS) else { return Ok(false) };
        if found.shares[usize::from(place == AT_EGRESS)] {
            return Ok(true);
        }
        let mut any = false;
        match self.asker.dump(RTM_GETTFILTER, message(index, place), |_, _| any = true) {
            Ok(_) => Ok(any),
            // The discipline or the interface is gone.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENODEV)) => Ok(any),
            Err(error) => Err(error),
        }
    }
}

/// Returns true if the frames would skip a TCX program, whose changes the kernel does not report.
pub(super) fn skips_programs(index: u32, own: Own) -> io::Result<bool> {
    let coming = programs(index, BPF_TCX_INGRESS)?;
    Ok(match own {
        Own::Tc(own) => coming.iter().skip_while(|program| **program != own).count() > 1,
        Own::Xdp => !coming.is_empty() || !programs(index, BPF_TCX_EGRESS)?.is_empty(),
    })
}

fn programs(index: u32, kind: u32) -> io::Result<Vec<u32>> {
    match programs_at(AttachedTo::Interface(index), kind) {
        // The kernel has no TCX, or there is no such interface.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENODEV | libc::EOPNOTSUPP)) => {
            Ok(Vec::new())
        }
        found => found,
    }
}

fn message(index: u32, parent: u32) -> Body {
    let mut header = [0; HEADER_LEN];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    Body::new(&header)
}

/// A queueing discipline, from `RTM_NEWQDISC`.
#[derive(PartialEq, Eq, Debug)]
struct Discipline {
    interface: u32,
    parent: u32,
    kind: Vec<u8>,
    /// Whether its filters are in a block that interfaces share: for packets that arrive, that
    /// leave.
    shares: [bool; 2],
}

impl Discipline {
    fn parse(body: &[u8]) -> Option<Discipline> {
        let word = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
        let (interface, parent) = (word(4)?, word(12)?);
        let mut found = Discipline { interface, parent, kind: Vec::new(), shares: [false; 2] };
        for (kind, value) in attributes(body.get(HEADER_LEN..)?) {
            match kind {
                TCA_KIND => found.kind = value.split(|byte| *byte == 0).next().unwrap_or_default().to_vec(),
                TCA_INGRESS_BLOCK => found.shares[0] = true,
                TCA_EGRESS_BLOCK => found.shares[1] = true,
                _ => {}
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_testkit::{Netns, need_root, veth};

    #[test]
    fn what_would_be_skipped_depends_on_the_kind() {
        need_root!();
        let (ours, peer) = (Netns::new("tc"), Netns::new("peer"));
        veth(&ours, "wire", &peer, "wire");
        let index = ours.run("cat /sys/class/net/wire/ifindex").trim().parse().unwrap();
        let mut tc = ours.enter(|| Tc::open().unwrap());
        let mut skips = || [Own::Tc(1), Own::Xdp].map(|own| ours.enter(|| tc.skips(index, own).unwrap()));
        assert_eq!(skips(), [false, false]);
        ours.run("tc qdisc add dev wire root tbf rate 1mbit burst 16k latency 50ms");
        assert_eq!(skips(), [false, true], "shaped");
        ours.run("tc qdisc del dev wire root");
        ours.run("tc qdisc add dev wire clsact");
        assert_eq!(skips(), [false, false]);
        ours.run("tc filter add dev wire egress protocol ip u32 match u32 0 0 flowid 1:1");
        assert_eq!(skips(), [false, true], "on the way out");
        ours.run("tc filter add dev wire ingress protocol ip u32 match u32 0 0 flowid 1:1");
        assert_eq!(skips(), [true, true], "on the way in");
        ours.run("tc qdisc del dev wire clsact");
        ours.run("tc qdisc add dev wire ingress");
        assert_eq!(skips(), [false, false]);
        ours.run("tc filter add dev wire parent ffff: protocol ip u32 match u32 0 0 flowid 1:1");
        assert_eq!(skips(), [true, true]);
        ours.run("tc qdisc del dev wire ingress");
        ours.run("tc qdisc add dev wire ingress_block 7 clsact");
        assert_eq!(skips(), [true, true], "a shared block");
        assert!(ours.enter(|| tc.has_changed().unwrap()));
        assert!(!ours.enter(|| tc.has_changed().unwrap()));
        assert!(!ours.enter(|| tc.skips(9999, Own::Xdp).unwrap()));
    }

    #[test]
    fn a_discipline_that_is_cut_short_is_none() {
        assert_eq!(Discipline::parse(&[0; HEADER_LEN - 1]), None);
        assert_eq!(Discipline::parse(&[0; HEADER_LEN]).unwrap().kind, b"");
    }
}
