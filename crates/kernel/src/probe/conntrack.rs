//! Beliefs about conntrack's entries.

use super::Belief;
use super::bench::Bench;
use crate::otherwise::Otherwise;

pub(super) const BELIEFS: &[Belief] = &[
    Belief {
        name: "conntrack-takes-flags",
        believed: "ctnetlink makes an entry liberal in both directions, and forgets its last ACK, by flags alone",
        needed: false,
        probe: |_: &Bench| -> Result<(), Otherwise> { crate::conntrack::probe::takes_flags() },
    },
    Belief {
        name: "conntrack-takes-states",
        believed: "ctnetlink puts an entry into TIME_WAIT and CLOSE, with a timeout, found by either direction",
        needed: false,
        probe: |_: &Bench| -> Result<(), Otherwise> { crate::conntrack::probe::takes_states() },
    },
];
