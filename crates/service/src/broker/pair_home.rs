//! Both ends of a pair come home, or end.
//!
//! ```text
//!   stop            each end writes nothing more; how far both have come is read
//!   rebuild, twice  with the numbers that segments would have given them, and the bytes that were not read
//!   resume, twice
//!   Home            the kernel has the bytes from rcv_pos on: what was read since then is skipped there;
//!                   what was written beyond tail_pos is written again
//! ```
//!
//! Nobody has to answer for that, so it works while a program stands still. All of it can be done again, by the
//! next broker, until one end is resumed. The programs hold no bytes afterwards, so each can let go of its end at
//! once: nothing would be put back beside a socket that lives.

use super::Broker;
use super::state::{InKernel, InPair, State};
use super::stay_reason::StayReason;
use baton_ipc::message::Reply;
use baton_ipc::record::{self, Home, PairPlace, Phase};
use baton_kernel::Captured;
use baton_kernel::both_ends::{Carried, come_home, discard, window_at_home};
use baton_pair::{Course, Ending};
use baton_policy::Reason;

/// How far one end has come.
fn carried(course: &Course, first: bool) -> Carried {
    let (at, other) = (usize::from(!first), usize::from(first));
    Carried {
        written: course.written[at],
        received: course.written[other],
        finished: course.ends[at] != Ending::Open,
        peer_finished: course.ends[other] != Ending::Open,
    }
}

/// An end as the kernel is to have it, and what its program is told.
pub(super) struct Coming {
    pub id: u64,
    pub captured: Captured,
    pub head: Box<Captured>,
    /// Where its bytes are; or why it stays in the kernel, which it never left as far as its program knows.
    pub told: Result<Home, StayReason>,
}

impl Broker {
    /// Brings both ends of a pair home.
    pub(super) fn unpair(&mut self, id: u64, why: Reason) {
        let Some(connection) = self.connections.known(id) else { return };
        let State::Paired(InPair { peer, place, .. }) = &connection.state else { return };
        let (ends, place) = ([id, *peer], *place);
        let is_there = |id: &u64| self.connections.get(*id).is_some_and(|it| matches!(it.state, State::Paired(_)));
        if !ends.iter().all(is_there) {
            // The other end has closed for good.
            return self.ended(id);
        }
        if ends.iter().any(|id| self.in_pair(*id).is_some_and(InPair::waits)) {
            // The program of an adoption gets a stream with the answer. `recall_pair` goes on then.
            if let Some(State::Paired(pair)) = self.connections.known_mut(id).map(|connection| &mut connection.state) {
                pair.recall = Some(why);
            }
            return;
        }
        ends.into_iter().for_each(|id| {
            if let Some(connection) = self.connections.known_mut(id) {
                connection.stop();
                connection.why = why;
            }
        });
        let course = match self.links.stop(place) {
            Ok(course) => course,
            Err(error) => {
                let text = format!("its program or the other end's broke the rules of their memory: {error}");
                return ends.into_iter().for_each(|id| self.lost(id, &text));
            }
        };
        if course.ends.contains(&Ending::Reset) || !course.ends.contains(&Ending::Open) {
            return ends.into_iter().for_each(|id| self.ended(id));
        }
        let unread = |id: u64| self.in_pair(id).map(|pair| self.links.unread(pair.place, &course)).unwrap_or_default();
        let unread = ends.map(unread);
        let window = |at: usize| Some(window_at_home(&self.in_pair(ends[at])?.head.protocol, unread[at].len() as u32));
        let windows = [1, 0].map(window);
        let coming = ends.into_iter().zip(windows).zip(unread);
        let coming = coming.filter_map(|((id, window), unread)| self.coming(id, window?, &course, unread));
        let coming: Vec<Coming> = coming.collect();
        if coming.len() < 2 {
            return ends.into_iter().for_each(|id| self.lost(id, "what was captured contradicts its end"));
        }
        self.end_followed(place, Some((course.written, why)));
        match self.rebuild_ends(&coming) {
            Ok(()) => self.resume_ends(coming),
            Err(text) => ends.into_iter().for_each(|id| self.lost(id, &text)),
        }
    }

