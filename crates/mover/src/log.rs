//! The events about connections that a mover logs.

use crate::error::MoveError;
use baton_journal::{Event, Kind, Level, tell};
use baton_kernel::handoff::{Aborted, Outcome};
use baton_policy::Refusal;
use baton_wire::addr::Tuple;

/// A connection is in the engine.
pub(crate) fn moved(tuple: Tuple) {
    tell(Level::Debug, Kind::MOVED, |event| event.tuple(tuple).reason("handed-over").text("it is in the engine"));
}

/// A connection is in the kernel again.
pub(crate) fn home(tuple: Tuple) {
    tell(Level::Debug, Kind::HOME, |event| event.tuple(tuple).reason("asked-for").text("it is in the kernel again"));
}

/// A connection did not move, or was lost in the move.
pub(crate) fn aborted(tuple: Option<Tuple>, aborted: &Aborted<MoveError>) {
    let code = aborted.cause.refusal().map_or("failed", Refusal::code);
    let describe = |event: Event| event.tuple(tuple).reason(code).text(aborted.to_string());
    match (&aborted.outcome, code) {
        (Outcome::Lost { .. }, _) => tell(Level::Error, Kind::LOST, describe),
        (_, "failed" | "permission" | "conntrack") => tell(Level::Warn, Kind::STAYS, describe),
        _ => tell(Level::Debug, Kind::STAYS, describe),
    }
}
