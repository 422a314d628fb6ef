//! Work of the kernel on a connection's packets that goes beyond its socket's, and that the engine
//! would not do: IPsec, BPF programs of the control group, other programs and queueing disciplines
//! of the interface, bridging.
//!
//! ```text
//!   check(plan)            refused, before anything is done
//!   follow, forget         connections that are away
//!   hear(change), poll     Change::Refused for those that would be refused now
//!                          returned: connections whose frames are dropped from now on, or no
//! longer
//! ```
//!
//! The kernel reports changes of IPsec policies and of tc filters. It does not report BPF programs
//! of control groups or TCX links, so these are queried once per second while a connection is away.
//! A connection that would be refused is reported again each second until it is home.

mod cgroup;
mod ipsec;
mod policies;
mod tc;

use crate::hops::{Change, Link};
use crate::plan::Plan;
use crate::steer::Own;
use baton_policy::Refusal;
use baton_wire::addr::Tuple;
use cgroup::Cgroups;
use ipsec::Ipsec;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use tc::{Tc, skips_programs};

/// The interval between two queries of what the kernel does not report.
const LOOK: Duration = Duration::from_secs(1);

/// An interface that is steered, or leads to another network namespace.
struct Interface {
    own: Own,
    steered: bool,
    enslaved: bool,
    /// A filter or a discipline on this interface would be skipped.
    skips: bool,
    /// A TCX program on this interface would be skipped.
    skips_programs: bool,
}

/// A connection that is away.
struct Away {
    plan: Plan,
    /// Why it has no usable route, if it has none.
    route: Option<Refusal>,
    told: Option<Refusal>,
    /// Its frames are dropped in both directions.
    silent: bool,
}

/// Decides whether a connection may be away, and follows those that are.
pub(crate) struct Beside {
    interfaces: BTreeMap<u32, Interface>,
    ipsec: Ipsec,
    cgroups: Cgroups,
    tc: Tc,
    away: BTreeMap<Tuple, Away>,
    looked: Instant,
    /// Something has changed since the last poll.
    stale: bool,
}

impl Beside {
    /// For the network namespace of the calling thread.
    pub fn open() -> io::Result<Beside> {
        Ok(Beside {
            interfaces: BTreeMap::new(),
            ipsec: Ipsec::open()?,
            cgroups: Cgroups::default(),
            tc: Tc::open()?,
            away: BTreeMap::new(),
            looked: Instant::now(),
            stale: false,
        })
    }

