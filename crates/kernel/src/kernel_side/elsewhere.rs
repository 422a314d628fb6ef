//! Sockets of other network namespaces: each namespace has a [`KernelSide`] of its own, which is used in it.
//!
//! Packets between two of them may pass the service's namespace, whose conntrack then has an entry, too, under the
//! name that the packets have there.

use super::KernelSide;
use crate::conntrack::{Conntrack, Ending};
use crate::error::{During, Failed};
use crate::hops::Change;
use crate::kernel_error::KernelError;
use crate::namespace::Namespace;
use crate::plan::Plan;
use crate::sys;
use baton_policy::Refusal;
use baton_wire::addr::Tuple;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The most other namespaces. Each costs some ten descriptors.
const AT_MOST: usize = 64;

/// A namespace without connections is left after this long.
const LINGER: Duration = Duration::from_secs(5);

/// Another network namespace.
pub(super) struct Elsewhere {
    namespace: Namespace,
    side: KernelSide,
    /// Connections that are away and have an entry in the service's conntrack: their names there.
    passing: BTreeMap<Tuple, Tuple>,
    used: Instant,
}

impl KernelSide {
    /// Returns true if a socket is in this side's network namespace.
    pub(super) fn is_here(&self, fd: BorrowedFd<'_>) -> Result<bool, Failed> {
        let here = sys::network(self.hops.as_fd()).during("asking for the network namespace")?;
        Ok(sys::network(fd).during("asking for the socket's network namespace")? == here)
    }

    /// The number of a socket's network namespace, which is entered from now on if it is another one; 0 for the own.
    pub(super) fn net_of<E: From<Refusal> + From<Failed>>(&mut self, fd: BorrowedFd<'_>) -> Result<u64, E> {
        if self.is_here(fd)? {
            return Ok(0);
        }
        let net = sys::network(fd).during("asking for the socket's network namespace")?;
        if let Some(elsewhere) = self.elsewhere.get_mut(&net) {
            elsewhere.used = Instant::now();
            return Ok(net);
        }
        const WHAT: &str = "following another network namespace";
        if self.elsewhere.len() >= AT_MOST {
            return Err(Failed { during: WHAT, source: io::Error::other("64 others are followed already") }.into());
        }
        let namespace = Namespace::of::<E>(fd, self.hops.as_fd())?;
        let mut side = namespace.enter(KernelSide::open)??;
        side.rules = self.rules;
        self.hear(&side).during(WHAT)?;
        self.elsewhere.insert(net, Elsewhere { namespace, side, passing: BTreeMap::new(), used: Instant::now() });
        Ok(net)
    }

    /// Calls `f` in the namespace with this number, with its side.
    pub(super) fn at<T, E: From<Refusal> + From<Failed>>(
        &mut self,
        net: u64,
        f: impl FnOnce(&mut KernelSide) -> Result<T, E>,
    ) -> Result<T, E> {
        if net == 0 {
            return f(self);
        }
        let Elsewhere { namespace, side, .. } = self.elsewhere.get_mut(&net).ok_or(Refusal::NotSteerable)?;
        namespace.enter(|| f(side))?
    }

    /// Calls `f` in a socket's namespace, with its side.
    pub(super) fn with<T, E: From<Refusal> + From<Failed>>(
        &mut self,
        fd: BorrowedFd<'_>,
        f: impl FnOnce(&mut KernelSide) -> Result<T, E>,
    ) -> Result<T, E> {
        let net = self.net_of::<E>(fd)?;
        self.at(net, f)
    }

    /// As [`steer`](KernelSide::steer), for a socket of another namespace.
    pub(super) fn let_go_elsewhere(&mut self, plan: &Plan) -> Result<(), KernelError> {
        let passed = plan.between.and_then(|between| Some((between.outside, between.passed?)));
        if let Some((outside, passed)) = passed {
            self.conntrack.let_go(outside, passed)?;
        }
        let steered = self.at(plan.net(), |side| side.steer_here(plan));
        match (passed, self.elsewhere.get_mut(&plan.net())) {
            (Some((outside, _)), Some(elsewhere)) if steered.is_ok() => {
                elsewhere.passing.insert(plan.tuple(), outside);
            }
            (Some((outside, _)), _) => self.conntrack.forget(&outside),
            (None, _) => {}
        }
        steered
    }

