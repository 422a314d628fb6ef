//! Why a connection stays in the kernel.
//!
//! A refusal is not an error: the connection continues where it is, untouched. Each reason has a
//! code for counters and scripts, which never changes, a sentence for people, and a remedy.

use core::fmt;

/// A reason to leave a connection in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The descriptor is not that of a TCP socket.
    NotTcp,
    /// The socket is listening, or is not connected.
    NotConnected,
    /// The connection is opening, closing on both sides, or over.
    State,
    /// Repair mode is on: the socket is a husk, or another program is repairing it.
    AlreadyAway,
    /// The process lacks CAP_NET_ADMIN over the socket's network namespace, or may not enter it.
    Permission,
    /// Multipath TCP.
    Mptcp,
    /// The kernel does TLS, or another protocol, on the connection.
    UpperProtocol,
    /// TCP-MD5 (RFC 2385) or TCP-AO (RFC 5925) signs the segments.
    Signed,
    /// Urgent data has not been read.
    Urgent,
    /// Segments kept arriving while the connection was read.
    Unsettled,
    /// The interface, or the route, cannot be steered.
    NotSteerable,
    /// The window promised to the peer would have to be taken back.
    WindowRetraction,
    /// A queue holds more than the engine's buffers.
    TooMuchQueued,
    /// Conntrack has entries here and cannot be told of the move.
    Conntrack,
    /// A conntrack helper reads its payload (FTP, SIP).
    ConntrackHelper,
    /// NAT in this network namespace changes its addresses or ports.
    Translated,
    /// A firewall rule acts on its packets, not only on its first one.
    FirewallRule,
    /// An XFRM policy applies to it.
    Ipsec,
    /// Its route adds headers of a tunnel, MPLS or SRv6, or lets a program add them.
    Encapsulated,
    /// Its interface belongs to a VRF, bridge or bond.
    Enslaved,
    /// A BPF program of its cgroup sees its packets.
    CgroupProgram,
    /// The program attached a filter to the socket.
    SocketFilter,
    /// Another tc program behind ours, or a shaping discipline, would be skipped.
    TcProgram,
}

impl Refusal {
    /// All reasons, in the order of their declaration.
    pub const ALL: [Refusal; 23] = [
        Refusal::NotTcp,
        Refusal::NotConnected,
        Refusal::State,
        Refusal::AlreadyAway,
        Refusal::Permission,
        Refusal::Mptcp,
        Refusal::UpperProtocol,
        Refusal::Signed,
        Refusal::Urgent,
        Refusal::Unsettled,
        Refusal::NotSteerable,
        Refusal::WindowRetraction,
        Refusal::TooMuchQueued,
        Refusal::Conntrack,
        Refusal::ConntrackHelper,
        Refusal::Translated,
        Refusal::FirewallRule,
        Refusal::Ipsec,
        Refusal::Encapsulated,
        Refusal::Enslaved,
        Refusal::CgroupProgram,
        Refusal::SocketFilter,
        Refusal::TcProgram,
    ];

