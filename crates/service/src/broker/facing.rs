//! The search for a connection's other end, which knows the connection by one of its names
//! ([`Plan::names`]), mirrored. Connections of several network namespaces may have equal names, so the numbers
//! decide: if both ends stand still and disagree, they part and look for another.

use super::Broker;
use super::connection::Connection;
use super::engine_slot::EngineSlot;
use super::state::{Meeting, State};
use super::stay_reason::StayReason;
use baton_ipc::message::{Reply, Told};
use baton_kernel::kernel_side::Plan;
use baton_policy::conditions::Facts;
use baton_policy::{Reason, Refusal};
use std::os::fd::OwnedFd;

impl Connection {
    /// True if a connection that knows this one by a name may be its other end.
    fn may_face(&self, other: &Connection) -> bool {
        let (Some(ours), Some(theirs)) = (self.plan.between, other.plan.between) else { return false };
        let somewhere = ours.stays == theirs.stays && (!ours.stays || ours.net == theirs.net);
        somewhere && !other.state.is_away() && !self.strangers.contains(&other.id)
    }

    fn meets(&self, id: u64) -> bool {
        matches!(self.state, State::Meeting(Meeting { peer, .. }) if peer == id)
    }
}

impl Broker {
    /// The connection that may be the other end of this one. One that waits for this one comes first.
    pub(super) fn other_end(&self, id: u64) -> Option<u64> {
        let connection = self.connections.get(id)?;
        let known = self.connections.facing(&connection.plan).into_iter().filter_map(|id| self.connections.get(id));
        let faces = known.filter(|other| other.id != id && connection.may_face(other));
        faces.max_by_key(|other| (other.meets(id), matches!(other.state, State::Meeting(_)))).map(|other| other.id)
    }

    /// Plans to join a connection with its other end, if it may not or need not go to an engine: `otherwise` is
    /// what was planned for it there.
    pub(super) fn rather_between<T>(
        &mut self,
        client: u32,
        fd: &OwnedFd,
        told: Told,
        otherwise: &Result<(Plan, usize, T), StayReason>,
    ) -> Option<Result<(Plan, Facts), StayReason>> {
        let may = match otherwise {
            Ok((plan, ..)) => {
                let waits = |id| self.connections.get(id).is_some_and(|it| !it.state.is_away());
                self.connections.facing(plan).into_iter().any(waits)
            }
            Err(why) => {
                [Refusal::NotSteerable.into(), Refusal::Translated.into(), Reason::OnlyPairs].contains(&why.code)
            }
        };
        if !may || !self.may_pair(client) {
            return None;
        }
        let planned = self.plan_between(client, fd, told);
        match (&planned, otherwise) {
            (Err(_), Ok(_)) => None,
            // The first reason says more.
            (Err(why), Err(_)) if why.code == Refusal::NotSteerable.into() => None,
            // An interface with an engine leads to other machines.
            (Ok((plan, _)), Err(why)) if why.code == Refusal::Translated.into() && self.has_engine_for(plan) => None,
            _ => Some(planned),
        }
    }

    fn has_engine_for(&self, plan: &Plan) -> bool {
        let has = |slot: &EngineSlot| !slot.is_between() && slot.index == plan.way.interface;
        plan.net() == 0 && self.slots.iter().any(has)
    }

    /// Connections that wait until this one is like them.
    pub(super) fn who_meet(&self, id: u64) -> Vec<u64> {
        let Some(connection) = self.connections.get(id) else { return Vec::new() };
        let all = self.connections.facing(&connection.plan).into_iter();
        let meets = |it: &Connection| it.meets(id) && !it.strangers.contains(&id);
        all.filter(|other| self.connections.get(*other).is_some_and(meets)).collect()
    }

    pub(super) fn is_meeting(&self, id: u64) -> bool {
        self.connections.get(id).is_some_and(|it| matches!(it.state, State::Meeting(_)))
    }

    /// An end stays in the kernel, as a socket if its program waits for the adoption, else as a stream. So does
    /// what waits for it.
    pub(super) fn does_not_meet(&mut self, id: u64, why: StayReason) {
        let waiting = self.who_meet(id);
        self.links.meetings.retain(|ends| !ends.contains(&id));
        self.stays_in_kernel(id, why.clone());
        self.do_not_meet(waiting, why);
    }

    /// As [`does_not_meet`](Broker::does_not_meet), for those of some connections that still wait.
    pub(super) fn do_not_meet(&mut self, ids: impl IntoIterator<Item = u64>, why: StayReason) {
        for id in ids {
            if self.is_meeting(id) {
                self.does_not_meet(id, why.clone());
            }
        }
    }

    /// Two connections have been joined. A third that waited for one of them looks for another end.
    pub(super) fn are_joined(&mut self, ends: [u64; 2]) {
        let waiting: Vec<u64> = ends.into_iter().flat_map(|id| self.who_meet(id)).collect();
        waiting.into_iter().for_each(|id| self.look_for_another(id));
    }

    /// A program has gone: what its connections were about to be joined with stays in the kernel.
    pub(super) fn meetings_without(&mut self, client: u32) {
        let is_about_to = |it: &Connection| matches!(it.state, State::Meeting(_) | State::Preparing(_));
        for id in self.connections.ids(|it| it.client == client && is_about_to(it)) {
            self.links.meetings.retain(|ends| !ends.contains(&id));
            let why = StayReason::new(Reason::ProgramGone, "the other end's program has gone");
            self.do_not_meet(self.who_meet(id), why);
        }
    }

    /// The other end of a connection is not known, or not any more: it waits.
    pub(super) fn wait_alone(&mut self, id: u64) {
        let Some(connection) = self.connections.known_mut(id) else { return };
        connection.why = Reason::PeerNotServed;
        let Some(seq) = connection.adoption.take() else {
            // Its program is told that it may use it again.
            return self.does_not_meet(id, StayReason::new(Reason::PeerNotServed, Reason::PeerNotServed.text()));
        };
        let client = connection.client;
        let Some((connection, kernel)) = self.connections.take(id, State::in_kernel) else { return };
        connection.enter(State::Kernel(kernel));
        self.note(id);
        self.tell_client(client, &Reply::Waits { seq, id }, Vec::new());
    }

    /// These are not the ends of one connection: each looks for another.
    pub(super) fn part(&mut self, ends: [u64; 2]) {
        for (id, other) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            self.connections.get_mut(id).into_iter().for_each(|it| it.strangers.push(other));
        }
        ends.into_iter().for_each(|id| self.look_for_another(id));
    }

    /// A connection that waits for another end than its own.
    pub(super) fn look_for_another(&mut self, id: u64) {
        if !self.is_meeting(id) {
            return;
        }
        match self.other_end(id) {
            Some(peer) => self.meet(id, peer),
            None => self.wait_alone(id),
        }
    }
}
