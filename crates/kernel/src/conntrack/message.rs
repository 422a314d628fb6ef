//! Conntrack's messages: encodes requests, and reads entries from answers. Sends nothing.
//!
//! Layouts and numbers are those of `linux/netfilter/nfnetlink_conntrack.h` and
//! `nf_conntrack_tcp.h`. Numbers in attributes are big-endian.

use crate::netlink::{Body, attribute, attributes};
use baton_policy::Refusal;
use baton_wire::addr::{Addr, Tuple};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Message types of the conntrack subsystem (1), with the subsystem in the upper byte.
pub(super) const NEW: u16 = 1 << 8;
pub(super) const GET: u16 = 1 << 8 | 1;
pub(super) const GET_STATS: u16 = 1 << 8 | 5;

const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOINFO: u16 = 4;
const HELP: u16 = 5;
const TIMEOUT: u16 = 7;
const ZONE: u16 = 18;

const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const TUPLE_ZONE: u16 = 3;
const IPV4: [u16; 2] = [1, 2];
const IPV6: [u16; 2] = [3, 4];
const PROTO_NUM: u16 = 1;
const PORTS: [u16; 2] = [2, 3];

const PROTOINFO_TCP: u16 = 1;
const TCP_STATE: u16 = 1;
const TCP_FLAGS: [u16; 2] = [4, 5];

/// `CTA_STATS_GLOBAL_ENTRIES`.
const STATS_ENTRIES: u16 = 1;

/// Bits of an entry's status: NAT changes the source, the destination, or sequence numbers.
const STATUS_SRC_NAT: u32 = 1 << 4;
const STATUS_DST_NAT: u32 = 1 << 5;
const STATUS_SEQ_ADJUST: u32 = 1 << 6;

/// Flags of one direction: this side closed first, no window check, an ACK was seen.
const FLAG_CLOSE_INIT: u8 = 0x04;
const FLAG_BE_LIBERAL: u8 = 0x08;
const FLAG_MAXACK_SET: u8 = 0x20;

/// The states of `enum tcp_conntrack` that are set here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum State {
    FinWait = 4,
    CloseWait = 5,
    TimeWait = 7,
    Close = 8,
}

/// Fields of a conntrack entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Both directions, from source (`local`) to destination (`remote`).
    pub directions: [Tuple; 2],
    pub status: u32,
    /// Seconds until the entry expires.
    pub left_s: u32,
    /// Flags of each direction.
    pub flags: [u8; 2],
    pub helper: bool,
}

impl Entry {
    /// Reads the body of an answer. Returns `None` if it is not a TCP entry.
    pub fn of(body: &[u8]) -> Option<Entry> {
        let attributes = body.get(4..)?;
        let tuple = |kind| tuple_of(attribute(attributes, kind)?);
        let number = |kind| Some(u32::from_be_bytes(attribute(attributes, kind)?.try_into().ok()?));
        let tcp = attribute(attributes, PROTOINFO).and_then(|info| attribute(info, PROTOINFO_TCP)).unwrap_or_default();
        let flags = TCP_FLAGS.map(|kind| attribute(tcp, kind).and_then(<[u8]>::first).copied().unwrap_or(0));
        Some(Entry {
            directions: [tuple(TUPLE_ORIG)?, tuple(TUPLE_REPLY)?],
            status: number(STATUS)?,
            // An entry that is about to expire has none.
            left_s: number(TIMEOUT).unwrap_or(0),
            flags,
            helper: attribute(attributes, HELP).is_some(),
        })
    }

    /// Why the connection that the socket calls `tuple` has to stay, if it has to.
    pub fn refusal(&self, tuple: Tuple) -> Option<Refusal> {
        let [original, reply] = self.directions;
        let plain = reply == original.mirrored() && (original == tuple || reply == tuple);
        if !plain || self.status & (STATUS_SRC_NAT | STATUS_DST_NAT) != 0 {
            Some(Refusal::Translated)
        } else if self.helper || self.status & STATUS_SEQ_ADJUST != 0 {
            Some(Refusal::ConntrackHelper)
        } else {
            None
        }
    }