    /// The descriptors that are readable when [`Beside::poll`] has something to do.
    pub fn tellers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ipsec.teller().into_iter().chain([self.tc.teller()])
    }

    /// Notes that an interface is steered from now on, by a program of ours.
    pub fn add_interface(&mut self, index: u32, own: Own, enslaved: bool) -> io::Result<()> {
        self.look_at(index, (own, true), enslaved)
    }

    fn look_at(&mut self, index: u32, (own, steered): (Own, bool), enslaved: bool) -> io::Result<()> {
        let skips = self.tc.skips(index, own)?;
        let skips_programs = skips_programs(index, own)?;
        self.interfaces.insert(index, Interface { own, steered, enslaved, skips, skips_programs });
        Ok(())
    }

    /// Notes that an interface, which is not steered, leads to the other end of connections: whatever tc does there
    /// would be skipped.
    pub fn know_interface(&mut self, link: &Link) -> io::Result<()> {
        if self.interfaces.contains_key(&link.index) {
            return Ok(());
        }
        self.look_at(link.index, (Own::Xdp, false), link.enslaved)
    }

    /// Notes that an interface is no longer steered.
    pub fn remove_interface(&mut self, index: u32) {
        self.interfaces.remove(&index);
    }

    /// Checks whether an engine would bypass something that the kernel does for the connection.
    pub fn check(&mut self, plan: &Plan) -> io::Result<Result<(), Refusal>> {
        self.refresh_told()?;
        self.ipsec.count_again()?;
        self.cgroups.look(plan.cgroup);
        if let Some(interface) = self.interfaces.get_mut(&plan.way.interface) {
            interface.skips_programs = skips_programs(plan.way.interface, interface.own)?;
        }
        Ok(self.refusal(plan).map_or(Ok(()), Err))
    }

    fn refusal(&self, plan: &Plan) -> Option<Refusal> {
        let interface = self.interfaces.get(&plan.way.interface);
        if interface.is_some_and(|interface| interface.enslaved) {
            Some(Refusal::Enslaved)
        } else if self.ipsec.holds(plan) {
            Some(Refusal::Ipsec)
        } else if self.cgroups.watches(plan.cgroup) {
            Some(Refusal::CgroupProgram)
        } else if interface.is_some_and(|interface| interface.skips || interface.skips_programs) {
            Some(Refusal::TcProgram)
        } else {
            None
        }
    }

    /// Follows a connection that is away from now on.
    pub fn follow(&mut self, plan: &Plan) {
        self.away.insert(plan.tuple(), Away { plan: *plan, route: None, told: None, silent: false });
        self.stale = true;
    }

    /// Stops following a connection, which is home or has ended.
    pub fn forget(&mut self, tuple: &Tuple) {
        self.away.remove(tuple);
    }

    /// Takes in a change that others reported.
    pub fn hear(&mut self, change: &Change) {
        match change {
            Change::Link(link) => {
                if let Some(interface) = self.interfaces.get_mut(&link.index) {
                    self.stale |= interface.enslaved != link.enslaved;
                    interface.enslaved = link.enslaved;
                }
            }
            Change::Way { tuple, .. } => self.set_route(tuple, None),
            Change::Refused { tuple, why } => self.set_route(tuple, Some(*why)),
            // A steered interface stays until `remove_interface`.
            Change::LinkGone(gone) => self.interfaces.retain(|index, it| index != gone || it.steered),
            Change::Neighbour { .. } | Change::Rules => {}
        }
    }

    fn set_route(&mut self, tuple: &Tuple, why: Option<Refusal>) {
        if let Some(away) = self.away.get_mut(tuple) {
            away.route = why;
            self.stale = true;
        }
    }

    /// Reports the connections that would be refused now. Returns those whose frames are to be
    /// dropped from now on (true), or no longer (false).
    pub fn poll(&mut self, mut tell: impl FnMut(Change)) -> io::Result<Vec<(Plan, bool)>> {
        self.stale |= self.refresh_told()?;
        let due = self.looked.elapsed() >= LOOK;
        if due {
            self.looked = Instant::now();
            self.look()?;
        }
        let mut changed = Vec::new();
        if !due && !std::mem::take(&mut self.stale) {
            return Ok(changed);
        }
        self.stale = false;
        let mut away = std::mem::take(&mut self.away);
        for (tuple, away) in &mut away {
            let why = away.route.or_else(|| self.refusal(&away.plan));
            if let Some(why) = why
                && (due || away.told != Some(why))
            {
                tell(Change::Refused { tuple: *tuple, why });
            }
            away.told = why;
            let silent = why.is_some_and(Refusal::forbids_frames);
            if silent != away.silent {
                away.silent = silent;
                changed.push((away.plan, silent));
            }
        }
        self.away = away;
        Ok(changed)
    }

    /// Reads again what was reported to have changed. Returns true if there was anything.
    fn refresh_told(&mut self) -> io::Result<bool> {
        let ipsec = self.ipsec.refresh()?;
        let tc = self.tc.has_changed()?;
        if tc {
            for (index, interface) in &mut self.interfaces {
                interface.skips = self.tc.skips(*index, interface.own)?;
            }
        }
        Ok(ipsec || tc)
    }

    /// Queries what the kernel does not report.
    fn look(&mut self) -> io::Result<()> {
        if self.away.is_empty() {
            self.cgroups.look_again(std::iter::empty());
            return Ok(());
        }
        for (index, interface) in &mut self.interfaces {
            interface.skips_programs = skips_programs(*index, interface.own)?;
        }
        self.ipsec.count_again()?;
        self.cgroups.look_again(self.away.values().map(|away| away.plan.cgroup));
        Ok(())
    }
}
