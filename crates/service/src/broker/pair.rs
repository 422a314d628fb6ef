//! Joining both ends of a connection on this machine: from the kernel into a link.
//!
//! ```text
//!   adopted, its other end unknown   Kernel: a stream that waits (Waits)
//!   the other end comes              Kernel --Prepare, Ready--> Meeting
//!   both are Meeting                 both captured at once; husks
//!                                    what was unread or unsent: the first bytes of a slot; Paired
//!                                    Pair --> Brought: the program uses the slot
//!   on the way home                  pair_home
//! ```
//!
//! The numbers prove that two sockets are the ends of one connection: each one's SND.NXT is the other's
//! RCV.NXT (`capture_both`). Until both are husks, every step leaves them as they were.

use super::Broker;
use super::clients::Client;
use super::config::PairUsers;
use super::connection::Connection;
use super::hand_off::other_connection;
use super::links::AREA;
use super::state::{InKernel, InPair, Meeting, State};
use super::stay_reason::StayReason;
use baton_ipc::message::{Incoming, Reply, Told};
use baton_ipc::queues::write_queues;
use baton_ipc::record::{self, PairPlace, Phase, Record};
use baton_kernel::both_ends::{Apart, go_away, is_acknowledged, release_both, take_unsent};
use baton_kernel::kernel_side::{KernelError, Plan};
use baton_kernel::{CaptureError, Captured, Failed};
use baton_policy::conditions::Facts;
use baton_policy::rules::{Rule, Ruling};
use baton_policy::{Reason, Refusal};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a connection waits for a program to hand its other end over.
const WAIT: Duration = Duration::from_secs(1);

/// The capture without the bytes of its queues and without what was not sent.
pub(super) fn head_of(captured: &Captured) -> Box<Captured> {
    let mut head = captured.clone();
    take_unsent(&mut head);
    head.receive_queue.clear();
    Box::new(head)
}

/// The capture as a pair has it: as if nothing that the other end had yet to read had been sent, `peer_unread` bytes,
/// and nothing of what this end had.
pub(super) fn head_in_pair(captured: &Captured, peer_unread: usize) -> Box<Captured> {
    let mut head = head_of(captured);
    go_away(&mut head.protocol, peer_unread as u32);
    head
}

/// The reason for which both ends stay.
fn why_not(error: &CaptureError) -> StayReason {
    match error {
        CaptureError::Refused(refusal) => (*refusal).into(),
        CaptureError::Failed(failed) => StayReason::new(Reason::Failed, failed.to_string()),
        other => StayReason::new(Reason::Failed, other.to_string()),
    }
}

impl Broker {
    /// True if connections of this program may be joined with their other ends.
    pub(super) fn may_pair(&self, client: u32) -> bool {
        self.config.pair != PairUsers::Never && self.clients.get(&client).is_some_and(Client::joins_pairs)
    }

    /// A program hands over a connection whose both ends may be on this machine.
    pub(super) fn adopt_between(&mut self, client: u32, seq: u64, fd: OwnedFd, (plan, facts): (Plan, Facts)) {
        let id = self.take_up_adoption(client, seq, fd, (plan, self.slot_between(), facts));
        match self.other_end(id) {
            Some(peer) => self.meet(id, peer),
            None => self.wait_alone(id),
        }
    }

    fn slot_between(&self) -> usize {
        self.slots.iter().position(super::EngineSlot::is_between).unwrap_or(0)
    }

    pub(super) fn plan_between(&mut self, client: u32, fd: &OwnedFd, told: Told) -> Result<(Plan, Facts), StayReason> {
        let (plan, slot) = (self.kernel.plan_between(fd), self.slot_between());
        let plan = plan.map_err(|error| StayReason::from(&error))?;
        if self.connections.id_in(plan.net(), &plan.tuple()).is_some() {
            return Err(Refusal::AlreadyAway.into());
        }
        // A socket that is connected to itself has one end.
        if plan.tuple().mirrored() == plan.tuple() {
            return Err(Refusal::NotSteerable.into());
        }
        let facts = baton_kernel::known(fd).map_err(|e| StayReason::new(Reason::Failed, e.to_string()))?;
        let facts = self.complete(facts, client, slot, told);
        // The other rules weigh an engine against the kernel. A link is cheaper than both.
        if matches!(self.config.policy.ruling(&facts), Ruling::By { rule: Rule::Never, .. }) {
            return Err(StayReason::new(Reason::RuleNever, Reason::RuleNever.text()));
        }
        Ok((plan, facts))
    }

