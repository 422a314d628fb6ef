//! Links between programs: memory by which both ends of a connection exchange bytes ([`baton_pair`]).
//!
//! The broker makes the memory and says who has which slot. It keeps both files, so the bytes outlive
//! either program.

use super::Broker;
use baton_consumer::link::SharedSide;
use baton_ipc::message::Reply;
use baton_ipc::record::{self, PairPlace, Record};
use baton_pair::{Course, Layout, Link, Side, SlotError, is_let_go};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Connections of a link. Two programs with more get another link.
const SLOTS: u32 = 256;

/// Links of two programs. A program that lets go of no slot gets no more.
const LINKS: usize = 64;

/// Bytes that a connection's end may have written and the other end not read. An area that fits into a
/// processor's second-level cache is faster than a larger one.
pub(super) const AREA: u32 = 256 << 10;

/// Two programs, or one with itself, and the memory that they share.
pub(super) struct PairLink {
    /// The programs, in the order of the sides.
    clients: [u32; 2],
    sides: [SharedSide; 2],
    /// The programs' bells, in the same order.
    bells: [Arc<OwnedFd>; 2],
    /// Ends that have a slot: the slot, and whether it is at the first side.
    taken: BTreeSet<(u32, bool)>,
}

/// All links, by number, and the connections that are about to get a slot.
#[derive(Default)]
pub(super) struct Links {
    all: BTreeMap<u32, PairLink>,
    /// Both ends of connections that wait for nothing to be in flight.
    pub meetings: Vec<[u64; 2]>,
}

impl PairLink {
    fn sides(&self) -> [&Side; 2] {
        self.sides.each_ref().map(|side| &**side.side())
    }

    /// A slot that no connection has, nor an end that has yet to hear that it went home.
    fn free_slot(&self) -> Option<u32> {
        let is_taken = |slot: u32| [true, false].iter().any(|first| self.taken.contains(&(slot, *first)));
        (0..SLOTS).find(|slot| !is_taken(*slot) && is_let_go(self.sides(), *slot))
    }

    /// Wakes the program at a side.
    fn ring(&self, first: bool) {
        // The write fails only if the counter is at its maximum, and then the program wakes as well.
        let _ = rustix::io::write(&*self.bells[usize::from(!first)], &1u64.to_ne_bytes());
    }
}

fn number(place: PairPlace) -> NonZeroU64 {
    NonZeroU64::new(place.number).unwrap_or(NonZeroU64::MIN)
}

impl Links {
    /// True if the broker has to look again soon.
    pub fn has_meetings(&self) -> bool {
        !self.meetings.is_empty()
    }

    /// Descriptors of both sides of a link, which permit reading alone.
    pub fn read_only(&self, link: u32) -> Option<Vec<OwnedFd>> {
        self.all.get(&link)?.sides.iter().map(SharedSide::read_only).collect::<io::Result<_>>().ok()
    }

    /// Stops a pair and says how far it has come.
    ///
    /// # Errors
    /// [`SlotError`] if its programs contradict each other; [`SlotError::Range`] also if there is no such link.
    pub fn stop(&self, place: PairPlace) -> Result<Course, SlotError> {
        let link = self.all.get(&place.link).ok_or(SlotError::Range(place.slot))?;
        Course::stop(link.sides(), place.slot, number(place))
    }

    /// True if this or an earlier broker has stopped a pair.
    pub fn is_stopped(&self, place: PairPlace) -> bool {
        self.all.get(&place.link).is_some_and(|link| Course::is_stopped(link.sides(), place.slot, number(place)))
    }

    /// Bytes that an end has sent and received so far.
    pub fn carried(&self, place: PairPlace) -> Option<(u64, u64)> {
        let course = Course::read(self.all.get(&place.link)?.sides(), place.slot, number(place)).ok()?;
        let (at, other) = (usize::from(!place.first), usize::from(place.first));
        Some((course.written[at], course.written[other]))
    }

    /// Bytes that an end had not read when the pair was stopped.
    pub fn unread(&self, place: PairPlace, course: &Course) -> Vec<u8> {
        let unread = |link: &PairLink| course.unread(link.sides(), place.slot, usize::from(!place.first));
        self.all.get(&place.link).map_or_else(Vec::new, unread)
    }

    /// Bytes that an end has read, if its program has not let go of the pair, since it has yet to hear of the way home.
    pub fn still_read(&self, place: PairPlace) -> Option<u64> {
        let side = self.all.get(&place.link)?.sides()[usize::from(!place.first)];
        Course::still_read(side, place.slot, number(place))
    }

