//! Followers: programs that read along what pairs exchange, as a capture of packets would show it.
//!
//! ```text
//!   follower --Follow--> broker
//!            <--Followed + both sides' files, a message each pair, now and as they come
//!            <--Unfollowed, when a pair leaves its slot
//!   reads the memory alone; neither program notices
//! ```
//!
//! A user's followers see the pairs of that user's programs, as in a list. The files are those of a whole link,
//! which is memory of two programs: a user that may follow one pair of a link may follow all of them.

use super::Broker;
use super::admin::Asker;
use super::clients::Client;
use super::links::Links;
use super::state::{InPair, State};
use baton_ipc::message::{FollowedPair, ProgramId, Reply, Selector};
use baton_ipc::record::PairPlace;
use baton_kernel::Captured;
use baton_policy::Reason;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

/// The most followers of a user at a time.
const FOLLOWERS: usize = 8;

/// A program that reads along.
struct Follower {
    which: Selector,
    /// The numbers of the pairs that it was told of, and that go on.
    told: BTreeSet<u64>,
}

/// The programs that read along, by their numbers.
#[derive(Default)]
pub(super) struct Followers(BTreeMap<u32, Follower>);

/// The scale of the windows that an end offers.
fn scale(head: &Captured) -> u8 {
    head.protocol.scales.map_or(0, |scales| scales.rcv.shift())
}

impl Broker {
    /// A program wants to read along these pairs.
    pub(super) fn begin_following(&mut self, asker: Asker, which: Selector) {
        let Asker { client, ask } = asker;
        let uid = |client: &u32| self.clients.get(client).map(|program| program.uid);
        let text = if self.followers.0.contains_key(&client) {
            "this program follows pairs already; connect once more for others".to_owned()
        } else if self.followers.0.keys().filter(|other| uid(other) == uid(&client)).count() >= FOLLOWERS {
            format!("{FOLLOWERS} programs of this user follow pairs already; end one of them")
        } else {
            self.followers.0.insert(client, Follower { which, told: BTreeSet::new() });
            let pairs = self.connections.ids(|connection| matches!(connection.state, State::Paired(_)));
            pairs.into_iter().for_each(|id| self.show_to(client, id, false));
            let count = self.followers.0.get(&client).map_or(0, |follower| follower.told.len() as u64);
            return self.tell_client(client, &Reply::Done { ask, count, failed: 0, pause_us: 0 }, Vec::new());
        };
        self.tell_client(client, &Reply::Failed { ask, text }, Vec::new());
    }

    /// A program has gone.
    pub(super) fn end_following(&mut self, client: u32) {
        self.followers.0.remove(&client);
    }

    /// Both ends of a connection have just got their slot.
    pub(super) fn show_pair(&mut self, id: u64) {
        let followers: Vec<u32> = self.followers.0.keys().copied().collect();
        followers.into_iter().for_each(|follower| self.show_to(follower, id, true));
    }

    /// Tells a follower of a pair that it may and wants to see, once, by either of its ends.
    fn show_to(&mut self, client: u32, id: u64, fresh: bool) {
        let Some((pair, files)) = self.pair_for(client, id, fresh) else { return };
        let Some(follower) = self.followers.0.get_mut(&client) else { return };
        if follower.told.insert(pair.number) {
            self.tell_client(client, &Reply::Followed { pair }, files);
        }
    }

    /// A pair as a follower is told of it. `None` if it may not or does not want to see it, or cannot: programs of
    /// older libraries do not announce what they write.
    fn pair_for(&self, client: u32, id: u64, fresh: bool) -> Option<(FollowedPair, Vec<OwnedFd>)> {
        let follower = self.followers.0.get(&client)?;
        let user = self.clients.get(&client)?.uid;
        let here = self.connections.get(id)?;
        let State::Paired(InPair { place, peer, .. }) = &here.state else { return None };
        let there = self.connections.get(*peer)?;
        let ends = if place.first { [here, there] } else { [there, here] };
        let is_of_user = ends.iter().any(|end| end.program.1 == user) || self.rules(client);
        let tuple = ends[0].tuple();
        let is_wanted = follower.which.matches(&tuple) || follower.which.matches(&tuple.mirrored());
        let announces = |client: u32| self.clients.get(&client).is_some_and(Client::announces);
        if !is_of_user || !is_wanted || !ends.iter().all(|end| announces(end.client)) {
            return None;
        }
        let heads = ends.map(|end| match &end.state {
            State::Paired(InPair { head, .. }) => Some(head),
            _ => None,
        });
        let [Some(one), Some(other)] = heads else { return None };
        let programs = ends.map(|end| ProgramId { pid: end.program.0, uid: end.program.1 });
        let pair = FollowedPair {
            number: place.number,
            link: place.link,
            slot: place.slot,
            tuple,
            seqs: (one.protocol.snd_nxt.0, other.protocol.snd_nxt.0),
            scales: (scale(one), scale(other)),
            programs: programs.into(),
            fresh,
        };
        Some((pair, self.links.read_only(place.link)?))
    }

    /// A pair has left its slot. With what counts as written, if both ends are in the kernel again.
    pub(super) fn end_followed(&mut self, place: PairPlace, home: Option<([u64; 2], Reason)>) {
        let Broker { followers, links, .. } = self;
        let all = followers.0.iter_mut();
        let told: Vec<u32> = all.filter_map(|(client, it)| it.told.remove(&place.number).then_some(*client)).collect();
        if told.is_empty() {
            return;
        }
        let written = home.map_or_else(|| written(links, place), |(written, _)| written);
        let home = home.map(|(_, why)| why.to_string()).unwrap_or_default();
        for client in told {
            let left = Reply::Unfollowed { number: place.number, written: written.into(), home: home.clone() };
            self.tell_client(client, &left, Vec::new());
        }
    }
}

/// Bytes that both ends wrote, as far as their memory can be believed.
fn written(links: &Links, place: PairPlace) -> [u64; 2] {
    let first = PairPlace { first: true, ..place };
    links.carried(first).map_or([u64::MAX; 2], |(sent, received)| [sent, received])
}
