//! ICMP errors about a connection, as the endpoint hands them over
//! (RFC 9293 §3.9.2.2, RFC 5461, RFC 5927).

use crate::command::CloseReason;
use baton_wire::seq::Seq;

/// An ICMP error whose quoted header matched a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// Sequence number of the quoted TCP header.
    pub seq: Seq,
    /// The error reported.
    pub kind: IcmpKind,
}

/// The error that an ICMP message reports. The endpoint drops source quench (MUST-55) itself,
/// since nothing is to be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpKind {
    /// Network unreachable, codes 0, 6, 8, 11 of ICMPv4; code 0 of ICMPv6.
    NetworkUnreachable,
    /// Host unreachable, codes 1, 5, 7, 12 and the prohibited ones; codes 1, 2, 3 of ICMPv6.
    HostUnreachable,
    /// Protocol or port unreachable, codes 2, 3 of ICMPv4; code 4 of ICMPv6.
    PortUnreachable,
    /// Fragmentation needed (RFC 1191 §4) or packet too big (RFC 8201 §4), with
    /// the largest packet of the next hop in bytes; 0 from a router that does
    /// not say.
    TooBig {
        /// MTU of the next hop in bytes.
        mtu: u16,
    },
    /// Time exceeded.
    TimeExceeded,
    /// Parameter problem.
    ParameterProblem,
}

impl IcmpKind {
    /// Never a reason to end a connection (RFC 9293 §3.9.2.2).
    pub(crate) const fn is_soft(self) -> bool {
        !matches!(self, IcmpKind::PortUnreachable)
    }

    /// The reason that the consumer is told.
    pub(crate) const fn reason(self) -> CloseReason {
        match self {
            IcmpKind::NetworkUnreachable => CloseReason::NetworkUnreachable,
            IcmpKind::PortUnreachable => CloseReason::Refused,
            _ => CloseReason::HostUnreachable,
        }
    }
}
