//! IPsec: policies are read once, and again when the kernel reports that they changed.
//!
//! The kernel lists policies that a program set on a socket (`IP_XFRM_POLICY`), but does not report
//! when one is set, nor on which socket. So their number is queried, and one whose selector fits
//! counts as the connection's.

use super::policies::{Policies, Policy};
use crate::netlink::{Body, NLM_F_REQUEST, Socket, attribute};
use crate::plan::Plan;
use rustix::net::netlink::XFRM;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// `linux/xfrm.h`.
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_MSG_GETSPDINFO: u16 = 0x25;
const XFRM_MSG_GETDEFAULT: u16 = 0x28;
const XFRMNLGRP_POLICY: u32 = 4;
const XFRMNLGRP_MIGRATE: u32 = 7;
const XFRMA_SPD_INFO: u16 = 1;
const XFRM_USERPOLICY_BLOCK: u8 = 1;
/// `struct xfrm_userpolicy_id`; all its bytes are zero.
const ID_LEN: usize = 64;
/// The number of attempts to read a table that changes meanwhile.
const ATTEMPTS: usize = 4;

pub(super) struct Ipsec(Option<Known>);

struct Known {
    asker: Socket,
    listener: Socket,
    policies: Policies,
    /// The number of sockets' policies, incoming and outgoing.
    of_sockets: u32,
}

impl Ipsec {
    /// Opens the sockets. A kernel without IPsec has no policies.
    pub fn open() -> io::Result<Ipsec> {
        // Listen first, so that no change is missed between an answer and the first poll.
        let listener = match Socket::listen(XFRM, &[XFRMNLGRP_POLICY, XFRMNLGRP_MIGRATE]) {
            Ok(listener) => listener,
            Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(Ipsec(None)),
            Err(error) => return Err(error),
        };
        let (asker, policies) = (Socket::open(XFRM)?, Policies::default());
        let mut known = Known { asker, listener, policies, of_sockets: 0 };
        known.ask()?;
        Ok(Ipsec(Some(known)))
    }

    pub fn teller(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|known| known.listener.as_fd())
    }

    /// Returns true if packets of the connection would be dropped or transformed.
    pub fn holds(&self, plan: &Plan) -> bool {
        self.0.as_ref().is_some_and(|known| known.policies.hold(&plan.tuple(), plan.query.mark, plan.way.interface))
    }

    /// Reads the policies again if something changed. Returns true if it did.
    pub fn refresh(&mut self) -> io::Result<bool> {
        let Some(known) = &mut self.0 else { return Ok(false) };
        let mut changed = false;
        changed |= !known.listener.drain(|_, _| changed = true)?;
        if changed {
            known.ask()?;
        }
        Ok(changed)
    }

    /// Reads the policies again if the number of sockets' policies has changed.
    pub fn count_again(&mut self) -> io::Result<()> {
        let Some(known) = &mut self.0 else { return Ok(()) };
        if known.count()? != known.of_sockets { known.ask() } else { Ok(()) }
    }
}

impl Known {
    fn count(&mut self) -> io::Result<u32> {
        let told = self.asker.ask(XFRM_MSG_GETSPDINFO, NLM_F_REQUEST, Body::new(&[0; 4]))?.unwrap_or_default();
        // Six numbers, of which the fourth and the fifth count sockets' policies.
        let info = attribute(told.get(4..).unwrap_or_default(), XFRMA_SPD_INFO).unwrap_or_default();
        let number = |at: usize| info.get(at..at + 4).map_or(0, |n| u32::from_ne_bytes(n.try_into().expect("four")));
        Ok(number(12) + number(16))
    }

    fn ask(&mut self) -> io::Result<()> {
        self.of_sockets = self.count()?;
        for _ in 0..ATTEMPTS {
            let mut all = Vec::new();
            let whole = self
                .asker
                .dump(XFRM_MSG_GETPOLICY, Body::new(&[0; ID_LEN]), |_, body| all.extend(Policy::parse(body)))?;
            self.policies.all = all;
            if whole {
                break;
            }
        }
        let blocks = |told: &[u8], at: usize| told.get(at) == Some(&XFRM_USERPOLICY_BLOCK);
        // Incoming, forwarded, outgoing.
        self.policies.blocks = match self.asker.ask(XFRM_MSG_GETDEFAULT, NLM_F_REQUEST, Body::new(&[0; 3])) {
            Ok(told) => told.map_or((false, false), |told| (blocks(&told, 0), blocks(&told, 2))),
            // Linux before 5.15 passes packets that match no policy.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (false, false),
            Err(error) => return Err(error),
        };
        Ok(())
    }
}
