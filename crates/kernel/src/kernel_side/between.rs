//! Plans for connections whose both ends are on this machine ([`both_ends`](crate::both_ends)).

use super::{KernelSide, query_of};
use crate::error::During;
use crate::examine::Examined;
use crate::hops::Way;
use crate::kernel_error::KernelError;
use crate::plan::Plan;
use baton_policy::Refusal;
use baton_wire::addr::Tuple;
use std::os::fd::{AsFd, BorrowedFd};

/// The index of the loopback device in every network namespace.
const LOOPBACK: u32 = 1;

impl KernelSide {
    /// Plans where a connection would go whose other end may be on this machine, too. Changes nothing.
    ///
    /// # Errors
    /// The [`Refusal`] if the connection has to stay; [`Refusal::NotSteerable`] if its peer is elsewhere.
    pub fn plan_between(&mut self, fd: impl AsFd) -> Result<Plan, KernelError> {
        let planned = self.try_plan_between(fd.as_fd());
        self.counted(planned)
    }

    fn try_plan_between(&mut self, fd: BorrowedFd<'_>) -> Result<Plan, KernelError> {
        let Examined { local, remote, cgroup } = self.examine_here(fd)?;
        let query = query_of(fd, local, remote).during("asking what the route depends on")?;
        let Tuple { local, remote, .. } = query.tuple;
        for address in [local, remote] {
            if !self.hops.is_local(address).during("asking for the address")? {
                return Err(Refusal::NotSteerable.into());
            }
        }
        let tracked = self.conntrack.look(query.tuple)?;
        self.pass_firewall(&query, LOOPBACK, tracked.is_some())?;
        let way = Way { interface: LOOPBACK, via: remote };
        let plan = Plan { query, way, mac: None, engine: 0, tracked, cgroup, between: true };
        self.beside.check(&plan).during("asking what else handles its packets")??;
        Ok(plan)
    }
}
