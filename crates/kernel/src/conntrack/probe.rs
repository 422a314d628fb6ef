//! Tries out what is believed about ctnetlink, on an entry made for the purpose, in the thread's
//! network namespace.

use super::message::{self, Entry, State};
use super::{Conntrack, Ending};
use crate::netlink::NLM_F_ACK;
use crate::otherwise::{Otherwise, expect};
use baton_wire::addr::Tuple;
use std::time::Instant;

const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

/// Makes the entry of an established connection, and returns it with the tuple as the other side
/// names it.
pub(super) fn made() -> Result<(Conntrack, Tuple), Otherwise> {
    let mut conntrack = Conntrack::open();
    let [here, there] = [([192, 0, 2, 1], 80), ([192, 0, 2, 2], 4_000)].map(Into::into);
    let entry = message::new_entry(Tuple::new(there, here));
    conntrack.socket()?.ask(message::NEW, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, entry)?;
    Ok((conntrack, Tuple::new(here, there)))
}

pub(crate) fn takes_flags() -> Result<(), Otherwise> {
    let (mut conntrack, tuple) = made()?;
    let found = conntrack.get(tuple, 0)?.ok_or(std::io::ErrorKind::NotFound).map_err(std::io::Error::from)?;
    expect(!found.is_liberal(), "the entry is liberal from the start")?;
    // As if an ACK had been seen.
    conntrack.change(tuple, 0, message::with_last_ack)?;
    conntrack.change(tuple, 0, message::with_liberality)?;
    let found = conntrack.get(tuple, 0)?;
    expect(found.is_some_and(|entry| entry.is_liberal()), format!("{found:?}"))
}

pub(crate) fn takes_states() -> Result<(), Otherwise> {
    let (mut conntrack, tuple) = made()?;
    for (ending, state, seconds) in [(Ending::Closed, State::TimeWait, 120), (Ending::Reset, State::Close, 10)] {
        conntrack.kept.put(tuple, 0, 60, Instant::now());
        conntrack.end(&tuple, ending);
        let body = conntrack.socket()?.ask(message::GET, 0, message::entry(tuple, 0))?.unwrap_or_default();
        let found = Entry::of(&body).map(|entry| entry.left_s);
        let reached = message::state_of(&body) == Some(state as u8);
        expect(reached && found.is_some_and(|left| left.abs_diff(seconds) <= 1), format!("{ending:?}: {body:?}"))?;
    }
    Ok(())
}