    /// As [`unsteer`](KernelSide::unsteer), for a socket of another namespace.
    pub(super) fn take_back_elsewhere(&mut self, plan: &Plan) -> Result<(), KernelError> {
        let elsewhere = self.elsewhere.get_mut(&plan.net());
        if let Some(outside) = elsewhere.and_then(|elsewhere| elsewhere.passing.remove(&plan.tuple())) {
            self.conntrack.forget(&outside);
        }
        self.at(plan.net(), |side| side.unsteer_here(plan))
    }

    /// As [`end_tracked`](KernelSide::end_tracked), for a socket of another namespace.
    pub(super) fn end_tracked_elsewhere(&mut self, plan: &Plan, ending: Ending) {
        self.tell_tracked_at(plan.net(), plan.tuple(), |conntrack, tuple| conntrack.end(tuple, ending));
    }

    /// Tells conntrack of a connection, in all namespaces where it is known to have an entry.
    pub(super) fn tell_tracked(&mut self, fd: BorrowedFd<'_>, tuple: Tuple, tell: impl Fn(&mut Conntrack, &Tuple)) {
        if let Ok(net) = self.net_of::<KernelError>(fd) {
            self.tell_tracked_at(net, tuple, tell);
        }
    }

    fn tell_tracked_at(&mut self, net: u64, tuple: Tuple, tell: impl Fn(&mut Conntrack, &Tuple)) {
        // Nothing is told in a namespace that can no longer be entered.
        let _ = self.at(net, |side| {
            tell(&mut side.conntrack, &tuple);
            Ok::<_, KernelError>(())
        });
        if let Some(outside) = self.elsewhere.get(&net).and_then(|elsewhere| elsewhere.passing.get(&tuple)).copied() {
            tell(&mut self.conntrack, &outside);
        }
    }

    /// The connection that has this name in the service's namespace: the number of its own, and its name there.
    pub(super) fn behind(&self, outside: Tuple) -> (u64, Tuple) {
        let in_it = |(net, elsewhere): (&u64, &Elsewhere)| {
            elsewhere.passing.iter().find(|(_, name)| **name == outside).map(|(tuple, _)| (*net, *tuple))
        };
        self.elsewhere.iter().find_map(in_it).unwrap_or((0, outside))
    }

    pub(super) fn keep_tracked_elsewhere(&mut self, now: Instant, gone: &mut Vec<(u64, Tuple)>) {
        for (net, Elsewhere { namespace, side, .. }) in &mut self.elsewhere {
            let deleted = namespace.enter(|| side.conntrack.keep(now)).unwrap_or_default();
            gone.extend(deleted.into_iter().map(|tuple| (*net, tuple)));
        }
    }

    /// As [`poll`](KernelSide::poll), for the other namespaces that have sockets, by their numbers.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn poll_elsewhere(&mut self, mut tell: impl FnMut(u64, Change)) -> Result<(), Failed> {
        for (net, Elsewhere { namespace, side, .. }) in &mut self.elsewhere {
            namespace.enter(|| side.poll(|change| tell(*net, change)))??;
        }
        Ok(())
    }

    /// Leaves other namespaces a while after their last connection has gone. `used` are the numbers of those that
    /// have one.
    pub fn leave_unused(&mut self, used: &BTreeSet<u64>) {
        self.elsewhere.retain(|net, elsewhere| {
            if used.contains(net) {
                elsewhere.used = Instant::now();
            }
            elsewhere.used.elapsed() < LINGER
        });
    }

    /// Returns true if there are sockets of other namespaces.
    pub fn has_others(&self) -> bool {
        !self.elsewhere.is_empty()
    }
}
