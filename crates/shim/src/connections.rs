//! Operations on all connections of the program.

use crate::connection::{self, bring_slot_home, count_outcome};
use crate::os::cancel::Deferred;
use crate::os::socket;
use crate::service;
use crate::sharing;
use crate::state::State;
use crate::table::{self, Slot};
use baton_consumer::held::interrupted;
use baton_policy::Reason;

/// Makes every connection an ordinary one of the kernel.
pub fn bring_home(why: Reason) {
    let _deferred = Deferred::new();
    for (slot_ref, _) in table::all() {
        bring_slot_home(&slot_ref, why);
    }
}

/// Brings all connections home and keeps every later one in the kernel, because the program makes
/// calls that the library cannot see.
pub fn stop(why: Reason) {
    connection::stop();
    bring_home(why);
}

/// True while an engine has any connection.
pub fn any_moved() -> bool {
    // A thread that hands a connection over has the slot locked, and may wait for a lock of the
    // caller. So do not wait for it; count its connection as moved.
    let is_home = |slot: &Slot| slot.body.try_read().is_ok_and(|body| !matches!(body.state, State::Moved(_)));
    table::all().iter().any(|(slot_ref, _)| !is_home(slot_ref.slot))
}

/// Called before a wait: lets the link to the service rest if it has not been used for a while.
pub fn rest_if_unused() {
    service::rest_unless(any_moved);
}

/// Called when the program ends: counts what became of the connections that are still open.
pub fn account() {
    if interrupted() {
        // A fault handler ends the program inside a call of this library.
        return;
    }
    for (slot_ref, _) in table::all() {
        // Do not wait for a thread that is moving a connection.
        if let Ok(body) = slot_ref.slot.body.try_read() {
            count_outcome(&body.state);
        }
    }
}

/// Brings home the connections that an exec would pass to another program, and reports them to the
/// parents of this process.
pub fn bring_inherited_home() {
    let _deferred = Deferred::new();
    sharing::report_inherited();
    for (slot_ref, fds) in table::all() {
        if fds.iter().any(|fd| socket::is_inherited(*fd)) {
            bring_slot_home(&slot_ref, Reason::Inherited);
        }
    }
}
