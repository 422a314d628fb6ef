//! All connections of the program at once.

use crate::connection::{State, bring_slot_home, tell};
use crate::os::cancel::Deferred;
use crate::os::socket;
use crate::sharing;
use crate::table::{self, Slot};
use baton_socket::held::interrupted;

/// Everything is an ordinary connection of the kernel's after this.
pub fn bring_home(why: &str) {
    let _deferred = Deferred::new();
    for (slot_ref, _) in table::all() {
        bring_slot_home(&slot_ref, why);
    }
}

/// True while the service has one.
pub fn any_moved() -> bool {
    // One that is about to be handed over waits for who asks.
    let is_home = |slot: &Slot| slot.body.try_read().is_ok_and(|body| !matches!(body.state, State::Moved(_)));
    table::all().iter().any(|(slot_ref, _)| !is_home(slot_ref.slot))
}

/// The program ends: what it did with connections that it has still is told.
pub fn account() {
    if interrupted() {
        // The handler of a fault ends it, in the middle of a call of ours.
        return;
    }
    for (slot_ref, _) in table::all() {
        // A thread that moves one now is none of ours to wait for.
        if let Ok(body) = slot_ref.slot.body.try_read() {
            tell(&body.state);
        }
    }
}

/// What another program would get is an ordinary connection, in this process and its parents.
pub fn bring_inherited_home() {
    let _deferred = Deferred::new();
    sharing::report_inherited();
    for (slot_ref, fds) in table::all() {
        if fds.iter().any(|fd| socket::is_inherited(*fd)) {
            bring_slot_home(&slot_ref, "inherited");
        }
    }
}
