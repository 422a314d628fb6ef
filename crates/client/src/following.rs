//! Pairs of others, whose bytes this program reads along.

use super::Service;
use baton_consumer::link::read_side;
use baton_ipc::message::{FollowedPair, Request, Selector};
use baton_pair::{Follower, Side};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// The version of the protocol that knows followers.
const FOLLOWS: u32 = 6;

/// A pair that this program may read along.
#[derive(Debug)]
pub struct Followed {
    /// Its numbers and its place.
    pub pair: FollowedPair,
    /// Reads what both ends write. If the pair is not fresh, what was written before it was found is passed over.
    pub follower: Follower,
}

/// News of the service for a follower.
#[derive(Debug)]
pub enum FollowNews {
    /// A pair can be followed.
    Begun(Followed),
    /// The pair of this number has left its memory.
    Ended {
        /// The pair's number.
        number: u64,
        /// Bytes of each end that count as the pair's; `u64::MAX` for all that are there.
        written: [u64; 2],
        /// The code of the reason for which the kernel goes on with the connection.
        home: Option<String>,
    },
    /// The service has gone. Pairs go on, and nobody tells when they end.
    ServiceGone,
}

/// The pairs that this program follows.
#[derive(Default)]
pub(super) struct Following {
    wanted: Option<Selector>,
    news: Vec<FollowNews>,
    /// The memory of links that some follower reads.
    links: BTreeMap<u32, [Weak<Side>; 2]>,
}

impl Following {
    /// The service has a pair for this program to read along. One whose memory cannot be mapped is not seen.
    pub fn begin(&mut self, pair: FollowedPair, files: [Option<OwnedFd>; 2]) {
        if self.wanted.is_some()
            && let Some(followed) = self.followed(pair, files)
        {
            self.news.push(FollowNews::Begun(followed));
        }
    }

    fn followed(&mut self, pair: FollowedPair, files: [Option<OwnedFd>; 2]) -> Option<Followed> {
        self.links.retain(|_, sides| sides.iter().all(|side| side.strong_count() > 0));
        let known = self.links.get(&pair.link).map(|sides| sides.each_ref().map(Weak::upgrade));
        let sides = match (known, files) {
            (Some([Some(one), Some(other)]), _) => [one, other],
            (_, [Some(one), Some(other)]) => [read_side(&one).ok()?, read_side(&other).ok()?],
            _ => return None,
        };
        self.links.insert(pair.link, sides.each_ref().map(Arc::downgrade));
        let mut follower = Follower::new(sides, pair.slot, NonZeroU64::new(pair.number)?).ok()?;
        if !pair.fresh {
            follower.begin_here().ok()?;
        }
        Some(Followed { pair, follower })
    }

    /// A pair has left its slot.
    pub fn end(&mut self, number: u64, written: (u64, u64), home: String) {
        let home = Some(home).filter(|code| !code.is_empty());
        self.news.push(FollowNews::Ended { number, written: written.into(), home });
    }

    /// The service has gone for good.
    pub fn end_all(&mut self) {
        self.news.extend(self.wanted.map(|_| FollowNews::ServiceGone));
    }

    /// The request for a new broker, which knows of no follower. Nobody waits for the answer.
    pub fn question(&self) -> Option<Request> {
        self.wanted.map(|which| Request::Follow { ask: 0, which })
    }
}

impl Service {
    /// Reads along what the selected pairs of this user's programs exchange, as long as this service is not
    /// dropped. [`Service::follow_news`] has what comes of it. Returns the number of pairs that are there at once.
    ///
    /// # Errors
    /// `Unsupported` if the service is too old. `InvalidInput` with the service's reason, for example if too many
    /// follow. Others as for [`Service::list`].
    pub fn follow(&self, which: Selector) -> io::Result<u64> {
        self.shared.with(|inner| {
            if inner.version < FOLLOWS {
                let text = "the service is older than this program, and shows no pairs";
                return Err(io::Error::new(ErrorKind::Unsupported, text));
            }
            inner.following = Following { wanted: Some(which), ..Following::default() };
            Ok(())
        })??;
        self.tally(|ask| Request::Follow { ask, which }).map(|tally| tally.count)
    }

    /// News since the last call, the oldest first. A pair may be told of again after the broker was replaced.
    pub fn follow_news(&self) -> Vec<FollowNews> {
        self.shared.with(|inner| std::mem::take(&mut inner.following.news)).unwrap_or_default()
    }
}
