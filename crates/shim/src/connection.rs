//! One connection of the program: where it is, and how it gets there.
//!
//! ```text
//!              enter                hand_over
//!   accept ------------> Kernel -----------------> Moved
//!   connect                |  settle                 |  bring_home
//!                          v                         v
//!                  an ordinary descriptor   <--------+------> Over, if it had ended
//! ```
//!
//! Calls hold the slot's lock for reading while they look at a stream, never while they
//! wait; who moves a connection holds it for writing. A connection that is `Kernel` waits
//! for its policy; calls on it are the kernel's, and counted while they may wait there, since
//! who waits on a socket must not lose it.

use crate::account;
use crate::candidate::{Candidate, Ready};
use crate::descriptors::duplicate;
use crate::epoll;
use crate::everything;
use crate::over::Over;
use crate::service;
use crate::sharing::Sharing;
use crate::sys::socket::{self, Name};
use crate::table::{self, Named, Reading, Slot};
use baton_client::{NotAdopted, Stream};
use baton_consumer::held::interrupted;
use baton_policy::rules::{BULK_CALL, Rule};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is behind a slot's lock.
#[derive(Default)]
pub struct Body {
    pub state: State,
}

impl Body {
    /// There is no connection yet.
    fn is_fresh(&self) -> bool {
        matches!(&self.state, State::Kernel(candidate) if candidate.is_fresh())
    }
}

/// See the file's head.
#[derive(Default)]
pub enum State {
    #[default]
    Free,
    Kernel(Candidate),
    Moved(Moved),
    Over(Over),
}

/// A connection that the service has.
pub struct Moved {
    pub stream: Stream,
    pub local: Name,
    pub peer: Name,
    /// The socket's device and inode.
    pub identity: (u64, u64),
    rule: Rule,
    /// Bytes that large calls moved.
    bulk: AtomicU64,
}

impl Moved {
    /// It was reset, or both sides have closed: for the kernel it is connected no more.
    pub fn is_over(&self) -> bool {
        const CLOSE: u8 = 7;
        let there = self.stream.readiness();
        let is_closed = || self.stream.tcp_info().map_or(true, |info| info.first() == Some(&CLOSE));
        there.ended && (there.failed || is_closed())
    }

    /// Counts what a call moved; false if the connection is to go home for it.
    fn keeps(&self, count: usize) -> bool {
        if count < BULK_CALL {
            return true;
        }
        let before = self.bulk.fetch_add(count as u64, Ordering::Relaxed);
        self.rule.keeps(before + count as u64)
    }
}

/// A connection that is not in the kernel, and stays where it is while this lives.
pub struct Held {
    pub named: Named,
    body: Reading,
}

impl Held {
    pub fn slot(&self) -> &'static Slot {
        self.named.slot
    }

    pub fn moved(&self) -> Option<&Moved> {
        if let State::Moved(moved) = &self.body.state { Some(moved) } else { None }
    }

    pub fn stream(&self) -> Option<&Stream> {
        self.moved().map(|moved| &moved.stream)
    }

    /// Counts what a call moved, and brings home what is better off there.
    pub fn count(self, count: usize) {
        if !self.moved().is_none_or(|moved| moved.keeps(count)) {
            let named = self.named;
            drop(self);
            bring_home_named(&named, "bulk");
        }
    }

    pub fn over(&self) -> Option<&Over> {
        if let State::Over(over) = &self.body.state { Some(over) } else { None }
    }
}