    /// Brings both ends home, of which the program of one has not said that it uses the pair, and will not.
    pub(super) fn unpair_without_program(&mut self, id: u64, why: Reason) {
        if let Some(State::Paired(pair)) = self.connections.known_mut(id).map(|connection| &mut connection.state) {
            pair.declined = true;
        }
        self.unpair(id, why);
    }

    /// A program uses the pair: both ends go home now if they were to.
    pub(super) fn recall_pair(&mut self, id: u64) {
        let Some(InPair { peer, recall, .. }) = self.in_pair(id) else { return };
        if let Some(why) = recall.or_else(|| self.in_pair(*peer)?.recall) {
            self.unpair(id, why);
        }
    }

    fn in_pair(&self, id: u64) -> Option<&InPair> {
        match &self.connections.get(id)?.state {
            State::Paired(pair) => Some(pair),
            _ => None,
        }
    }

    /// An end of a pair as the kernel is to have it. `window` is that of the other end.
    pub(super) fn coming(&self, id: u64, window: u32, course: &Course, unread: Vec<u8>) -> Option<Coming> {
        let ours = self.in_pair(id)?;
        let carried = carried(course, ours.place.first);
        let home = Home::at((carried.received - unread.len() as u64, carried.written));
        let captured = come_home(&ours.head, window, carried, unread)?;
        Some(Coming { id, captured, head: ours.head.clone(), told: Ok(home) })
    }

    /// Rebuilds ends, none of which may send before all are there: the kernel would answer with a reset in the
    /// place of one that is missing.
    ///
    /// # Errors
    /// Why one could not be rebuilt. Nothing was recorded, and none may send.
    pub(super) fn rebuild_ends(&mut self, coming: &[Coming]) -> Result<(), String> {
        let Broker { connections, kernel, .. } = self;
        coming.iter().try_for_each(|end| match connections.get(end.id) {
            Some(connection) => kernel.rebuild(&connection.fd, &end.captured).map_err(|error| error.to_string()),
            None => Ok(()),
        })
    }

    /// Lets rebuilt ends run, and tells their programs.
    pub(super) fn resume_ends(&mut self, coming: Vec<Coming>) {
        let Broker { connections, kernel, checkpoints, slots, .. } = self;
        for end in &coming {
            let Some(connection) = connections.get(end.id) else { continue };
            let phase = Phase::Rebuilt(end.told.as_ref().ok().copied());
            let kept = connection.record(&slots[connection.slot].name, phase, Some(&end.captured));
            checkpoints.keep(record::connection(end.id), &kept, &[&connection.fd]);
        }
        let resumed = coming.into_iter().filter_map(|end| {
            let connection = connections.get(end.id)?;
            let resumed = kernel.unsteer(&connection.plan).and_then(|()| kernel.resume(&connection.fd, &end.captured));
            Some((end, resumed))
        });
        for (end, resumed) in resumed.collect::<Vec<_>>() {
            match resumed {
                Ok(()) => self.is_home(end),
                Err(error) => self.lost(end.id, &error.to_string()),
            }
        }
    }

