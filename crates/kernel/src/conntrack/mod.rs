//! The kernel's connection tracking, which is told of connections that are away.
//!
//! ```text
//!   plan    look            the entry under the socket's own tuple: translated, helped, or fine
//!   steer   let_go          the entry accepts any window from here on
//!   away    keep            its timeout is renewed; deleted entries are reported
//!   home    put_into_state  half closed: as if conntrack had seen the FIN
//!   ended   put_into_state  TIME_WAIT or CLOSE, with the kernel's timeouts
//! ```
//!
//! Conntrack sees no frame of a connection that is away. Afterwards its window check
//! (`tcp_in_window()`, `nf_conntrack_proto_tcp.c`) considers the connection's segments invalid, and
//! usual rules drop invalid segments. So the entry is made liberal for the rest of its life, as the
//! kernel does with connections that it picks up in the middle.
//!
//! An entry is found by either of its directions, in its zone. Zones other than 0 are rare. They
//! are searched for only when a connection has no entry in zone 0, and the result is reused for a
//! while.

mod findings;
mod kept;
mod message;
pub(crate) mod probe;
mod sysctl;
#[cfg(test)]
mod tests;

pub use findings::finding;

use crate::netlink::{Body, NLM_F_ACK, Socket};
use baton_policy::Refusal;
use baton_wire::addr::Tuple;
use kept::Kept;
use message::{Entry, State};
use rustix::net::netlink;
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};
use sysctl::Timeouts;

/// The most entries that one call of [`Conntrack::keep`] examines.
const PER_LOOK: usize = 256;

/// The timeout given to an entry that would expire soon, and so the longest time for which it
/// outlives a killed service.
const KEEP_S: u32 = 300;

/// Zones are not searched for again before this time, nor before this multiple of the search's
/// duration.
const ZONES_FRESH: Duration = Duration::from_secs(10);
const ZONES_SHARE: u32 = 100;

/// The most zones that are queried one by one.
const ZONES_AT_MOST: usize = 16;

/// Attempts to dump the table while it changes.
const TRIES: u32 = 4;

/// A connection's entry, as it was when it was looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tracked {
    zone: u16,
    left_s: u32,
    liberal: bool,
}

impl Tracked {
    fn of((zone, entry): (u16, Entry)) -> Tracked {
        Tracked { zone, left_s: entry.left_s, liberal: entry.is_liberal() }
    }
}

/// How a connection ended while it was away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Both sides closed.
    Closed,
    /// One of them reset it.
    Reset,
}

/// The zones other than 0 that have entries.
#[derive(Default)]
struct Zones {
    known: BTreeSet<u16>,
    /// When they may be searched for again.
    stale: Option<Instant>,
}

/// Conntrack of the network namespace in which this was opened. The thread must stay there.
pub(crate) struct Conntrack {
    /// `None` if the kernel has no netfilter sockets.
    socket: Option<Socket>,
    loaded: bool,
    zones: Zones,
    timeouts: Option<Timeouts>,
    kept: Kept,
}

impl Conntrack {
    pub fn open() -> Conntrack {
        let socket = Socket::open(netlink::NETFILTER).ok();
        Conntrack { socket, loaded: false, zones: Zones::default(), timeouts: None, kept: Kept::default() }
    }

    /// Looks up the entry of the connection that its socket calls `tuple`. Returns `None` if the
    /// connection is not tracked.
    ///
    /// # Errors
    /// Why it has to stay: [`Refusal::Translated`], [`Refusal::ConntrackHelper`], or
    /// [`Refusal::Conntrack`] if there are entries but they cannot be queried.
    pub fn look(&mut self, tuple: Tuple) -> Result<Option<Tracked>, Refusal> {
        let found = self.look_up(tuple)?;
        match found.as_ref().and_then(|(_, entry)| entry.refusal(tuple)) {
            Some(refusal) => Err(refusal),
            None => Ok(found.map(Tracked::of)),
        }
    }

    /// As [`look`](Conntrack::look), also for a connection whose addresses and ports are translated.
    /// Returns its name on the other side of the translation, too.
    ///
    /// # Errors
    /// [`Refusal::ConntrackHelper`] or [`Refusal::Conntrack`].
    pub fn look_across(&mut self, tuple: Tuple) -> Result<(Option<Tracked>, Tuple), Refusal> {
        let found = self.look_up(tuple)?;
        let across = found.as_ref().map_or(Ok(tuple), |(_, entry)| entry.across(tuple))?;
        Ok((found.map(Tracked::of), across))
    }

    /// The entry that has `tuple` as one of its directions, and its zone.
    fn look_up(&mut self, tuple: Tuple) -> Result<Option<(u16, Entry)>, Refusal> {
        self.loaded = self.loaded || sysctl::is_loaded();
        if !self.loaded {
            return Ok(None);
        }
        match self.find(tuple) {
            Ok(found) => Ok(found),
            Err(_) if sysctl::entries() == Some(0) => Ok(None),
            Err(_) => Err(Refusal::Conntrack),
        }
    }

    /// Makes the entry accept every segment from now on, and keeps it alive.
    ///
    /// # Errors
    /// [`Refusal::Conntrack`] if the entry cannot be changed and checks windows.
    pub fn let_go(&mut self, tuple: Tuple, tracked: Tracked) -> Result<(), Refusal> {
        let Tracked { zone, left_s, liberal } = tracked;
        let told = if liberal { Ok(true) } else { self.change(tuple, zone, message::with_liberality) };
        match told {
            // The entry has just gone. The kernel picks the connection up, as it would have anyway.
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(_) if sysctl::is_liberal() => {}
            Err(_) => return Err(Refusal::Conntrack),
        }
        self.kept.put(tuple, zone, left_s, Instant::now());
        Ok(())
    }