    /// The name of the connection that has `tuple` on one side of the translation, on the other side. The same
    /// name if nothing is translated.
    ///
    /// # Errors
    /// [`Refusal::ConntrackHelper`] if sequence numbers may differ, too; [`Refusal::Translated`] for an entry of
    /// another connection.
    pub fn across(&self, tuple: Tuple) -> Result<Tuple, Refusal> {
        let [original, reply] = self.directions;
        if self.helper || self.status & STATUS_SEQ_ADJUST != 0 {
            return Err(Refusal::ConntrackHelper);
        }
        match tuple {
            tuple if tuple == original => Ok(reply.mirrored()),
            tuple if tuple == reply => Ok(original.mirrored()),
            _ => Err(Refusal::Translated),
        }
    }

    /// Returns true if the entry accepts any window and any reset.
    pub fn is_liberal(&self) -> bool {
        self.flags.iter().all(|flags| flags & (FLAG_BE_LIBERAL | FLAG_MAXACK_SET) == FLAG_BE_LIBERAL)
    }
}

fn tuple_of(nested: &[u8]) -> Option<Tuple> {
    let (ip, proto) = (attribute(nested, TUPLE_IP)?, attribute(nested, TUPLE_PROTO)?);
    if attribute(proto, PROTO_NUM)? != [libc::IPPROTO_TCP as u8] {
        return None;
    }
    let address = |at: usize| -> Option<Addr> {
        let v4 = || Some(Ipv4Addr::from(<[u8; 4]>::try_from(attribute(ip, IPV4[at])?).ok()?).into());
        let v6 = || Some(Ipv6Addr::from(<[u8; 16]>::try_from(attribute(ip, IPV6[at])?).ok()?).into());
        v4().or_else(v6)
    };
    let port = |at: usize| Some(u16::from_be_bytes(attribute(proto, PORTS[at])?.try_into().ok()?));
    Some(Tuple { local: address(0)?, remote: address(1)?, local_port: port(0)?, remote_port: port(1)? })
}

/// The zones other than 0 that the entry in an answer belongs to, as a whole or in one direction.
pub(super) fn zones_of(body: &[u8]) -> impl Iterator<Item = u16> + '_ {
    let zone = |value: &[u8]| Some(u16::from_be_bytes(value.try_into().ok()?)).filter(|zone| *zone != 0);
    attributes(body.get(4..).unwrap_or_default()).filter_map(move |(kind, value)| match kind {
        ZONE => zone(value),
        TUPLE_ORIG | TUPLE_REPLY => attribute(value, TUPLE_ZONE).and_then(zone),
        _ => None,
    })
}

/// The number of entries in the namespace, from an answer to [`GET_STATS`].
pub(super) fn entries_of(body: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(attribute(body.get(4..)?, STATS_ENTRIES)?.try_into().ok()?))
}

/// `struct nfgenmsg`: address family (0 for any), version, resource.
pub(super) fn header(family: i32) -> [u8; 4] {
    [family as u8, 0, 0, 0]
}

/// Names the entry that has `tuple` as one of its directions.
pub(super) fn entry(tuple: Tuple, zone: u16) -> Body {
    let Tuple { local, remote, local_port, remote_port } = tuple;
    let family = if local.is_v4() { libc::AF_INET } else { libc::AF_INET6 };
    let address = |body: Body, at: usize, address: Addr| match address.ip() {
        IpAddr::V4(ip) => body.attr(IPV4[at], &ip.octets()),
        IpAddr::V6(ip) => body.attr(IPV6[at], &ip.octets()),
    };
    let ports = |body: Body| {
        let [source, destination] = [local_port, remote_port].map(u16::to_be_bytes);
        body.attr(PROTO_NUM, &[libc::IPPROTO_TCP as u8]).attr(PORTS[0], &source).attr(PORTS[1], &destination)
    };
    let body = Body::new(&header(family)).nest(TUPLE_ORIG, |tuple| {
        tuple.nest(TUPLE_IP, |ip| address(address(ip, 0, local), 1, remote)).nest(TUPLE_PROTO, ports)
    });
    if zone == 0 { body } else { body.attr(ZONE, &zone.to_be_bytes()) }
}

