//! All connections of the program at once.

use crate::connection::{State, bring_home_named, tell};
use crate::sharing;
use crate::sys::cancel::Deferred;
use crate::sys::socket;
use crate::table::{self, Slot};
use baton_consumer::held::interrupted;

/// Everything is an ordinary connection of the kernel's after this.
pub fn bring_home(why: &str) {
    let _deferred = Deferred::new();
    for (named, _) in table::all() {
        bring_home_named(&named, why);
    }
}

/// True while the service has one.
pub fn is_away() -> bool {
    // One that is about to be handed over waits for who asks.
    let is_home = |slot: &Slot| slot.body.try_read().is_ok_and(|body| !matches!(body.state, State::Moved(_)));
    table::all().iter().any(|(named, _)| !is_home(named.slot))
}

/// The program ends: what it did with connections that it has still is told.
pub fn account() {
    if interrupted() {
        // The handler of a fault ends it, in the middle of a call of ours.
        return;
    }
    for (named, _) in table::all() {
        // A thread that moves one now is none of ours to wait for.
        if let Ok(body) = named.slot.body.try_read() {
            tell(&body.state);
        }
    }
}

/// What another program would get is an ordinary connection, in this process and its parents.
pub fn bring_inherited_home() {
    let _deferred = Deferred::new();
    sharing::tell_what_is_taken();
    for (named, fds) in table::all() {
        if fds.iter().any(|fd| socket::is_inherited(*fd)) {
            bring_home_named(&named, "inherited");
        }
    }
}