    /// No program uses a connection any more, and its other end is known.
    pub(super) fn meet(&mut self, id: u64, peer: u64) {
        let user = |id: u64| self.connections.get(id).map(|connection| connection.program.1);
        if self.config.pair == PairUsers::Same && user(id) != user(peer) {
            return self.does_not_meet(id, StayReason::new(Reason::OtherUser, Reason::OtherUser.text()));
        }
        if self.reads_first([id, peer]) {
            return;
        }
        self.enter_meeting([id, peer]);
        let has_stopped = match self.connections.get(peer).map(|other| &other.state) {
            Some(State::Meeting(_)) => true,
            Some(State::Kernel(_)) => false,
            // Its program is about to answer.
            _ => return,
        };
        if !has_stopped {
            self.stop_other([id, peer]);
        } else if !self.lets_read([id, peer]) {
            self.join([id, peer]);
        }
    }

    /// The first end waits until the second is like it.
    fn enter_meeting(&mut self, [id, peer]: [u64; 2]) {
        let Some((connection, kernel)) = self.connections.take(id, State::in_kernel) else { return };
        connection.enter(State::Meeting(Meeting { kernel, peer, since: None, drains: None }));
        self.note(id);
    }

    /// The program has stopped using one end, or (`free` is false) cannot.
    pub(super) fn on_ready_between(&mut self, id: u64, free: bool) {
        let why = if !free {
            StayReason::new(Reason::InUse, Reason::InUse.text())
        } else if self.stopping {
            StayReason::new(Reason::Stopping, Reason::Stopping.text())
        } else {
            match self.plan_again(id).map(|()| self.other_end(id)) {
                Ok(Some(peer)) => return self.meet(id, peer),
                Ok(None) => StayReason::new(Reason::PeerNotServed, Reason::PeerNotServed.text()),
                Err(why) => why,
            }
        };
        self.does_not_meet(id, why);
    }

    /// Plans a known end anew: the firewall's rules may have changed since, or it was in an engine.
    pub(super) fn plan_again(&mut self, id: u64) -> Result<(), StayReason> {
        let Broker { connections, kernel, .. } = self;
        let connection = connections.get(id).ok_or(Refusal::NotConnected)?;
        let plan = kernel.plan_between(&connection.fd).map_err(|error| StayReason::from(&error))?;
        let client = connection.client;
        if plan.tuple() != connection.tuple() {
            return Err(other_connection());
        }
        if !self.may_pair(client) {
            return Err(StayReason::new(Reason::RuleNever, "the service or the program makes no pairs"));
        }
        let slot = self.slot_between();
        self.replan(id, plan, slot);
        Ok(())
    }

    /// Tries again to join ends of which something was in flight or unsent.
    pub(super) fn try_meetings(&mut self) {
        for ends in std::mem::take(&mut self.links.meetings) {
            let reads = self.connections.get(ends[1]).is_some_and(|it| matches!(it.state, State::Kernel(_)));
            if ends.iter().all(|id| self.is_meeting(*id)) {
                self.join(ends);
            } else if reads && self.is_meeting(ends[0]) {
                self.stop_other(ends);
            } else {
                // One of them has been joined with another.
                ends.into_iter().for_each(|id| self.look_for_another(id));
            }
        }
    }

    /// Takes both ends out of the kernel, gives them a slot, and brings them to their programs.
    fn join(&mut self, ends: [u64; 2]) {
        let begun = Instant::now();
        let clients = ends.map(|id| self.connections.get(id).map_or(0, |connection| connection.client));
        if self.is_in_flight(ends) && self.may_wait(ends) {
            return self.links.meetings.push(ends);
        }
        let captured = match self.take_out_both(ends) {
            Ok(captured) => captured,
            Err(Apart::Stays(CaptureError::Refused(Refusal::Unsettled))) if self.may_wait(ends) => {
                return self.links.meetings.push(ends);
            }
            Err(Apart::Stays(error)) => return self.do_not_meet(ends, why_not(&error)),
            Err(_) => return self.part(ends),
        };
        let no_memory = |error: io::Error| StayReason::new(Reason::NoMemory, error.to_string());
        let places = match self.place_for(clients) {
            Ok(places) => places,
            Err(error) => return self.put_back_both(ends, &captured, Some(no_memory(error))),
        };
        if let Err(error) = self.bring_along(places, &captured) {
            ends.into_iter().zip(places).for_each(|(id, place)| self.leave_link(id, place));
            return self.put_back_both(ends, &captured, Some(no_memory(error)));
        }
        for at in [0, 1] {
            let Some((connection, kernel)) = self.connections.take(ends[at], State::in_kernel) else { continue };
            connection.stood_still = Some(begun);
            let head = seeded(head_in_pair(&captured[at], captured[1 - at].receive_queue.len()), &kernel);
            let (place, peer) = (places[at], ends[1 - at]);
            connection.enter(State::Paired(InPair {
                head,
                place,
                peer,
                settled: false,
                declined: false,
                recall: None,
            }));
            self.checkpoints.keep(
                record::pair(ends[at]),
                &Record::Pair { id: ends[at], peer, place, settled: false },
                &[],
            );
        }
        // With both records, a successor knows that the slot has what was captured.
        ends.into_iter().for_each(|id| self.note(id));
        self.show_pair(ends[0]);
        ends.into_iter().for_each(|id| self.bring_to_pair(id));
        self.are_joined(ends);
    }