/// Makes an entry expire in `seconds`.
pub(super) fn with_timeout(body: Body, seconds: u32) -> Body {
    body.attr(TIMEOUT, &seconds.to_be_bytes())
}

/// Makes an entry accept segments beyond its window, in both directions. The last ACK that it saw
/// is forgotten too. Otherwise a reset whose number lies before that ACK would be invalid, and
/// numbers more than 2 GiB ahead look like that.
pub(super) fn with_liberality(body: Body) -> Body {
    let flags = [FLAG_BE_LIBERAL, FLAG_BE_LIBERAL | FLAG_MAXACK_SET];
    with_tcp(body, |tcp| tcp.attr(TCP_FLAGS[0], &flags).attr(TCP_FLAGS[1], &flags))
}

/// Sets an entry's state after a FIN or a reset. The flag that a side closed is set too: without
/// it, a SYN of a new connection with the same tuple would not take the entry over
/// (`nf_conntrack_tcp_packet()`).
pub(super) fn with_state(body: Body, state: State) -> Body {
    let flags = [FLAG_CLOSE_INIT; 2];
    with_tcp(body, |tcp| tcp.attr(TCP_STATE, &[state as u8]).attr(TCP_FLAGS[0], &flags))
}

/// Makes an entry look as if an ACK was seen in both directions, for a probe.
pub(super) fn with_last_ack(body: Body) -> Body {
    with_tcp(body, |tcp| tcp.attr(TCP_FLAGS[0], &[FLAG_MAXACK_SET; 2]).attr(TCP_FLAGS[1], &[FLAG_MAXACK_SET; 2]))
}

fn with_tcp(body: Body, inner: impl FnOnce(Body) -> Body) -> Body {
    body.nest(PROTOINFO, |info| info.nest(PROTOINFO_TCP, inner))
}

/// An entry for a probe: established, expiring in a minute.
pub(super) fn new_entry(tuple: Tuple) -> Body {
    const ESTABLISHED: u8 = 3;
    let there = entry(tuple, 0);
    let back = entry(tuple.mirrored(), 0);
    let reply = attribute(&back.bytes()[4..], TUPLE_ORIG).unwrap_or_default().to_vec();
    let both = there.attr(TUPLE_REPLY | crate::netlink::NLA_F_NESTED, &reply);
    with_timeout(with_tcp(both, |tcp| tcp.attr(TCP_STATE, &[ESTABLISHED])), 60)
}

