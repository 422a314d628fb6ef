//! A match of xtables in the form in which it is walked.

use super::packet::Packet;
use super::registers::Answer;
use std::ops::RangeInclusive;

/// The ports of a packet that a match examines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Source,
    Destination,
    Either,
}

/// A match, as far as it is followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Match {
    Always,
    Never,
    /// A port is in one of the ranges, or in none of them.
    Ports {
        end: End,
        ranges: Vec<RangeInclusive<u16>>,
        inverted: bool,
    },
    /// The TCP flags in `mask` have this value.
    Flags {
        mask: u8,
        value: u8,
        inverted: bool,
    },
    /// The conntrack state is one of these bits (`nf_conntrack_tuple_common.h`).
    State {
        mask: u32,
        inverted: bool,
    },
    /// The type of the source or destination address.
    AddressType {
        of_source: bool,
        mask: u16,
        inverted: bool,
    },
    Mark {
        value: u32,
        mask: u32,
        inverted: bool,
    },
    /// Whether a route back leads over the interface by which the packet came.
    ReversePath {
        inverted: bool,
    },
    /// An address, of 4 or 16 bytes.
    Address {
        of_source: bool,
        address: Vec<u8>,
        mask: Vec<u8>,
        inverted: bool,
    },
    /// The interface by which a packet arrived or leaves.
    Interface {
        inbound: bool,
        name: [u8; 16],
        mask: [u8; 16],
        inverted: bool,
    },
    /// All of these matches.
    All(Vec<Match>),
    /// All of these matches, and for some packets only.
    Some(Vec<Match>),
}

impl Match {
    /// Returns whether packets match.
    pub fn holds(&self, packet: &Packet<'_>) -> Answer {
        let [source, destination] = packet.ends();
        match self {
            Match::Always => Answer::Yes,
            Match::Never => Answer::No,
            Match::Ports { end, ranges, inverted } => {
                let has = |port: u16| ranges.iter().any(|range| range.contains(&port));
                let is = match end {
                    End::Source => has(source.1),
                    End::Destination => has(destination.1),
                    End::Either => has(source.1) || has(destination.1),
                };
                Answer::of(is).not_if(*inverted)
            }
            Match::Flags { mask, value, inverted } => {
                packet.flags().masked(&[*mask], &[0]).equals(&[*value]).not_if(*inverted)
            }
            Match::State { mask, inverted } => packet.is_in_state(*mask).not_if(*inverted),
            Match::AddressType { of_source, mask, inverted } => {
                let kind = packet.address_types()[usize::from(!of_source)];
                Answer::of(u32::from(*mask) & 1 << kind != 0).not_if(*inverted)
            }
            Match::Mark { value, mask, inverted } => {
                packet.mark().map_or(Answer::May, |mark| Answer::of(mark & mask == *value).not_if(*inverted))
            }
            Match::ReversePath { inverted } => Answer::Yes.not_if(*inverted),
            Match::Address { of_source, address, mask, inverted } => {
                let octets = if *of_source { source.0 } else { destination.0 }.octets();
                let own = &octets[16 - address.len().min(16)..];
                let parts = own.iter().zip(mask).zip(address);
                Answer::of(parts.into_iter().all(|((own, mask), address)| own & mask == address & mask))
                    .not_if(*inverted)
            }
            Match::Interface { inbound, name, mask, inverted } => {
                let own = packet.interface_names()[usize::from(!inbound)];
                let parts = own.iter().zip(mask).zip(name);
                Answer::of(parts.into_iter().all(|((own, mask), name)| own & mask == name & mask)).not_if(*inverted)
            }
            Match::All(all) => all.iter().fold(Answer::Yes, |is, one| is.and(one.holds(packet))),
            Match::Some(all) => all.iter().fold(Answer::May, |is, one| is.and(one.holds(packet))),
        }
    }
}