    /// Puts what the programs had yet to read, and what was yet to be sent, into their slot.
    fn bring_along(&self, places: [PairPlace; 2], captured: &[Box<Captured>; 2]) -> io::Result<()> {
        let [first, second] = captured;
        let ways = [(first, second), (second, first)].into_iter().zip(places);
        ways.into_iter().try_for_each(|((from, to), place)| {
            let (_, unsent) = from.sent_and_unsent();
            self.links.begin(place, [&to.receive_queue, unsent])
        })
    }

    /// True if something of both ends was in flight before, and is now: another capture would drop it.
    fn is_in_flight(&self, ends: [u64; 2]) -> bool {
        let waited = |id: u64| match self.connections.get(id) {
            Some(Connection { state: State::Meeting(Meeting { since: Some(_), .. }), fd, .. }) => {
                !is_acknowledged(fd).unwrap_or(true)
            }
            _ => false,
        };
        ends.into_iter().any(waited)
    }

    /// Notes that both ends have waited, and says whether they may wait on.
    fn may_wait(&mut self, ends: [u64; 2]) -> bool {
        let drain = self.config.drain;
        ends.into_iter().all(|id| match self.connections.get_mut(id).map(|connection| &mut connection.state) {
            Some(State::Meeting(meeting)) => meeting.since.get_or_insert_with(Instant::now).elapsed() < drain,
            _ => false,
        })
    }

    /// Captures both ends and makes husks of both. If that fails, both are as before, or lost.
    fn take_out_both(&mut self, ends: [u64; 2]) -> Result<[Box<Captured>; 2], Apart> {
        let find = |id: u64| self.connections.get(id).map(|it| (it.fd.clone(), it.plan));
        let (Some(one), Some(other)) = (find(ends[0]), find(ends[1])) else {
            return Err(Refusal::NotConnected.into());
        };
        let captured = self.kernel.capture_both(&one.0, &other.0)?.map(Box::new);
        let release = |captured: &[Box<Captured>; 2]| release_both((&one.0, &captured[0]), (&other.0, &captured[1]));
        let fits = |from: &Captured, to: &Captured| {
            let (_, unsent) = from.sent_and_unsent();
            to.receive_queue.len() + unsent.len() <= AREA as usize
        };
        if !(fits(&captured[0], &captured[1]) && fits(&captured[1], &captured[0])) {
            release(&captured)?;
            return Err(Refusal::TooMuchQueued.into());
        }
        let kept = [0, 1].into_iter().try_for_each(|at| self.keep_captured(ends[at], &captured[at]));
        let recording = |source| KernelError::from(Failed { during: "recording what was captured", source });
        let steered = kept.map_err(recording).and_then(|()| {
            self.kernel.steer(&one.1)?;
            self.kernel.steer(&other.1).inspect_err(|_| drop(self.kernel.unsteer(&one.1)))
        });
        if let Err(error) = steered {
            release(&captured)?;
            return Err(error.refusal().unwrap_or(Refusal::Conntrack).into());
        }
        let husks =
            self.kernel.make_husk(&one.0, &captured[0]).and_then(|()| self.kernel.make_husk(&other.0, &captured[1]));
        if let Err(error) = husks {
            self.put_back_both(ends, &captured, None);
            return Err(Failed { during: "making husks of both ends", source: io::Error::other(error) }.into());
        }
        Ok(captured)
    }