    /// Begins one end of a pair, with bytes that it has written.
    ///
    /// # Errors
    /// If they do not fit into the area.
    pub fn begin(&self, place: PairPlace, bytes: [&[u8]; 2]) -> io::Result<()> {
        let mut end = self.facing(place)?.begin(place.slot, number(place)).map_err(io::Error::other)?;
        for bytes in bytes {
            // The program at the other end has yet to hear of the pair, so its bell need not ring.
            let (count, _) = end.write(bytes).map_err(io::Error::other)?;
            if count < bytes.len() {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Ends what a program that has gone wrote, and wakes the other: a reset if it left bytes unread, else a FIN.
    pub fn end(&self, place: PairPlace) {
        let Ok(Ok(mut end)) = self.facing(place).map(|link| link.resume(place.slot, number(place))) else { return };
        let unread = end.readable().map_or(true, |bytes| bytes > 0);
        let _ = if unread { end.reset() } else { end.close() };
        if let Some(link) = self.all.get(&place.link) {
            link.ring(!place.first);
        }
    }

    /// A link as the program of one end has it.
    fn facing(&self, place: PairPlace) -> io::Result<Link> {
        let link = self.all.get(&place.link).ok_or(ErrorKind::NotFound)?;
        let [first, second] = link.sides.each_ref().map(|side| side.side().clone());
        let (ours, theirs) = if place.first { (first, second) } else { (second, first) };
        Link::new(ours, theirs).map_err(io::Error::other)
    }
}

impl Broker {
    /// Gives both ends of a connection of these programs a slot. The programs are told of a new link.
    pub(super) fn place_for(&mut self, clients: [u32; 2]) -> io::Result<[PairPlace; 2]> {
        let free = |link: &PairLink| if link.clients == clients { link.free_slot() } else { None };
        let found = self.links.all.iter().find_map(|(link, it)| Some((*link, free(it)?)));
        let (link, slot) = match found {
            Some(found) => found,
            None => (self.make_link(clients)?, 0),
        };
        // A slot never has the same number again, not even after this broker.
        self.next_connection += 1;
        let number = self.next_connection;
        let places = [true, false].map(|first| PairPlace { link, first, slot, number });
        if let Some(it) = self.links.all.get_mut(&link) {
            it.taken.extend([(slot, true), (slot, false)]);
        }
        Ok(places)
    }

    fn make_link(&mut self, clients: [u32; 2]) -> io::Result<u32> {
        if self.links.all.values().filter(|link| link.clients == clients).count() >= LINKS {
            return Err(ErrorKind::OutOfMemory.into());
        }
        let layout = Layout::new(SLOTS, AREA).map_err(io::Error::other)?;
        let sides = [SharedSide::create(layout)?, SharedSide::create(layout)?];
        let bells = [self.bell_of(clients[0])?, self.bell_of(clients[1])?];
        self.next_region += 1;
        let (number, kept) = (self.next_region, Record::Link { link: self.next_region, clients: clients.into() });
        let files =
            [Arc::new(sides[0].as_fd().try_clone_to_owned()?), Arc::new(sides[1].as_fd().try_clone_to_owned()?)];
        self.checkpoints.keep(record::link(number), &kept, &[&files[0], &files[1], &bells[0], &bells[1]]);
        for (at, client) in clients.into_iter().enumerate() {
            let fds = vec![
                sides[at].as_fd().try_clone_to_owned()?,
                sides[1 - at].read_only()?,
                bells[at].try_clone()?,
                bells[1 - at].try_clone()?,
            ];
            self.tell_client(client, &Reply::Link { link: number, first: at == 0 }, fds);
        }
        self.links.all.insert(number, PairLink { clients, sides, bells, taken: BTreeSet::new() });
        Ok(number)
    }

    /// The bell of a program, which it keeps for all its links.
    fn bell_of(&mut self, client: u32) -> io::Result<Arc<OwnedFd>> {
        let program = self.clients.get_mut(&client).ok_or(ErrorKind::NotConnected)?;
        if let Some(bell) = &program.bell {
            return Ok(bell.clone());
        }
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        program.bell = Some(bell.clone());
        self.keep_client(client);
        Ok(bell)
    }

    /// A connection's end no longer needs its slot.
    pub(super) fn leave_link(&mut self, id: u64, place: PairPlace) {
        self.end_followed(place, None);
        self.checkpoints.forget(record::pair(id));
        let Some(link) = self.links.all.get_mut(&place.link) else { return };
        link.taken.remove(&(place.slot, place.first));
        let gone = link.clients.into_iter().find(|client| !self.clients.contains_key(client));
        gone.into_iter().for_each(|client| self.forget_links(client));
    }

    /// Forgets the links of a program that has gone, once no connection needs them. So do the programs at the other
    /// sides.
    pub(super) fn forget_links(&mut self, client: u32) {
        let gone: Vec<u32> = self
            .links
            .all
            .iter()
            .filter(|(_, link)| link.clients.contains(&client) && link.taken.is_empty())
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            let Some(link) = self.links.all.remove(&number) else { continue };
            self.checkpoints.forget(record::link(number));
            for (at, other) in link.clients.into_iter().enumerate() {
                if self.clients.get(&other).is_some_and(|program| program.lets_links_go()) {
                    self.tell_client(other, &Reply::Unlink { link: number, first: at == 0 }, Vec::new());
                }
            }
        }
    }

    /// Takes over a link of a predecessor.
    pub(super) fn take_up_link(&mut self, link: u32, clients: (u32, u32), files: &[Arc<OwnedFd>]) {
        let [first, second, bell, other_bell] = files else { return };
        let open = |file: &Arc<OwnedFd>| SharedSide::open(file.try_clone()?);
        let sides = open(first).and_then(|first| Ok([first, open(second)?]));
        let bells = [bell.clone(), other_bell.clone()];
        // Without the memory, `take_up_pair` finds no link.
        if let Ok(sides) = sides {
            let taken = BTreeSet::new();
            self.links.all.insert(link, PairLink { clients: clients.into(), sides, bells, taken });
        }
    }

    /// An end of a predecessor's pair has this place. Fails if the link is gone.
    pub(super) fn take_up_place(&mut self, place: PairPlace) -> io::Result<()> {
        let link = self.links.all.get_mut(&place.link).ok_or(ErrorKind::NotFound)?;
        link.taken.insert((place.slot, place.first));
        Ok(())
    }
}
