//! The neighbour table: link addresses, found by asking, kept by use.
//!
//! One table serves ARP and neighbour discovery, with the states of RFC 4861
//! §7.3.2 for both, as Linux has it:
//!
//! ```text
//!             asked, no answer ×3
//!   Incomplete ------------------> Failed      Failed --used--> Incomplete
//!       |  ^                         |
//!  answer  | unicast asks fail       | news
//!       v  |                         v
//!   Reachable --30 s, nothing heard--> Stale --used--> Delay --5 s--> Probe
//!       ^                                                 |             |
//!       +------------- answer, or forward progress -------+-------------+
//! ```
//!
//! An entry that connections hold (`refs`) counts as used, so when its 30 s end it goes
//! straight to Probe and is asked by unicast while its address still serves; one that nobody
//! holds has no timer, and its age is seen at its next use. Entries held cannot be evicted; the
//! others are, least recently used first, so a flood of unknown senders can only evict unused
//! entries.
//!
//! The link header of each entry lies ready in an array of its own: sending a
//! frame costs one access to it.

mod own;
mod state;

pub(super) use own::LinkAddress;
pub(super) use state::{News, Source, State};

use super::outbox::Outbox;
use baton_tcp::time::{Duration, Instant};
use baton_wire::addr::Addr;
use std::collections::{BTreeMap, BTreeSet};

/// Neighbours known at once, at most.
pub const CAPACITY: usize = 4096;
/// Packets that wait for one neighbour's address (RFC 1122 §2.3.2.2 asks for one).
pub const HELD_PACKETS: usize = 4;
/// Largest packet that may wait, in bytes without link header: a SYN's size.
pub const HELD_BYTES: usize = 128;

/// REACHABLE_TIME of RFC 4861 §10, not randomised.
const REACHABLE_TIME: Duration = Duration::from_secs(30);
/// The same if another stack is asked, which has times of its own: its entry has to stay in
/// use, and its findings have to arrive here soon.
const TOLD_TIME: Duration = Duration::from_secs(5);
/// DELAY_FIRST_PROBE_TIME of RFC 4861 §10.
const DELAY_FIRST_PROBE: Duration = Duration::from_secs(5);
/// RETRANS_TIMER of RFC 4861 §10.
const RETRANSMIT: Duration = Duration::from_secs(1);
/// MAX_MULTICAST_SOLICIT and MAX_UNICAST_SOLICIT of RFC 4861 §10.
const SOLICITS: u8 = 3;
/// An ARP packet does not change an address younger than this (Linux `locktime`).
const ARP_LOCKTIME: Duration = Duration::from_secs(1);

/// A reference to a neighbour, given back with `hop_release`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct HopId(pub u16);

impl HopId {
    /// The one hop of a port without link headers.
    pub const BARE: HopId = HopId(0);
}

/// A question that is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Solicit {
    /// The neighbour whose link address is asked for.
    pub(super) target: Addr,
    /// Ask this link address only; else everybody.
    pub(super) unicast: Option<[u8; 6]>,
}

/// A link header ready to copy; `len` is [`Header::UNRESOLVED`] without one.
#[derive(Clone, Copy, Debug)]
struct Header {
    bytes: [u8; 18],
    len: u8,
}

impl Header {
    const UNRESOLVED: u8 = u8::MAX;
    const NONE: Header = Header { bytes: [0; 18], len: Header::UNRESOLVED };
    const BARE: Header = Header { bytes: [0; 18], len: 0 };
}

#[derive(Debug)]
struct Entry {
    addr: Addr,
    mac: [u8; 6],
    state: State,
    refs: u32,
    solicits: u8,
    /// The time under which it stands in `due`, if it does.
    deadline: Option<Instant>,
    /// The time under which it stands in `idle` while `refs` is 0.
    used: Instant,
    /// When the link address was last learned.
    learned: Instant,
    reachable_until: Instant,
    held: Vec<Vec<u8>>,
}