    /// Stops keeping the entry alive.
    pub fn forget(&mut self, tuple: &Tuple) {
        self.kept.remove(tuple);
    }

    /// The connection has ended without conntrack's knowledge. An entry that is not kept alive was
    /// told before, or the connection is not tracked.
    pub fn end(&mut self, tuple: &Tuple, ending: Ending) {
        let Some(zone) = self.kept.remove(tuple) else { return };
        let timeouts = self.timeouts();
        let (state, seconds) = match ending {
            Ending::Closed => (State::TimeWait, timeouts.time_wait),
            Ending::Reset => (State::Close, timeouts.close),
        };
        self.put_into_state(*tuple, zone, state, seconds);
    }

    /// The connection comes home half closed. The entry is changed as if conntrack had seen the FIN
    /// and, if `acknowledged`, its ACK.
    pub fn half_closed(&mut self, tuple: &Tuple, acknowledged: bool) {
        let Some(zone) = self.kept.zone(tuple) else { return };
        let timeouts = self.timeouts();
        let (state, seconds) = match acknowledged {
            true => (State::CloseWait, timeouts.close_wait),
            false => (State::FinWait, timeouts.fin_wait),
        };
        self.put_into_state(*tuple, zone, state, seconds);
    }

    /// If the entry cannot be changed, it expires by its timeout.
    fn put_into_state(&mut self, tuple: Tuple, zone: u16, state: State, seconds: u32) {
        let _ = self.change(tuple, zone, |body| message::with_state(message::with_timeout(body, seconds), state));
    }

    /// Keeps entries from timing out, a few at a time. Returns the connections whose entries
    /// somebody deleted.
    pub fn keep(&mut self, now: Instant) -> Vec<Tuple> {
        let mut gone = Vec::new();
        for _ in 0..PER_LOOK {
            let Some((tuple, zone)) = self.kept.next_due(now) else { break };
            match self.get(tuple, zone) {
                Ok(Some(entry)) => {
                    let enough = KEEP_S.min(self.timeouts().established);
                    let left_s = if entry.left_s < enough / 2 {
                        let _ = self.change(tuple, zone, |body| message::with_timeout(body, enough));
                        enough
                    } else {
                        entry.left_s
                    };
                    self.kept.put(tuple, zone, left_s, now);
                }
                Ok(None) => {
                    self.kept.remove(&tuple);
                    gone.push(tuple);
                }
                // Try again later.
                Err(_) => self.kept.put(tuple, zone, 0, now),
            }
        }
        gone
    }

    fn timeouts(&mut self) -> Timeouts {
        let timeouts = self.timeouts.map_or_else(Timeouts::read, |timeouts| timeouts.renewed(Instant::now()));
        *self.timeouts.insert(timeouts)
    }

    /// The entry for this tuple, and its zone.
    fn find(&mut self, tuple: Tuple) -> io::Result<Option<(u16, Entry)>> {
        if let Some(entry) = self.get(tuple, 0)? {
            return Ok(Some((0, entry)));
        }
        if self.entries()? == 0 {
            return Ok(None);
        }
        if let Some(found) = self.find_in_zones(tuple)? {
            return Ok(Some(found));
        }
        if self.renew_zones(Instant::now())? { self.find_in_zones(tuple) } else { Ok(None) }
    }

    fn find_in_zones(&mut self, tuple: Tuple) -> io::Result<Option<(u16, Entry)>> {
        for zone in self.zones.known.clone() {
            if let Some(entry) = self.get(tuple, zone)? {
                return Ok(Some((zone, entry)));
            }
        }
        Ok(None)
    }

    /// Searches for zones, unless that was done recently. Returns true if the known zones changed.
    fn renew_zones(&mut self, now: Instant) -> io::Result<bool> {
        if self.zones.stale.is_some_and(|stale| now < stale) {
            return Ok(false);
        }
        let mut known = BTreeSet::new();
        let mut whole = false;
        for _ in 0..TRIES {
            let body = Body::new(&message::header(libc::AF_UNSPEC));
            whole = self.socket()?.dump(message::GET, body, |_, entry| known.extend(message::zones_of(entry)))?;
            if whole {
                break;
            }
        }
        if !whole || known.len() > ZONES_AT_MOST {
            // It cannot be known to which zone a connection belongs.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let done = Instant::now();
        self.zones.stale = Some(done + ZONES_FRESH.max((done - now) * ZONES_SHARE));
        Ok(std::mem::replace(&mut self.zones.known, known) != self.zones.known)
    }

    fn socket(&mut self) -> io::Result<&mut Socket> {
        self.socket.as_mut().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn get(&mut self, tuple: Tuple, zone: u16) -> io::Result<Option<Entry>> {
        match self.socket()?.ask(message::GET, 0, message::entry(tuple, zone)) {
            Ok(Some(body)) => Entry::of(&body).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Ok(None) => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The number of entries in this namespace.
    fn entries(&mut self) -> io::Result<u32> {
        let body = Body::new(&message::header(libc::AF_UNSPEC));
        let answer = self.socket()?.ask(message::GET_STATS, 0, body)?;
        answer.as_deref().and_then(message::entries_of).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Changes an entry. Returns false if there is none.
    fn change(&mut self, tuple: Tuple, zone: u16, how: impl FnOnce(Body) -> Body) -> io::Result<bool> {
        match self.socket()?.ask(message::NEW, NLM_F_ACK, how(message::entry(tuple, zone))) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