/// A call of the kernel on a connection that may move: it does not meanwhile.
#[must_use]
pub struct KernelCall(Option<&'static Slot>);

impl KernelCall {
    /// On what is no connection of ours.
    pub fn none() -> KernelCall {
        KernelCall(None)
    }

    fn on(slot: &'static Slot) -> KernelCall {
        slot.kernel_calls.fetch_add(1, Ordering::Relaxed);
        KernelCall(Some(slot))
    }
}

impl Drop for KernelCall {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.kernel_calls.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Whose a call is.
pub enum Place {
    Kernel(KernelCall),
    Carried(Held),
}

/// The connection that a descriptor is, if it is not in the kernel.
pub fn at(fd: RawFd) -> Option<Held> {
    hold(table::named(fd)?)
}

/// The same, for who looked it up before.
pub fn held(named: Named) -> Option<Held> {
    if interrupted() { None } else { hold(named) }
}

fn hold(named: Named) -> Option<Held> {
    let body = named.read()?;
    let is_carried = matches!(body.state, State::Moved(_) | State::Over(_));
    if is_carried { hold_carried(named, body) } else { None }
}

/// None of what the service has given back: the kernel's socket is an ordinary one from here on.
fn hold_carried(named: Named, body: Reading) -> Option<Held> {
    let held = Held { named, body };
    if held.stream().is_some_and(Stream::is_given_back) {
        drop(held);
        bring_home_named(&named, "urgent-data");
        return None;
    }
    Some(held)
}

/// Whose a call on a descriptor is. A connection whose time has come moves first.
pub fn place(fd: RawFd) -> Place {
    let Some(named) = table::named(fd) else { return Place::Kernel(KernelCall::none()) };
    let looked = whose(&named);
    if !matches!(&looked, (_, true)) {
        return looked.0;
    }
    drop(looked);
    hand_over(fd, &named);
    whose(&named).0
}

/// Whose it is now, and whether it is due to move.
fn whose(named: &Named) -> (Place, bool) {
    let ordinary = (Place::Kernel(KernelCall::none()), false);
    let Some(body) = named.read() else { return ordinary };
    match &body.state {
        State::Free => ordinary,
        State::Kernel(candidate) => {
            let sends = named.slot.sends.load(Ordering::Relaxed);
            (Place::Kernel(KernelCall::on(named.slot)), candidate.is_due(sends))
        }
        State::Moved(_) | State::Over(_) => {
            hold_carried(*named, body).map_or(ordinary, |held| (Place::Carried(held), false))
        }
    }
}

/// As [`place`], for a request to send.
pub fn place_to_send(fd: RawFd) -> Place {
    if let Some(named) = table::named(fd) {
        named.slot.sends.fetch_add(1, Ordering::Relaxed);
    }
    place(fd)
}

/// Calls are made past us: nothing moves any more.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// From now on all is in the kernel: the program makes calls that nobody sees.
pub fn stop(why: &str) {
    STOPPED.store(true, Ordering::Relaxed);
    everything::bring_home(why);
}

/// A socket that is no connection yet is put into an epoll set.
pub fn foresee(fd: RawFd) {
    if socket::is_unconnected(fd)
        && let Some(identity) = socket::identity(fd)
    {
        let candidate = Candidate::fresh(identity);
        table::enter(fd, State::Kernel(candidate), socket::is_nonblocking(fd));
    }
}

/// True if nothing is known of a connection of this descriptor.
pub fn is_new(fd: RawFd) -> bool {
    table::named(fd).is_none_or(|named| named.read().is_none_or(|body| body.is_fresh()))
}

/// The program has a new connection: accepted, or (perhaps only begun to be) connected.
pub fn begin(fd: RawFd, connecting: bool) {
    let early = table::named(fd);
    let candidate = match Candidate::begin(fd, connecting) {
        Ok(_) if STOPPED.load(Ordering::Relaxed) => Err(Some("io-uring")),
        candidate => candidate,
    };
    let candidate = match candidate {
        Ok(candidate) => candidate,
        Err(Some(why)) => {
            account::count(&format!("stays {why}"));
            return early.into_iter().for_each(|named| bring_home_named(&named, why));
        }
        Err(None) => return,
    };
    let moves = !connecting && candidate.is_due(0);
    let named = match early {
        Some(named) => {
            let Some(mut body) = named.write() else { return };
            let State::Kernel(fresh) = &mut body.state else { return };
            let shared = std::mem::take(&mut fresh.shared);
            *fresh = candidate;
            fresh.shared = shared;
            named
        }
        None => match table::enter(fd, State::Kernel(candidate), socket::is_nonblocking(fd)) {
            Some(named) => named,
            None => return,
        },
    };
    if moves {
        hand_over(fd, &named);
    }
}

/// Has the service take a connection over, if it may go now.
fn hand_over(fd: RawFd, named: &Named) {
    let Some(mut body) = named.write() else { return };
    let State::Kernel(candidate) = &mut body.state else { return };
    match candidate.is_ready(fd, named.slot) {
        Ready::Go => {}
        Ready::NotYet => return,
        Ready::Never(why) => return stay(named, &mut body, why),
    }
    if let Some(why) = epoll::withdraw(named.slot) {
        return stay(named, &mut body, why);
    }
    match adopt(fd, candidate) {
        Ok(moved) => {
            epoll::arrive(named.slot, &moved.stream);
            body.state = State::Moved(moved);
            account::count("moved");
        }
        Err(why) => {
            if candidate.waits(&why, named.slot.sends.load(Ordering::Relaxed)) {
                return epoll::put_back(named.slot);
            }
            epoll::put_back(named.slot);
            if baton_kernel::is_captured(socket::borrow(fd)).unwrap_or(false) {
                // The service was killed over it: the kernel does not have it any more.
                epoll::leave(named.slot);
                body.state = State::Over(Over::default());
                return account::count("stays lost");
            }
            stay(named, &mut body, &why);
        }
    }
}

/// It is the kernel's for good.
fn stay(named: &Named, body: &mut Body, why: &str) {
    if !body.is_fresh() {
        account::count(&format!("stays {why}"));
    }
    epoll::leave(named.slot);
    table::settle(named, body);
}

fn adopt(fd: RawFd, candidate: &Candidate) -> Result<Moved, String> {
    let (identity, rule) = (candidate.identity, candidate.rule());
    let (local, peer) = (socket::name(fd, false), socket::name(fd, true));
    let (Some(local), Some(peer)) = (local, peer) else { return Err("not-connected".into()) };
    let lent = duplicate(socket::borrow(fd)).map_err(|_| "no-descriptors")?;
    let adopted = service::with(|service| (service.adopt(lent), service.devices().is_empty()));
    let (adopted, nowhere) = adopted.ok_or("no-service")?;
    let stream = adopted.map_err(|NotAdopted { code, text, .. }| {
        // Which rule it is stands behind the colon.
        if let ("firewall-rule", Some((_, rule))) = (&*code, text.split_once(": ")) {
            account::count(&format!("rule {rule}"));
        }
        code
    })?;
    if service::is_direct() && nowhere {
        account::count("elsewhere");
    }
    stream.set_nonblocking(true);
    Ok(Moved { stream, local, peer, identity, rule, bulk: AtomicU64::new(0) })
}

/// Makes a connection an ordinary one of the kernel, for this reason.
pub fn bring_home(fd: RawFd, why: &str) {
    if let Some(named) = table::named(fd) {
        bring_home_named(&named, why);
    }
}

/// As [`bring_home`], for who looked it up.
pub fn bring_home_named(named: &Named, why: &str) {
    let Some(mut body) = named.write() else { return };
    match &body.state {
        State::Free | State::Over(_) => {}
        State::Kernel(_) => stay(named, &mut body, why),
        State::Moved(moved) => {
            account_for(moved);
            let Ok(lent) = moved.stream.take_back() else {
                let over = Over::of(&moved.stream);
                body.state = State::Over(over);
                return;
            };
            // What the service used; the program's own is the same socket.
            drop(lent);
            account::count(&format!("home {why}"));
            epoll::put_back(named.slot);
            epoll::leave(named.slot);
            drop(table::settle(named, &mut body));
        }
    }
}

/// The program has closed a descriptor, or is about to: with the last one its connection.
pub fn close(fd: RawFd) {
    let Some((named, state)) = table::close(fd) else { return };
    epoll::leave(named.slot);
    tell(&state);
    drop(state);
}

/// A connection, or the program, has come to its end: what became of it is counted.
pub fn tell(state: &State) {
    match state {
        State::Moved(moved) => account_for(moved),
        // Who has it last tells of one that several processes have.
        State::Kernel(candidate) => {
            if let Some(why) = candidate.why_it_stayed() {
                account::count(&format!("stays {why}"));
            }
        }
        _ => {}
    }
}

/// What went over it while it was back in the kernel did not go over the engine, for which each call
/// counted it.
pub fn account_for(moved: &Moved) {
    let (sent, received) = moved.stream.take_bytes_at_home();
    if sent + received > 0 {
        account::add("bytes received", received.wrapping_neg());
        account::add("bytes sent", sent.wrapping_neg());
        account::add("bytes received at home", received);
        account::add("bytes sent at home", sent);
    }
}

/// Everything is in the kernel after this, for a fork. What a child gives back by an exec may
/// move again.
pub fn park_all(sharing: Option<&Sharing>) {
    for (named, fds) in table::all() {
        match sharing {
            Some(sharing) if !fds.iter().any(|fd| socket::is_inherited(*fd)) => park(&named, fds[0], sharing),
            _ => bring_home_named(&named, "fork"),
        }
    }
}

fn park(named: &Named, fd: RawFd, sharing: &Sharing) {
    let Some(mut body) = named.write() else { return };
    match &mut body.state {
        State::Free | State::Over(_) => {}
        State::Kernel(candidate) => candidate.shared.push(sharing.clone()),
        State::Moved(moved) => {
            account_for(moved);
            let ports = (moved.local.port().unwrap_or(0), moved.peer.port().unwrap_or(0));
            let home = moved.stream.take_back();
            let Ok(lent) = home else {
                let over = Over::of(&moved.stream);
                body.state = State::Over(over);
                return;
            };
            drop(lent);
            account::count("home fork");
            epoll::put_back(named.slot);
            let identity = socket::identity(fd).unwrap_or_default();
            let sends = named.slot.sends.load(Ordering::Relaxed);
            body.state = State::Kernel(Candidate::parked(identity, ports, sends, sharing.clone()));
        }
    }
}
