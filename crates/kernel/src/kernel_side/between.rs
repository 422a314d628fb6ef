//! Plans for connections whose both ends are on this machine ([`both_ends`](crate::both_ends)).
//!
//! ```text
//!   socket's namespace                            service's namespace
//!   tuple --conntrack--> outside --veth, bridge--> conntrack --> beyond --veth, bridge--> the other end's
//! ```
//!
//! The other end knows the connection by one of these names, mirrored. A router in any other namespace cannot be
//! asked, so a connection that passes one stays: its entry there would take the connection's later segments for
//! strangers'.

use super::{Between, KernelSide, query_of};
use crate::error::During;
use crate::examine::{Examined, examine};
use crate::hops::{Query, Way};
use crate::kernel_error::KernelError;
use crate::plan::Plan;
use baton_policy::Refusal;
use baton_wire::addr::{Addr, Tuple};
use std::os::fd::{AsFd, BorrowedFd};

/// The index of the loopback device in every network namespace.
const LOOPBACK: u32 = 1;

impl KernelSide {
    /// Plans where a connection would go whose other end may be on this machine, too. Changes nothing.
    ///
    /// # Errors
    /// The [`Refusal`] if the connection has to stay; [`Refusal::NotSteerable`] if its peer is elsewhere, as far
    /// as its way shows; [`Refusal::Permission`] if its socket is in a network namespace that may not be entered.
    pub fn plan_between(&mut self, fd: impl AsFd) -> Result<Plan, KernelError> {
        let planned = self.try_plan_between(fd.as_fd());
        self.counted(planned)
    }

    fn try_plan_between(&mut self, fd: BorrowedFd<'_>) -> Result<Plan, KernelError> {
        let net = self.net_of::<KernelError>(fd)?;
        let mut plan = self.at(net, |side| side.plan_there(fd, net))?;
        self.pass_through(&mut plan)?;
        Ok(plan)
    }

    /// Plans for a socket of this namespace, whose number is `net`.
    fn plan_there(&mut self, fd: BorrowedFd<'_>, net: u64) -> Result<Plan, KernelError> {
        let Examined { local, remote, cgroup } = examine(fd)?;
        let query = query_of(fd, local, remote).during("asking what the route depends on")?;
        let tuple = query.tuple;
        if !self.is_local(tuple.local)? {
            return Err(Refusal::NotSteerable.into());
        }
        let (tracked, outside) = self.conntrack.look_across(tuple)?;
        let stays = self.is_local(outside.remote)?;
        let way = if stays {
            Way { interface: LOOPBACK, via: outside.remote }
        } else {
            let to = Tuple { remote: outside.remote, remote_port: outside.remote_port, ..tuple };
            let way = self.hops.way(&Query { tuple: to, ..query }).during("asking for the route")??;
            self.leads_elsewhere(way.interface)?;
            way
        };
        self.pass_firewall(&query, way.interface, tracked.is_some())?;
        if outside != tuple {
            self.pass_firewall(&Query { tuple: outside, ..query }, way.interface, true)?;
        }
        let between = Some(Between { net, stays, outside, beyond: outside, passed: None });
        let plan = Plan { query, way, mac: None, engine: 0, tracked, cgroup, between };
        self.beside.check(&plan).during("asking what else handles its packets")??;
        Ok(plan)
    }

    /// Follows a connection's packets through the service's namespace, which this is.
    fn pass_through(&mut self, plan: &mut Plan) -> Result<(), KernelError> {
        let via = plan.way.via;
        let Some(between) = plan.between.as_mut().filter(|between| !between.stays) else { return Ok(()) };
        let outside = between.outside;
        if between.net != 0 {
            (between.passed, between.beyond) = self.conntrack.look_across(outside)?;
            let remote = between.beyond.remote;
            if self.is_local(via)? {
                return if self.is_local(remote)? { Ok(()) } else { self.is_next_to(remote) };
            }
        }
        if via == outside.remote { Ok(()) } else { Err(Refusal::NotSteerable.into()) }
    }

    /// Refuses an address to which another router leads, or an interface of the machine.
    fn is_next_to(&mut self, address: Addr) -> Result<(), KernelError> {
        let way = self.hops.way_to(address).during("asking for the route")??;
        self.leads_elsewhere(way.interface)?;
        if way.via == address { Ok(()) } else { Err(Refusal::NotSteerable.into()) }
    }

    /// Refuses an interface that does not lead to another namespace, and follows tc's work on any other.
    fn leads_elsewhere(&mut self, interface: u32) -> Result<(), KernelError> {
        let link = self.link(interface)?;
        if !link.leads_elsewhere {
            return Err(Refusal::NotSteerable.into());
        }
        self.beside.know_interface(&link).during("asking what else is on the interface")?;
        Ok(())
    }

    fn is_local(&mut self, address: Addr) -> Result<bool, KernelError> {
        Ok(self.hops.is_local(address).during("asking for the address")?)
    }

    /// A plan for a connection that a predecessor joined with its other end, as far as it can still be made.
    pub fn inherit_between(&mut self, fd: impl AsFd, mut plan: Plan) -> Plan {
        let (fd, tuple) = (fd.as_fd(), plan.tuple());
        let net = self.net_of::<KernelError>(fd).unwrap_or_default();
        let found = self.at(net, |side| Ok::<_, KernelError>(side.conntrack.look_across(tuple)?));
        let (tracked, outside) = found.unwrap_or((None, tuple));
        let stays = plan.way.interface == LOOPBACK;
        let passes = net != 0 && !stays;
        let (passed, beyond) =
            if passes { self.conntrack.look_across(outside).ok() } else { None }.unwrap_or((None, outside));
        plan.tracked = tracked;
        plan.between = Some(Between { net, stays, outside, beyond, passed });
        plan
    }
}
