//! One connection of the program: where it is, and how it moves.
//!
//! ```text
//!              enter                hand_over
//!   accept ------------> Kernel -----------------> Moved
//!   connect                |  settle                 |  bring_home
//!                          v                         v
//!                  an ordinary descriptor   <--------+------> Ended, if it had ended
//! ```
//!
//! A call holds the slot's lock for reading while it uses a stream, but never while it waits. A
//! thread that moves a connection holds it for writing. A connection in the state `Kernel` waits
//! for the policy. The kernel serves the calls on it. They are counted while they may wait there,
//! because a connection must not move while a thread waits on its socket.

use crate::account;
use crate::candidate::{Candidate, Ready};
use crate::descriptors::duplicate;
use crate::ended::Ended;
use crate::membership;
use crate::os::socket;
use crate::service;
use crate::sharing::Sharing;
use crate::state::{Body, Moved, State};
use crate::table::{self, Reading, Slot, SlotRef};
use crate::turned_away::ALONE;
use baton_client::{NotAdopted, Stream};
use baton_consumer::held::interrupted;
use baton_policy::conditions::Direction;
use baton_policy::{Reason, Refusal};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// A connection that is not in the kernel, with the slot's lock: it does not move while this exists.
pub struct Held {
    pub slot_ref: SlotRef,
    body: Reading,
}

impl Held {
    pub fn slot(&self) -> &'static Slot {
        self.slot_ref.slot
    }

    pub fn moved(&self) -> Option<&Moved> {
        if let State::Moved(moved) = &self.body.state { Some(moved) } else { None }
    }

    pub fn stream(&self) -> Option<&Stream> {
        self.moved().map(|moved| &moved.stream)
    }

    /// Counts the bytes that a call moved, and brings the connection home if the policy says so.
    pub fn count(self, count: usize) {
        if !self.moved().is_none_or(|moved| moved.keeps(count)) {
            let slot_ref = self.slot_ref;
            drop(self);
            bring_slot_home(&slot_ref, Reason::Bulk);
        }
    }

    pub fn ended(&self) -> Option<&Ended> {
        if let State::Ended(ended) = &self.body.state { Some(ended) } else { None }
    }
}

