//! IPsec policies as the kernel reports them (`linux/xfrm.h`), and which of them apply to a
//! connection (`xfrm_selector_match()`, `net/xfrm/xfrm_policy.c`).

use crate::netlink::attributes;
use baton_wire::addr::{Addr, Tuple};
use std::net::{Ipv4Addr, Ipv6Addr};

const XFRMA_TMPL: u16 = 5;
const XFRMA_POLICY_TYPE: u16 = 16;
const XFRMA_MARK: u16 = 21;
const XFRMA_IF_ID: u16 = 31;
const XFRM_POLICY_ALLOW: u8 = 0;
/// The length of `struct xfrm_userpolicy_info`, and the offsets of its last members.
const INFO_LEN: usize = 168;
const PRIORITY_AT: usize = 152;
const DIRECTION_AT: usize = 160;
const ACTION_AT: usize = 161;
/// The directions of a socket's own policies are those of the host's, plus three.
const OF_SOCKETS: u8 = 3;

/// The packets to which a policy applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Towards {
    In,
    Out,
}

/// One policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Policy {
    pub towards: Towards,
    /// A policy of some socket. The kernel does not report of which.
    of_a_socket: bool,
    /// Main or sub policy.
    kind: u8,
    priority: u32,
    /// Packets pass in the clear: the policy neither blocks nor transforms them.
    clear: bool,
    /// Address family of source and destination, 0 for any.
    family: u16,
    destination: ([u8; 16], u8),
    source: ([u8; 16], u8),
    /// Port and mask.
    destination_port: (u16, u16),
    source_port: (u16, u16),
    protocol: u8,
    interface: u32,
    /// Value and mask.
    mark: (u32, u32),
    /// Applies only to packets that go through an XFRM interface.
    of_an_interface: bool,
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn address(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes[at..at + 16].try_into().expect("the slice has 16 bytes")
}

impl Policy {
    /// Parses the body of `XFRM_MSG_NEWPOLICY`. Returns `None` for a policy of forwarded packets,
    /// and for a body that is cut short.
    pub fn parse(body: &[u8]) -> Option<Policy> {
        let info = body.get(..INFO_LEN)?;
        let direction = info[DIRECTION_AT];
        let towards = match direction % OF_SOCKETS {
            0 => Towards::In,
            1 => Towards::Out,
            _ => return None,
        };
        let mut policy = Policy {
            towards,
            of_a_socket: direction >= OF_SOCKETS,
            kind: 0,
            priority: word(info, PRIORITY_AT),
            clear: info[ACTION_AT] == XFRM_POLICY_ALLOW,
            destination: (address(info, 0), info[42]),
            source: (address(info, 16), info[43]),
            destination_port: (be16(info, 32), be16(info, 34)),
            source_port: (be16(info, 36), be16(info, 38)),
            family: u16::from_ne_bytes([info[40], info[41]]),
            protocol: info[44],
            interface: word(info, 48),
            mark: (0, 0),
            of_an_interface: false,
        };
        for (kind, value) in attributes(&body[INFO_LEN..]) {
            match kind {
                XFRMA_TMPL => policy.clear &= value.is_empty(),
                XFRMA_POLICY_TYPE => policy.kind = value.first().copied().unwrap_or_default(),
                XFRMA_MARK if value.len() >= 8 => policy.mark = (word(value, 0), word(value, 4)),
                XFRMA_IF_ID if value.len() >= 4 => policy.of_an_interface = word(value, 0) != 0,
                _ => {}
            }
        }
        Some(policy)
    }

    /// Returns true if the policy applies to packets of this connection in this direction.
    fn is_for(&self, packet: &Packet, mark: u32, interface: u32) -> bool {
        let family = if packet.to.is_v4() { libc::AF_INET } else { libc::AF_INET6 } as u16;
        let is_port = |(port, mask): (u16, u16), of: u16| (port ^ of) & mask == 0;
        !self.of_an_interface
            && (self.family == family || self.family == 0)
            && (self.protocol == 0 || i32::from(self.protocol) == libc::IPPROTO_TCP)
            && (self.interface == 0 || self.interface == interface)
            && mark & self.mark.1 == self.mark.0
            && is_port(self.destination_port, packet.ports.1)
            && is_port(self.source_port, packet.ports.0)
            && begins_with(packet.to, self.destination)
            && begins_with(packet.from, self.source)
    }
}

/// The fields that a policy's selector examines.
struct Packet {
    from: Addr,
    to: Addr,
    /// Source and destination.
    ports: (u16, u16),
}

/// Returns true if an address begins with the first `len` bits of `prefix`.
fn begins_with(addr: Addr, (prefix, len): ([u8; 16], u8)) -> bool {
    let (own, theirs, bits) = if addr.is_v4() {
        let prefix = Ipv4Addr::from(<[u8; 4]>::try_from(&prefix[..4]).expect("the slice has 4 bytes"));
        (u128::from(u32::from_be_bytes(addr.octets_v4())), u128::from(u32::from(prefix)), 32)
    } else {
        (u128::from_be_bytes(addr.octets()), u128::from(Ipv6Addr::from(prefix)), 128)
    };
    let rest = 128u32.min(bits) - u32::from(len).min(bits);
    own.checked_shr(rest) == theirs.checked_shr(rest)
}

/// All policies, and what happens to packets to which none applies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Policies {
    pub all: Vec<Policy>,
    /// Whether such packets are dropped: incoming, outgoing.
    pub blocks: (bool, bool),
}