/// The state in the body of an answer, as a number of `enum tcp_conntrack`.
pub(super) fn state_of(body: &[u8]) -> Option<u8> {
    let tcp = attribute(attribute(body.get(4..)?, PROTOINFO)?, PROTOINFO_TCP)?;
    attribute(tcp, TCP_STATE)?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(local: &str, remote: &str) -> Tuple {
        Tuple::new(local.parse().unwrap(), remote.parse().unwrap())
    }

    fn answer(original: Tuple, reply: Tuple, status: u32) -> Body {
        let reply = entry(reply, 0);
        let reply = attribute(&reply.bytes()[4..], TUPLE_ORIG).unwrap().to_vec();
        with_timeout(entry(original, 0), 77).attr(TUPLE_REPLY, &reply).attr(STATUS, &status.to_be_bytes())
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        for (here, there) in [("10.0.0.1:80", "10.0.0.2:4000"), ("[fd00::1]:80", "[fd00::2]:4000")] {
            let (ours, theirs) = (tuple(here, there), tuple(there, here));
            let body = with_liberality(answer(theirs, ours, 0x0e));
            let found = Entry::of(body.bytes()).unwrap();
            assert_eq!((found.directions, found.status, found.left_s), ([theirs, ours], 0x0e, 77));
            assert!(found.is_liberal() && !found.helper);
            assert_eq!((found.refusal(ours), found.refusal(theirs)), (None, None));
            for len in 0..body.bytes().len() {
                let _ = Entry::of(&body.bytes()[..len]);
            }
        }
    }

    #[test]
    fn what_is_translated_or_helped_stays() {
        let ours = tuple("10.0.0.1:9000", "10.0.0.2:4000");
        let seen = tuple("10.0.0.2:4000", "10.0.0.1:80");
        let refusal = |body: Body| Entry::of(body.bytes()).unwrap().refusal(ours);
        assert_eq!(refusal(answer(seen, ours, 0)), Some(Refusal::Translated), "redirected");
        assert_eq!(refusal(answer(ours, tuple("10.0.0.2:4000", "10.0.0.9:1"), 0)), Some(Refusal::Translated), "SNAT");
        assert_eq!(refusal(answer(ours, ours.mirrored(), STATUS_DST_NAT)), Some(Refusal::Translated));
        assert_eq!(
            refusal(answer(seen, seen.mirrored(), 0)),
            Some(Refusal::Translated),
            "an entry of another connection"
        );
        assert_eq!(refusal(answer(ours, ours.mirrored(), STATUS_SEQ_ADJUST)), Some(Refusal::ConntrackHelper));
        let helped = answer(ours, ours.mirrored(), 0).nest(HELP, |help| help.attr(1, b"ftp\0"));
        assert_eq!(refusal(helped), Some(Refusal::ConntrackHelper));
        assert_eq!(refusal(answer(ours, ours.mirrored(), 0x18e)), None, "NAT examined it and changed nothing");
    }

    #[test]
    fn a_translated_connection_has_a_name_on_either_side() {
        let (client, asked) = (tuple("10.0.0.2:4000", "10.0.0.9:80"), tuple("10.0.0.3:8080", "10.0.0.1:61000"));
        let both = |status| Entry::of(answer(client, asked, status).bytes()).unwrap();
        let found = both(STATUS_SRC_NAT | STATUS_DST_NAT);
        assert_eq!(found.across(client), Ok(asked.mirrored()));
        assert_eq!(found.across(asked), Ok(client.mirrored()));
        assert_eq!(found.across(client.mirrored()), Err(Refusal::Translated), "another connection");
        assert_eq!(both(STATUS_SEQ_ADJUST).across(client), Err(Refusal::ConntrackHelper));
        let plain = Entry::of(answer(client, client.mirrored(), 0).bytes()).unwrap();
        assert_eq!((plain.across(client), plain.across(client.mirrored())), (Ok(client), Ok(client.mirrored())));
    }

    #[test]
    fn liberal_is_both_ways_and_without_a_last_ack() {
        let mut found = Entry::of(answer(tuple("1.1.1.1:1", "2.2.2.2:2"), tuple("2.2.2.2:2", "1.1.1.1:1"), 0).bytes());
        let found = found.as_mut().unwrap();
        for (flags, liberal) in [([8, 8], true), ([8, 0], false), ([0x0b, 0x2b], false), ([0x0b, 0x0f], true)] {
            found.flags = flags;
            assert_eq!(found.is_liberal(), liberal, "{flags:?}");
        }
    }

    #[test]
    fn zones_are_found_in_the_entry_and_in_its_directions() {
        let ours = tuple("1.1.1.1:1", "2.2.2.2:2");
        assert_eq!(zones_of(entry(ours, 7).bytes()).collect::<Vec<_>>(), [7]);
        assert_eq!(zones_of(entry(ours, 0).bytes()).count(), 0);
        let split = Body::new(&header(0)).nest(TUPLE_ORIG, |tuple| tuple.attr(TUPLE_ZONE, &9u16.to_be_bytes()));
        assert_eq!(zones_of(split.bytes()).collect::<Vec<_>>(), [9]);
        assert_eq!(zones_of(&[]).count(), 0);
    }
}