    /// An end is in the kernel: tells its program.
    fn is_home(&mut self, coming: Coming) {
        let Coming { id, captured, head, told } = coming;
        let Some((connection, before)) = self.connections.take(id, Ok) else { return };
        let (client, why, seq) = (connection.client, connection.why, connection.seq());
        let closes = connection.closed || !self.clients.contains_key(&client);
        // The program that waits for the adoption has the socket, unless it has heard of the pair and not said so.
        let gives_up = seq != 0 && told.is_ok();
        let slot = if let State::Paired(pair) = &before { Some(pair.place) } else { None };
        let kernel = State::Kernel(InKernel { head: Some(head), home: told.as_ref().ok().copied(), slot });
        if told.is_ok() {
            connection.arrive(kernel, why)
        } else {
            connection.enter(kernel)
        }
        slot.into_iter().for_each(|place| self.leave_link(id, place));
        [record::queues(id), record::pair(id)].into_iter().for_each(|key| self.checkpoints.forget(key));
        match told {
            Err(why) if !closes => return self.stays_in_kernel(id, why),
            Ok(Home { rcv_pos, tail_pos, whole }) => {
                if gives_up {
                    let stays = Reply::Stays { seq, id, code: why.to_string(), text: why.text().to_owned() };
                    self.tell_client(client, &stays, Vec::new());
                }
                self.tell_client(client, &Reply::Home { id, rcv_pos, tail_pos, whole }, Vec::new());
            }
            Err(_) => {}
        }
        self.log_home(id);
        if let Some(connection) = self.connections.known_mut(id) {
            connection.adoption = None;
        }
        self.note(id);
        self.settled(id, true);
        if closes {
            self.close_in_kernel(id, !captured.receive_queue.is_empty());
        } else if gives_up {
            // The program has the socket and no stream for it.
            self.forget(id);
        }
    }

    /// The program has closed its end. Its bytes stay for the other end, which goes on by itself.
    pub(super) fn close_in_pair(&mut self, id: u64) {
        let Some(connection) = self.connections.known_mut(id) else { return };
        let State::Paired(InPair { peer, settled, .. }) = &connection.state else { return };
        let (peer, settled) = (*peer, *settled);
        connection.closed = true;
        self.note(id);
        // It is closed once its program has said whether it uses the pair.
        let over =
            |id: u64| self.connections.get(id).is_none_or(|it| it.closed || !matches!(it.state, State::Paired(_)));
        if settled && over(peer) {
            self.forget(id);
            if self.connections.get(peer).is_some_and(|it| it.closed && matches!(it.state, State::Paired(_))) {
                self.forget(peer);
            }
        }
    }

    /// The program of an end has gone: the other end hears what the kernel would have told it.
    pub(super) fn end_pair_of_dead(&mut self, id: u64) {
        let Some(connection) = self.connections.known(id) else { return };
        let State::Paired(InPair { place, settled, .. }) = &connection.state else { return };
        if !settled {
            return self.unpair_without_program(id, Reason::ProgramGone);
        }
        if !connection.closed {
            self.links.end(*place);
        }
        self.close_in_pair(id);
    }

    /// The program of a connection in the kernel has gone, perhaps before it heard that its pair went home. Bytes that
    /// it has read there must not be unread in the socket, whose close would be a reset.
    pub(super) fn skip_what_was_read(&self, id: u64) {
        let Some(connection) = self.connections.get(id) else { return };
        if let State::Kernel(InKernel { home: Some(home), slot: Some(place), .. }) = &connection.state
            && let Some(read) = self.links.still_read(*place)
        {
            discard(&connection.fd, read.saturating_sub(home.rcv_pos));
        }
    }

    /// Goes on with an end of a predecessor's pair.
    pub(super) fn take_up_pair(&mut self, id: u64) {
        let Some(connection) = self.connections.get(id) else { return };
        let State::Paired(InPair { place, peer, settled, .. }) = &connection.state else { return };
        let (place, peer, settled): (PairPlace, u64, bool) = (*place, *peer, *settled);
        let there = self.connections.get(peer).is_some_and(|it| matches!(it.state, State::Paired(_)));
        let closed = connection.closed;
        let has_program = self.clients.contains_key(&connection.client);
        if self.take_up_place(place).is_err() {
            return self.lost(id, "the memory of its two programs is gone");
        }
        match (there || closed, has_program) {
            (false, _) => self.ended(id),
            (true, false) => self.end_pair_of_dead(id),
            (true, true) => {
                if !settled {
                    // Its program may not have been told. If it was, it answers again.
                    self.bring_to_pair(id);
                }
                if self.links.is_stopped(place) {
                    // The broker before this one was bringing both ends home.
                    self.unpair(id, Reason::BrokerDied);
                }
            }
        }
    }
}