impl Policies {
    /// Returns true if packets of a connection would not pass in the clear, in either direction. Of
    /// two policies of the same priority the kernel uses the older, which it does not report. In
    /// that case either policy counts.
    pub fn hold(&self, tuple: &Tuple, mark: u32, interface: u32) -> bool {
        let Tuple { local, remote, local_port, remote_port } = *tuple;
        let incoming = Packet { from: remote, to: local, ports: (remote_port, local_port) };
        let outgoing = Packet { from: local, to: remote, ports: (local_port, remote_port) };
        [(Towards::In, incoming, self.blocks.0), (Towards::Out, outgoing, self.blocks.1)].into_iter().any(
            |(towards, packet, blocks)| {
                let found = || {
                    let all = self.all.iter().filter(|policy| policy.towards == towards);
                    all.filter(|policy| policy.is_for(&packet, mark, interface))
                };
                // A socket's own policies are evaluated first, and each kind separately.
                let first = |policy: &&Policy| {
                    let rivals = found().filter(|rival| rival.kind == policy.kind && !rival.of_a_socket);
                    rivals.map(|rival| rival.priority).min().is_none_or(|least| policy.priority <= least)
                };
                let decides = |policy: &&Policy| policy.of_a_socket || first(policy);
                let transformed = found().filter(decides).any(|policy| !policy.clear);
                transformed || blocks && !found().any(|policy| !policy.of_a_socket)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn tuple(local: &str, remote: &str) -> Tuple {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        Tuple::new(end(local), end(remote))
    }

    /// An outgoing IPv4 policy that blocks everything.
    fn blocks() -> Vec<u8> {
        let mut body = vec![0; INFO_LEN];
        body[40..42].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        (body[DIRECTION_AT], body[ACTION_AT]) = (1, 1);
        body
    }

    fn hold(bodies: &[Vec<u8>], mark: u32) -> bool {
        let all = bodies.iter().map(|body| Policy::parse(body).unwrap()).collect();
        let policies = Policies { all, blocks: (false, false) };
        policies.hold(&tuple("10.0.0.1:4000", "10.0.9.2:80"), mark, 3)
    }

    fn with(change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut body = blocks();
        change(&mut body);
        hold(&[body], 0)
    }

    fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
        body.extend((value.len() as u16 + 4).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }

    #[test]
    fn selectors_are_compared_as_the_kernel_does() {
        assert!(with(|_| {}));
        let prefix = |len: u8, bytes: [u8; 4]| {
            with(move |body| {
                body[..4].copy_from_slice(&bytes);
                body[42] = len;
            })
        };
        assert!(prefix(16, [10, 0, 1, 0]));
        assert!(prefix(32, [10, 0, 9, 2]));
        assert!(!prefix(24, [10, 0, 8, 0]));
        assert!(!with(|body| body[43] = 8), "a source that begins with 0");
        assert!(with(|body| body[32..36].copy_from_slice(&[0, 80, 0xff, 0xff])));
        assert!(!with(|body| body[32..36].copy_from_slice(&[0, 81, 0xff, 0xff])));
        assert!(with(|body| body[32..36].copy_from_slice(&[0, 81, 0xff, 0xfe])), "only a part of the port counts");
        assert!(with(|body| body[44] = libc::IPPROTO_TCP as u8));
        assert!(!with(|body| body[44] = libc::IPPROTO_UDP as u8));
        assert!(with(|body| body[48..52].copy_from_slice(&3u32.to_ne_bytes())));
        assert!(!with(|body| body[48..52].copy_from_slice(&4u32.to_ne_bytes())));
        assert!(!with(|body| body[40..42].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes())));
        assert!(!with(|body| attribute(body, XFRMA_IF_ID, &7u32.to_ne_bytes())));
    }

    #[test]
    fn a_mark_has_a_mask() {
        let mut body = blocks();
        attribute(&mut body, XFRMA_MARK, [5u32, 7].map(u32::to_ne_bytes).as_flattened());
        assert!(hold(&[body.clone()], 0x85));
        assert!(!hold(&[body], 4));
    }

    #[test]
    fn the_least_priority_of_a_kind_decides() {
        let allow = |priority: u32, kind: u8| {
            let mut body = blocks();
            body[ACTION_AT] = XFRM_POLICY_ALLOW;
            body[PRIORITY_AT..PRIORITY_AT + 4].copy_from_slice(&priority.to_ne_bytes());
            attribute(&mut body, XFRMA_POLICY_TYPE, &[kind, 0, 0, 0, 0]);
            body
        };
        let mut block = blocks();
        block[PRIORITY_AT..PRIORITY_AT + 4].copy_from_slice(&10u32.to_ne_bytes());
        assert!(!hold(&[block.clone(), allow(9, 0)], 0));
        assert!(hold(&[allow(11, 0), block.clone()], 0));
        assert!(hold(&[allow(10, 0), block.clone()], 0), "it is not known which is older");
        assert!(hold(&[allow(9, 1), block], 0), "a policy of another kind");
        let mut transforms = allow(1, 0);
        attribute(&mut transforms, XFRMA_TMPL, &[0; 64]);
        assert!(hold(&[transforms], 0));
    }

    #[test]
    fn forwarded_packets_are_none_of_ours_and_a_sockets_own_policy_may_be() {
        assert_eq!(Policy::parse(&[0; INFO_LEN - 1]), None);
        let directed = |direction: u8| {
            let mut body = blocks();
            body[DIRECTION_AT] = direction;
            body
        };
        assert_eq!(Policy::parse(&directed(2)), None);
        assert!(hold(&[directed(0)], 0));
        assert!(hold(&[directed(4)], 0));
    }

    #[test]
    fn where_nothing_holds_the_default_does() {
        let blocks = Policies { all: Vec::new(), blocks: (false, true) };
        assert!(blocks.hold(&tuple("[fd00::1]:1", "[fd00::2]:2"), 0, 1));
        assert!(!Policies::default().hold(&tuple("[fd00::1]:1", "[fd00::2]:2"), 0, 1));
    }
}