/// A call in the kernel on a connection that may move. The connection does not move while this exists.
#[must_use]
pub struct KernelCall(Option<&'static Slot>);

impl KernelCall {
    /// A call on a descriptor that the library does not know.
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

/// Where a call is served: in the kernel, or by this library.
pub enum CallTarget {
    Kernel(KernelCall),
    Carried(Held),
}

/// The connection of a descriptor, if it is not in the kernel.
pub fn at(fd: RawFd) -> Option<Held> {
    hold(table::find(fd)?)
}

/// As [`at`], for a slot that the caller has found.
pub fn held(slot_ref: SlotRef) -> Option<Held> {
    if interrupted() { None } else { hold(slot_ref) }
}

fn hold(slot_ref: SlotRef) -> Option<Held> {
    let body = slot_ref.read()?;
    let is_carried = matches!(body.state, State::Moved(_) | State::Ended(_));
    if is_carried { hold_carried(slot_ref, body) } else { None }
}

/// Returns `None` if the connection does not stay with the service: its socket is then an ordinary one.
fn hold_carried(slot_ref: SlotRef, body: Reading) -> Option<Held> {
    let held = Held { slot_ref, body };
    let why = match held.moved() {
        Some(moved) if moved.stream.is_given_back() => {
            Some(moved.stream.why_given_back().unwrap_or(Reason::UrgentData))
        }
        Some(moved) if moved.is_alone() => Some(Reason::PeerNotServed),
        _ => None,
    };
    if let Some(why) = why {
        if why == Reason::PeerNotServed
            && let Some(moved) = held.moved()
        {
            ALONE.note(moved.origin.service());
        }
        drop(held);
        if why.may_pass() {
            wait_at_home(&slot_ref, why, None)
        } else {
            bring_slot_home(&slot_ref, why)
        }
        return None;
    }
    Some(held)
}

/// Decides where a call on a descriptor is served. A connection that is due to move is moved first.
pub fn target(fd: RawFd) -> CallTarget {
    let Some(slot_ref) = table::find(fd) else { return CallTarget::Kernel(KernelCall::none()) };
    let found = current_target(&slot_ref);
    if !matches!(&found, (_, true)) {
        return found.0;
    }
    drop(found);
    hand_over(fd, &slot_ref);
    current_target(&slot_ref).0
}

/// Where a call would be served now, and whether the connection is due to move.
fn current_target(slot_ref: &SlotRef) -> (CallTarget, bool) {
    let ordinary = (CallTarget::Kernel(KernelCall::none()), false);
    let Some(body) = slot_ref.read() else { return ordinary };
    match &body.state {
        State::Free => ordinary,
        State::Kernel(candidate) => {
            let sends = slot_ref.slot.sends.load(Ordering::Relaxed);
            (CallTarget::Kernel(KernelCall::on(slot_ref.slot)), candidate.is_due(sends))
        }
        State::Moved(_) | State::Ended(_) => {
            hold_carried(*slot_ref, body).map_or(ordinary, |held| (CallTarget::Carried(held), false))
        }
    }
}

/// A call that the kernel serves and that moves no connection, if that is known at once. Otherwise [`target`]
/// decides. A program may make no other calls, so this one costs as little as it can.
pub fn stays(fd: RawFd) -> Option<KernelCall> {
    stays_after(fd, 0)
}

/// As [`stays`], for a request to send, which is counted if the kernel serves it.
pub fn stays_to_send(fd: RawFd) -> Option<KernelCall> {
    stays_after(fd, 1)
}

fn stays_after(fd: RawFd, more: u64) -> Option<KernelCall> {
    if !table::is_known(fd) {
        return Some(KernelCall::none());
    }
    let slot_ref = table::find(fd)?;
    let body = slot_ref.try_read()?;
    let State::Kernel(candidate) = &body.state else { return None };
    let slot = slot_ref.slot;
    if candidate.is_due(slot.sends.load(Ordering::Relaxed) + more) {
        return None;
    }
    slot.sends.fetch_add(more, Ordering::Relaxed);
    Some(KernelCall::on(slot))
}

/// As [`target`], for a request to send, which is counted.
pub fn target_to_send(fd: RawFd) -> CallTarget {
    if let Some(slot_ref) = table::find(fd) {
        slot_ref.slot.sends.fetch_add(1, Ordering::Relaxed);
    }
    target(fd)
}

/// True once the program makes calls that the library cannot see: no connection moves after that.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Keeps every later connection in the kernel.
pub fn stop() {
    STOPPED.store(true, Ordering::Relaxed);
}

/// Registers a socket without a connection that the program adds to an epoll set.
pub fn register_early(fd: RawFd) {
    if socket::is_unconnected(fd)
        && let Some(identity) = socket::identity(fd)
    {
        let candidate = Candidate::fresh(identity);
        table::enter(fd, State::Kernel(candidate), socket::is_nonblocking(fd));
    }
}

/// True if the descriptor has no known connection.
pub fn is_new(fd: RawFd) -> bool {
    table::find(fd).is_none_or(|slot_ref| slot_ref.read().is_none_or(|body| body.is_fresh()))
}

/// Registers a new connection of the program: one that was accepted, or that `connect` has made or
/// begun.
pub fn begin(fd: RawFd, direction: Direction, connecting: bool) {
    let early = table::find(fd);
    let candidate = match Candidate::begin(fd, direction, connecting) {
        Ok(_) if STOPPED.load(Ordering::Relaxed) => Err(Some(Reason::IoUring)),
        candidate => candidate,
    };
    let candidate = match candidate {
        Ok(candidate) => candidate,
        Err(Some(why)) => {
            account::count(&format!("stays {why}"));
            return early.into_iter().for_each(|slot_ref| bring_slot_home(&slot_ref, why));
        }
        Err(None) => return,
    };
    let moves = !connecting && candidate.is_due(0);
    let slot_ref = match early {
        Some(slot_ref) => {
            let Some(mut body) = slot_ref.write() else { return };
            let State::Kernel(fresh) = &mut body.state else { return };
            let shared = std::mem::take(&mut fresh.shared);
            *fresh = candidate;
            fresh.shared = shared;
            slot_ref
        }
        None => match table::enter(fd, State::Kernel(candidate), socket::is_nonblocking(fd)) {
            Some(slot_ref) => slot_ref,
            None => return,
        },
    };
    if moves {
        hand_over(fd, &slot_ref);
    }
}

/// Hands a connection over to the service, if it may move now.
fn hand_over(fd: RawFd, slot_ref: &SlotRef) {
    let Some(mut body) = slot_ref.write() else { return };
    let State::Kernel(candidate) = &mut body.state else { return };
    let (slot, again) = (slot_ref.slot, candidate.has_moved());
    if slot.kernel_calls.load(Ordering::Relaxed) > 0 {
        return;
    }
    match candidate.is_ready(fd, slot.sends.load(Ordering::Relaxed)) {
        Ready::Go => {}
        Ready::NotYet => return,
        Ready::Never(why) => return stay(slot_ref, &mut body, why),
    }
    if let Some(why) = membership::withdraw(slot_ref.slot) {
        return stay(slot_ref, &mut body, why);
    }
    match adopt(fd, candidate, slot.sends.load(Ordering::Relaxed)) {
        Ok(moved) => {
            membership::arrive(slot_ref.slot, &moved.stream);
            if !again {
                account::count("moved");
            }
            body.state = State::Moved(moved);
        }
        Err(why) => {
            if candidate.origin().is_between() && !concerns_one(why) {
                ALONE.note(candidate.origin().service());
            }
            if candidate.retries_after(why, slot_ref.slot.sends.load(Ordering::Relaxed)) {
                return membership::put_back(slot_ref.slot);
            }
            membership::put_back(slot_ref.slot);
            if baton_kernel::is_captured(socket::borrow(fd)).unwrap_or(false) {
                // The service was killed during the handover, and the kernel's connection is gone.
                membership::leave(slot_ref.slot);
                body.state = State::Ended(Ended::default());
                return account::count("stays lost");
            }
            stay(slot_ref, &mut body, why);
        }
    }
}

/// True if what keeps a connection from being joined need not keep others of the same service.
fn concerns_one(why: Reason) -> bool {
    use Refusal::{NotConnected, State, TooMuchQueued, Unsettled};
    matches!(why, Reason::InUse | Reason::Refused(NotConnected | State | TooMuchQueued | Unsettled))
}

/// Leaves a connection in the kernel for good.
fn stay(slot_ref: &SlotRef, body: &mut Body, why: Reason) {
    if !body.is_fresh() {
        account::count(&format!("stays {why}"));
    }
    membership::leave(slot_ref.slot);
    table::settle(slot_ref, body);
}

fn adopt(fd: RawFd, candidate: &Candidate, sends: u64) -> Result<Moved, Reason> {
    let (identity, rule, origin) = (candidate.identity, candidate.rule(sends), candidate.origin());
    let (local, peer) = (socket::name(fd, false), socket::name(fd, true));
    let (Some(local), Some(peer)) = (local, peer) else { return Err(Refusal::NotConnected.into()) };
    let lent = duplicate(socket::borrow(fd)).map_err(|_| Reason::NoDescriptors)?;
    let adopted = service::with(|service| (service.adopt_told(lent, origin.told(sends)), service.devices().is_empty()));
    let (adopted, nowhere) = adopted.ok_or(Reason::NoService)?;
    let stream = adopted.map_err(|NotAdopted { code, text, .. }| {
        // The name of the rule follows the colon.
        let reason = Reason::from_code(&code).unwrap_or(Reason::Failed);
        if let (Reason::Refused(Refusal::FirewallRule), Some((_, rule))) = (reason, text.split_once(": ")) {
            account::count(&format!("rule {rule}"));
        }
        reason
    })?;
    if origin.is_between() {
        service::expect_pairs();
    } else if service::is_direct() && nowhere {
        account::count("elsewhere");
    }
    stream.set_nonblocking(true);
    let rule = stream.rule().unwrap_or(rule);
    let (bulk, since, answers) = (AtomicU64::new(0), Instant::now(), Moved::no_answers(&stream));
    Ok(Moved { stream, local, peer, identity, origin, rule, bulk, since, answers })
}

/// Makes a connection an ordinary one of the kernel, and counts the reason.
pub fn bring_home(fd: RawFd, why: Reason) {
    if let Some(slot_ref) = table::find(fd) {
        bring_slot_home(&slot_ref, why);
    }
}

/// As [`bring_home`], for a slot that the caller has found.
pub fn bring_slot_home(slot_ref: &SlotRef, why: Reason) {
    let Some(mut body) = slot_ref.write() else { return };
    match &body.state {
        State::Free | State::Ended(_) => {}
        State::Kernel(_) => stay(slot_ref, &mut body, why),
        State::Moved(moved) => {
            let waited = count_moved(moved);
            let Ok(lent) = moved.stream.take_back() else {
                let ended = Ended::of(&moved.stream);
                body.state = State::Ended(ended);
                return;
            };
            // This is the service's duplicate; the program has its own descriptor of the socket.
            drop(lent);
            if !waited {
                account::count(&format!("home {why}"));
            }
            membership::put_back(slot_ref.slot);
            membership::leave(slot_ref.slot);
            drop(table::settle(slot_ref, &mut body));
        }
    }
}

/// Called when the program closes a descriptor. With the last one its connection ends.
pub fn close(fd: RawFd) {
    let Some((slot_ref, state)) = table::close(fd) else { return };
    membership::leave(slot_ref.slot);
    count_outcome(&state);
    drop(state);
}

/// Called when a connection or the program ends: counts what became of the connection.
pub fn count_outcome(state: &State) {
    match state {
        State::Moved(moved) => {
            count_moved(moved);
        }
        // If processes share it, only the last one reports.
        State::Kernel(candidate) => {
            if let Some(why) = candidate.why_it_stayed() {
                account::count(&format!("stays {why}"));
            }
        }
        _ => {}
    }
}

/// Counts whether a connection that does not move again was in a pair, and its bytes at home. Returns true if it
/// has only waited for its other end, in the kernel.
fn count_moved(moved: &Moved) -> bool {
    count_bytes_at_home(moved);
    let paired = moved.stream.has_been_paired();
    let waited = !paired && moved.origin.is_between();
    if paired {
        account::count("paired");
    }
    if waited {
        account::add("moved", 1u64.wrapping_neg());
        account::count(&format!("stays {}", Reason::PeerNotServed));
    }
    waited
}

/// Moves bytes from the counters of the engine to those of the kernel. Each call counted its bytes for
/// the engine, but some went through the kernel while the service had the connection there.
pub fn count_bytes_at_home(moved: &Moved) {
    let (sent, received) = moved.stream.take_bytes_at_home();
    if sent + received > 0 {
        account::add("bytes received", received.wrapping_neg());
        account::add("bytes sent", sent.wrapping_neg());
        account::add("bytes received at home", received);
        account::add("bytes sent at home", sent);
    }
}

/// Brings everything home for a fork. A connection that is closed on exec may move again once the
/// children have executed other programs.
pub fn park_all(sharing: Option<&Sharing>) {
    for (slot_ref, fds) in table::all() {
        match sharing {
            Some(sharing) if !fds.iter().any(|fd| socket::is_inherited(*fd)) => {
                wait_at_home(&slot_ref, Reason::Fork, Some(sharing));
            }
            _ => bring_slot_home(&slot_ref, Reason::Fork),
        }
    }
}

/// Brings a connection home that may move again: because of its engine's load, or for a fork with these
/// children.
fn wait_at_home(slot_ref: &SlotRef, why: Reason, sharing: Option<&Sharing>) {
    let Some(mut body) = slot_ref.write() else { return };
    match &mut body.state {
        State::Free | State::Ended(_) => {}
        State::Kernel(candidate) => candidate.shared.extend(sharing.cloned()),
        State::Moved(moved) => {
            count_bytes_at_home(moved);
            let (identity, origin) = (moved.identity, moved.origin);
            let Ok(lent) = moved.stream.take_back() else {
                let ended = Ended::of(&moved.stream);
                body.state = State::Ended(ended);
                return;
            };
            drop(lent);
            account::count(&format!("home {why}"));
            membership::put_back(slot_ref.slot);
            let sends = slot_ref.slot.sends.load(Ordering::Relaxed);
            body.state = State::Kernel(Candidate::returned(identity, origin, sends, sharing.cloned()));
        }
    }
}