/// The neighbours of one interface.
#[derive(Debug)]
pub(super) struct Neighbours {
    own: LinkAddress,
    reachable_time: Duration,
    headers: Vec<Header>,
    entries: Vec<Option<Entry>>,
    index: BTreeMap<Addr, HopId>,
    free: Vec<HopId>,
    due: BTreeSet<(Instant, HopId)>,
    idle: BTreeSet<(Instant, HopId)>,
    failed: BTreeSet<HopId>,
}

impl Neighbours {
    /// An empty table; hop 0 is the one without a link header.
    pub(super) fn new(own: LinkAddress) -> Neighbours {
        Neighbours {
            own,
            reachable_time: REACHABLE_TIME,
            headers: vec![Header::BARE],
            entries: vec![None],
            index: BTreeMap::new(),
            free: Vec::new(),
            due: BTreeSet::new(),
            idle: BTreeSet::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Makes the table ask another stack instead of the neighbours.
    pub(super) fn asking_a_host(self) -> Neighbours {
        Neighbours { reachable_time: TOLD_TIME, ..self }
    }

    /// The link header for `hop`, or `None` while its address is unknown.
    #[inline]
    pub(super) fn header(&self, hop: HopId) -> Option<&[u8]> {
        let header = self.headers.get(usize::from(hop.0))?;
        header.bytes.get(..usize::from(header.len))
    }

    /// Takes a reference on the entry of `addr`, made if need be, and starts
    /// what its use starts; `None` if the table is full of entries in use.
    pub(super) fn acquire(&mut self, addr: Addr, now: Instant) -> Option<HopId> {
        let hop = match self.index.get(&addr) {
            Some(&hop) => hop,
            None => self.insert(addr, now)?,
        };
        let entry = self.entry_mut(hop)?;
        let used = entry.used;
        entry.refs += 1;
        entry.used = now;
        if entry.refs == 1 {
            self.idle.remove(&(used, hop));
        }
        self.on_use(hop, now);
        Some(hop)
    }

    /// Gives a reference back.
    pub(super) fn release(&mut self, hop: HopId) {
        let Some(entry) = self.entry_mut(hop) else { return };
        assert!(entry.refs > 0, "a hop is released once for each time it was taken");
        entry.refs -= 1;
        if entry.refs == 0 {
            let used = entry.used;
            self.idle.insert((used, hop));
            self.failed.remove(&hop);
        }
    }

    /// Forward progress was made through `hop` (RFC 4861 §7.3.1).
    pub(super) fn confirm(&mut self, hop: HopId, now: Instant) {
        let until = now + self.reachable_time;
        let Some(entry) = self.entry_mut(hop) else { return };
        if !entry.state.is_resolved() {
            return;
        }
        entry.reachable_until = until;
        if entry.state != State::Reachable {
            self.enter(hop, State::Reachable, now);
        }
    }

    /// Sends `packet` through `hop` if it is resolved, else lets it wait for the address in
    /// place of the oldest, if the queue is full; false if it is too big to wait.
    pub(super) fn hold(&mut self, hop: HopId, packet: &[u8], outbox: &mut Outbox) -> bool {
        if let Some(header) = self.header(hop) {
            return outbox.push(&[header, packet]);
        }
        // A retransmission to a neighbour that had failed is a new attempt; the
        // next poll asks.
        self.on_use(hop, Instant(0));
        let Some(entry) = self.entry_mut(hop) else { return false };
        if packet.len() > HELD_BYTES {
            return false;
        }
        if entry.held.len() == HELD_PACKETS {
            entry.held.remove(0);
        }
        entry.held.push(packet.to_vec());
        true
    }

    /// Notes that `addr` is at `mac`. Only with `create` does an unknown address get an entry.
    /// True if anything was learned or confirmed.
    pub(super) fn learn(
        &mut self,
        addr: Addr,
        mac: [u8; 6],
        source: Source,
        create: bool,
        now: Instant,
        outbox: &mut Outbox,
    ) -> bool {
        let hop = match self.index.get(&addr) {
            Some(&hop) => hop,
            None if create => match self.insert(addr, now) {
                Some(hop) => hop,
                None => return false,
            },
            None => return false,
        };
        let until = now + self.reachable_time;
        let Some(entry) = self.entry_mut(hop) else { return false };
        let news = news_of(entry, mac, source, now);
        let (state, take) = entry.state.on_news(news);
        if take {
            entry.mac = mac;
            entry.learned = now;
        }
        if state == State::Reachable && news.solicited {
            entry.reachable_until = until;
        }
        let changed = take || state != entry.state || (news.solicited && state == State::Reachable);
        if changed {
            // An entry in use does not rest in Stale: it is about to be probed.
            let state = if entry.refs > 0 { state.on_use() } else { state };
            self.enter(hop, state, now);
        }
        if take {
            self.resolved(hop, outbox);
        }
        changed
    }

    /// The link address of `addr` may have changed: if connections use it, it is asked for at
    /// once, and the old address serves until then.
    pub(super) fn doubt(&mut self, addr: Addr, now: Instant) {
        let Some(&hop) = self.index.get(&addr) else { return };
        let doubtful = |entry: &mut Entry| entry.refs > 0 && matches!(entry.state, State::Reachable | State::Delay);
        if self.entry_mut(hop).is_some_and(doubtful) {
            self.enter(hop, State::Probe, now);
        }
    }

    /// `addr` answered without naming its link address; true if it is known.
    pub(super) fn confirm_known(&mut self, addr: Addr, now: Instant) -> bool {
        let Some(&hop) = self.index.get(&addr) else { return false };
        self.confirm(hop, now);
        self.header(hop).is_some()
    }

    /// The link address of `addr`, if it is known.
    #[cfg(test)]
    pub(super) fn lookup(&self, addr: Addr) -> Option<([u8; 6], State)> {
        let entry = self.entry(*self.index.get(&addr)?)?;
        entry.state.is_resolved().then_some((entry.mac, entry.state))
    }

    /// Runs the timers that are due, asking through `solicit`.
    pub(super) fn poll(&mut self, now: Instant, solicit: &mut dyn FnMut(Solicit)) {
        while let Some(&(at, hop)) = self.due.first() {
            if at > now {
                break;
            }
            self.on_expiry(hop, now, solicit);
        }
    }

    /// When [`Neighbours::poll`] has something to do next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|&(at, _)| at)
    }

    /// A hop in use whose neighbour did not answer, each told once.
    pub(super) fn pop_failed(&mut self) -> Option<HopId> {
        self.failed.pop_first()
    }

    /// Neighbours known, resolved or not.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    #[cfg(test)]
    fn entry(&self, hop: HopId) -> Option<&Entry> {
        self.entries.get(usize::from(hop.0))?.as_ref()
    }

    fn entry_mut(&mut self, hop: HopId) -> Option<&mut Entry> {
        self.entries.get_mut(usize::from(hop.0))?.as_mut()
    }

    /// A new entry, not held, in place of the least recently used one if the
    /// table is full.
    fn insert(&mut self, addr: Addr, now: Instant) -> Option<HopId> {
        if self.index.len() == CAPACITY {
            let &(_, victim) = self.idle.first()?;
            self.remove(victim);
        }
        let hop = self.free.pop().unwrap_or_else(|| {
            self.headers.push(Header::NONE);
            self.entries.push(None);
            HopId((self.entries.len() - 1) as u16)
        });
        self.entries[usize::from(hop.0)] = Some(Entry {
            addr,
            mac: [0; 6],
            state: State::Failed,
            refs: 0,
            solicits: 0,
            deadline: None,
            used: now,
            learned: now,
            reachable_until: Instant(0),
            held: Vec::new(),
        });
        self.index.insert(addr, hop);
        self.idle.insert((now, hop));
        Some(hop)
    }

    fn remove(&mut self, hop: HopId) {
        let Some(entry) = self.entries[usize::from(hop.0)].take() else { return };
        assert!(entry.refs == 0, "an entry in use stays");
        self.index.remove(&entry.addr);
        self.idle.remove(&(entry.used, hop));
        if let Some(at) = entry.deadline {
            self.due.remove(&(at, hop));
        }
        self.headers[usize::from(hop.0)] = Header::NONE;
        self.free.push(hop);
    }

    fn on_use(&mut self, hop: HopId, now: Instant) {
        let Some(entry) = self.entry_mut(hop) else { return };
        let aged =
            if entry.state == State::Reachable && entry.reachable_until <= now { State::Stale } else { entry.state };
        let next = aged.on_use();
        if next != entry.state || (next == State::Reachable && entry.deadline.is_none()) {
            self.enter(hop, next, now);
        }
    }

    /// Goes to `state` and sets the timer that it has.
    fn enter(&mut self, hop: HopId, state: State, now: Instant) {
        let Some(entry) = self.entry_mut(hop) else { return };
        entry.state = state;
        entry.solicits = 0;
        let deadline = match state {
            State::Incomplete | State::Probe => Some(now),
            State::Delay => Some(now + DELAY_FIRST_PROBE),
            State::Reachable if entry.refs > 0 => Some(entry.reachable_until),
            State::Reachable | State::Stale | State::Failed => None,
        };
        if !state.is_resolved() {
            self.headers[usize::from(hop.0)] = Header::NONE;
        }
        if state == State::Incomplete {
            self.failed.remove(&hop);
        }
        self.arm(hop, deadline);
    }

    fn arm(&mut self, hop: HopId, deadline: Option<Instant>) {
        let Some(entry) = self.entry_mut(hop) else { return };
        let before = std::mem::replace(&mut entry.deadline, deadline);
        if let Some(at) = before {
            self.due.remove(&(at, hop));
        }
        if let Some(at) = deadline {
            self.due.insert((at, hop));
        }
    }

    /// A timer ran out: ask again, or change state.
    fn on_expiry(&mut self, hop: HopId, now: Instant, solicit: &mut dyn FnMut(Solicit)) {
        self.arm(hop, None);
        let Some(entry) = self.entry_mut(hop) else { return };
        let held = entry.refs > 0;
        if entry.state == State::Reachable && entry.reachable_until > now {
            // Confirmed since the timer was set.
            let until = held.then_some(entry.reachable_until);
            return self.arm(hop, until);
        }
        let next = entry.state.on_expiry(held, entry.solicits == SOLICITS);
        if next != entry.state {
            if next == State::Failed {
                entry.held.clear();
            }
            self.enter(hop, next, now);
            if next == State::Failed && held {
                self.failed.insert(hop);
            }
        } else if matches!(next, State::Incomplete | State::Probe) {
            entry.solicits += 1;
            let unicast = (next == State::Probe).then_some(entry.mac);
            solicit(Solicit { target: entry.addr, unicast });
            self.arm(hop, Some(now + RETRANSMIT));
        }
    }

    /// The address of `hop` became known or changed: its header is written, and
    /// what waited goes out.
    fn resolved(&mut self, hop: HopId, outbox: &mut Outbox) {
        let own = self.own;
        let Some(entry) = self.entry_mut(hop) else { return };
        let (bytes, len) = own.header_to(entry.mac, ethertype(entry.addr));
        for packet in std::mem::take(&mut entry.held) {
            outbox.push(&[&bytes[..len], &packet]);
        }
        self.failed.remove(&hop);
        self.headers[usize::from(hop.0)] = Header { bytes, len: len as u8 };
    }
}

fn ethertype(addr: Addr) -> u16 {
    if addr.is_v4() { 0x0800 } else { 0x86dd }
}

/// The changes to `entry` that a message naming `mac` allows, if it came from `source`.
fn news_of(entry: &Entry, mac: [u8; 6], source: Source, now: Instant) -> News {
    let confirmed = entry.state == State::Reachable && entry.reachable_until > now;
    let differs = entry.mac != mac;
    match source {
        Source::Arp { solicited } => {
            let overrides = !entry.state.is_resolved() || now.since(entry.learned) >= ARP_LOCKTIME;
            News { differs, solicited: solicited && (overrides || !differs), overrides, doubts: false }
        }
        Source::Solicitation => News { differs, solicited: false, overrides: true, doubts: false },
        Source::Advertisement { solicited, overrides } => News { differs, solicited, overrides, doubts: true },
        Source::Frame => News { differs, solicited: false, overrides: entry.refs == 0 && !confirmed, doubts: false },
    }
}

#[cfg(test)]
mod tests;