    fn keep_captured(&mut self, id: u64, captured: &Captured) -> io::Result<()> {
        if let Some(file) = write_queues(&captured.send_queue, &captured.receive_queue)?.map(Arc::new) {
            let (send, unread) = (captured.send_queue.len() as u32, captured.receive_queue.len() as u32);
            self.checkpoints.keep(record::queues(id), &Record::Queues { id, send, unread }, &[&file]);
        }
        let Broker { connections, checkpoints, slots, .. } = self;
        let Some(connection) = connections.get(id) else { return Ok(()) };
        let kept = connection.record(&slots[connection.slot].name, Phase::Captured, Some(captured));
        checkpoints.keep(record::connection(id), &kept, &[&connection.fd]);
        Ok(())
    }

    /// Gives both ends back whole, as captured. Their programs hear why, if there is a reason.
    pub(super) fn put_back_both(&mut self, ends: [u64; 2], captured: &[Box<Captured>; 2], why: Option<StayReason>) {
        let fds = ends.map(|id| self.connections.get(id).map(|it| (it.fd.clone(), it.plan)));
        let mut lost = None;
        for (end, captured) in fds.iter().zip(captured) {
            let Some((fd, _)) = end else { continue };
            if let Err(error) = self.kernel.rebuild(fd, captured) {
                lost = Some(error.to_string());
            }
        }
        for (end, captured) in fds.iter().zip(captured) {
            let Some((fd, plan)) = end else { continue };
            let resumed = self.kernel.unsteer(plan).and_then(|()| self.kernel.resume(fd, captured));
            lost = resumed.err().map(|error| error.to_string()).or(lost);
        }
        for id in ends {
            match (&lost, &why) {
                (Some(text), _) => self.lost(id, &text.clone()),
                (None, Some(why)) => self.do_not_meet([id], why.clone()),
                (None, None) => {}
            }
        }
    }

    /// Brings an end to its program.
    pub(super) fn bring_to_pair(&mut self, id: u64) {
        let Some(connection) = self.connections.known(id) else { return };
        let State::Paired(InPair { place, settled: false, .. }) = &connection.state else { return };
        let PairPlace { link, first, slot, number } = *place;
        let (seq, client) = (connection.seq(), connection.client);
        let incoming = Incoming { seq, id, region: link, send: 0, unread: 0, shut: false, window: 0 };
        self.tell_client(client, &Reply::Pair { incoming, first, slot, number }, Vec::new());
    }

    /// The program uses the pair, or (`taken` is false) does not.
    pub(super) fn on_brought_pair(&mut self, id: u64, taken: bool) {
        if !taken {
            return self.unpair_without_program(id, Reason::NoBuffers);
        }
        let Some(connection) = self.connections.known_mut(id) else { return };
        let State::Paired(InPair { settled, .. }) = &mut connection.state else { return };
        if std::mem::replace(settled, true) {
            return;
        }
        connection.adoption = None;
        let Some(pair) = connection.take(State::paired) else { return };
        let (peer, place) = (pair.peer, pair.place);
        connection.arrive(State::Paired(pair), Reason::HandedOver);
        self.checkpoints.keep(record::pair(id), &Record::Pair { id, peer, place, settled: true }, &[]);
        self.note(id);
        self.log_moved(id);
        self.settled(id, true);
        if self.connections.known(id).is_some_and(|connection| connection.closed) {
            self.close_in_pair(id);
        }
        self.recall_pair(id);
    }

    /// Gives back the connections whose other ends nobody hands over.
    pub(super) fn end_waits(&mut self) {
        let waits = self.connections.ids(|connection| {
            connection.plan.between.is_some()
                && connection.why == Reason::PeerNotServed
                && connection.since.elapsed() > WAIT
                && matches!(connection.state, State::Kernel(_))
        });
        for id in waits {
            let Some(connection) = self.connections.known_mut(id) else { continue };
            // Its program is told once. It takes the socket back, and says so.
            connection.why = Reason::AskedFor;
            let client = connection.client;
            let code = Reason::PeerNotServed.to_string();
            self.tell_client(client, &Reply::GivenBack { id, code }, Vec::new());
            self.tell_client(client, &Reply::Home { id, rcv_pos: 0, tail_pos: 0, whole: true }, Vec::new());
        }
    }
}

fn seeded(mut captured: Box<Captured>, kernel: &InKernel) -> Box<Captured> {
    if let Some(before) = &kernel.head {
        let seeds = &mut captured.protocol.seeds;
        *seeds = seeds.or_round_trip_of(&before.protocol.seeds);
    }
    captured
}