    /// The name in counters and JSON. It never changes.
    pub const fn code(self) -> &'static str {
        self.texts().0
    }

    /// Its meaning, as a clause for people.
    pub const fn text(self) -> &'static str {
        self.texts().1
    }

    /// The remedy, as an instruction to a person.
    pub const fn remedy(self) -> &'static str {
        self.texts().2
    }

    /// Returns true if the kernel would let none of its packets leave or arrive unchanged. The
    /// frames of such a connection are dropped until it is home.
    pub const fn forbids_frames(self) -> bool {
        matches!(self, Refusal::NotSteerable | Refusal::Encapsulated | Refusal::Ipsec)
    }

    /// The code, the sentence and the remedy.
    const fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Refusal::NotTcp => ("not-tcp", "it is not a TCP socket", "give the descriptor of a TCP socket"),
            Refusal::NotConnected => (
                "not-connected",
                "it has no connection",
                "hand a socket over after connect or accept; listening sockets stay with the kernel",
            ),
            Refusal::State => (
                "state",
                "the connection is opening or closing on both sides",
                "nothing: such a connection ends soon, or can move once it is open",
            ),
            Refusal::AlreadyAway => (
                "already-away",
                "the connection is away already, or another program (CRIU) is repairing it",
                "restore it first",
            ),
            Refusal::Permission => (
                "permission",
                "CAP_NET_ADMIN over the socket's network namespace is missing, or the right to enter it",
                "let the broker move it, or run with CAP_NET_ADMIN; for sockets of other namespaces with CAP_SYS_ADMIN, too",
            ),
            Refusal::Mptcp => {
                ("mptcp", "the connection is multipath TCP", "open it with IPPROTO_TCP instead of IPPROTO_MPTCP")
            }
            Refusal::UpperProtocol => (
                "upper-protocol",
                "the kernel runs TLS (or another TCP_ULP) on the connection",
                "let the program run TLS itself",
            ),
            Refusal::Signed => {
                ("signed", "segments are signed by TCP-MD5 or TCP-AO", "nothing: signed connections stay")
            }
            Refusal::Urgent => ("urgent", "urgent data has not been read", "try again once the program has read it"),
            Refusal::Unsettled => (
                "unsettled",
                "segments kept arriving while the connection was read",
                "enter it into the steering map before it is captured",
            ),
            Refusal::NotSteerable => (
                "not-steerable",
                "its interface or route cannot be steered",
                "`baton doctor` says which interfaces can, and why",
            ),
            Refusal::WindowRetraction => (
                "window-retraction",
                "the window promised to the peer would have to be taken back",
                "raise the receive buffer's limit",
            ),
            Refusal::TooMuchQueued => (
                "too-much-queued",
                "more data waits to be read, or to be sent, than the engine's buffers hold",
                "try again when less data waits, or give the engine more and larger buffers",
            ),
            Refusal::Conntrack => (
                "conntrack",
                "conntrack has entries here and cannot be told of moves",
                "use a kernel with ctnetlink (CONFIG_NF_CT_NETLINK); `baton doctor` says whether conntrack can be told",
            ),
            Refusal::ConntrackHelper => (
                "conntrack-helper",
                "a conntrack helper reads its payload",
                "do not assign a helper to this port, or leave the connection in the kernel",
            ),
            Refusal::Translated => (
                "translated",
                "its addresses or ports are translated in this network namespace",
                "nothing: translated connections stay",
            ),
            Refusal::FirewallRule => (
                "firewall-rule",
                "a firewall rule acts on each of its packets",
                "`--explain` names table and chain; `[firewall] rules = \"follow\"` moves it past such rules",
            ),
            Refusal::Ipsec => {
                ("ipsec", "an IPsec policy applies to it", "nothing: its frames would leave in the clear")
            }
            Refusal::Encapsulated => {
                ("encapsulated", "its route encapsulates its packets", "nothing: such connections stay in the kernel")
            }
            Refusal::Enslaved => (
                "enslaved",
                "its interface belongs to a VRF, bridge or bond",
                "steer the interface above it, if that can be steered",
            ),
            Refusal::CgroupProgram => (
                "cgroup-program",
                "a BPF program of its cgroup sees its packets",
                "run the program in a cgroup without ingress and egress programs (systemd: without IPAddressDeny, IPAccounting)",
            ),
            Refusal::SocketFilter => {
                ("socket-filter", "the program attached a filter to the socket", "nothing: filtered sockets stay")
            }
            Refusal::TcProgram => (
                "tc-program",
                "another tc program or discipline of its interface would be skipped",
                "attach that program before Baton's, or to another interface; by tc a discipline is not skipped",
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Refusal {}

/// How often each reason was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    /// Counts a refusal.
    pub fn count(&mut self, refusal: Refusal) {
        self.0[refusal as usize] += 1;
    }

    /// Each reason with its count, including those never given.
    pub fn iter(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        Refusal::ALL.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Refusal, Refusals};
    use std::collections::HashSet;

    #[test]
    fn codes_are_words_and_differ() {
        let codes: HashSet<&str> = Refusal::ALL.iter().map(|r| r.code()).collect();
        assert_eq!(codes.len(), Refusal::ALL.len());
        assert!(codes.iter().all(|code| code.chars().all(|c| c.is_ascii_lowercase() || c == '-')));
        assert!(Refusal::ALL.iter().enumerate().all(|(i, r)| *r as usize == i), "ALL is in the order of declaration");
    }

    #[test]
    fn each_reason_has_its_counter() {
        let mut refusals = Refusals::default();
        refusals.count(Refusal::Urgent);
        refusals.count(Refusal::Urgent);
        refusals.count(Refusal::NotTcp);
        let counted: Vec<_> = refusals.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(Refusal::NotTcp, 1), (Refusal::Urgent, 2)]);
    }
}
