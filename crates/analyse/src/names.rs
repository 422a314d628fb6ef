//! Counts by name, read from their serialized form: only names that this program knows.

use crate::gro::{Alone, Flush};
use crate::tunnel;
use baton_coalesce::{Cause, Reason};
use serde::de::{Deserialize, Deserializer, Error};
use std::collections::BTreeMap;

type Counts = BTreeMap<&'static str, u64>;

/// Counts by [`Reason`] or [`Alone`].
pub fn reasons<'de, D: Deserializer<'de>>(from: D) -> Result<Counts, D::Error> {
    known(from, "reason", &[&Reason::ALL.map(Reason::name)[..], &[Alone::Padded.name()]].concat())
}

/// Counts by [`Cause`] or [`Flush`].
pub fn causes<'de, D: Deserializer<'de>>(from: D) -> Result<Counts, D::Error> {
    known(from, "cause", &[&Cause::ALL.map(Cause::name)[..], &Flush::ALL.map(Flush::name)].concat())
}

/// Counts by kind of tunnel.
pub fn tunnels<'de, D: Deserializer<'de>>(from: D) -> Result<Counts, D::Error> {
    known(from, "kind of tunnel", &tunnel::KINDS)
}

fn known<'de, D: Deserializer<'de>>(from: D, what: &str, names: &[&'static str]) -> Result<Counts, D::Error> {
    let counts = BTreeMap::<String, u64>::deserialize(from)?;
    let intern = |(name, count): (String, u64)| match names.iter().find(|known| **known == name) {
        Some(known) => Ok((*known, count)),
        None => Err(D::Error::custom(format_args!("{name:?} is no {what} that this program knows"))),
    };
    counts.into_iter().map(intern).collect()
}
