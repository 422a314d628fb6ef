//! ICMP and ICMPv6: echoes, refusals, and errors about our TCP segments.
//!
//! Everything that we send here is rate-limited (RFC 1812 §4.3.2.8, RFC 4443 §2.4(f)), goes
//! back to where the frame came from, and answers only unicast messages, never an error.

use super::ip::Arrival;
use super::neighbour::Source;
use super::{Endpoint, IcmpForTcp, Verdict};
use baton_tcp::icmp::{IcmpError, IcmpKind};
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use baton_wire::icmpv4::{self, Message as V4};
use baton_wire::icmpv6::Message as V6;
use baton_wire::quote::QuotedTcp;

/// Echo replies a second, and at once.
pub(super) const ECHO_LIMIT: (u64, u64) = (10_000, 256);
/// Errors a second, and at once (Linux `icmp_msgs_per_sec`, `icmp_msgs_burst`).
pub(super) const ERROR_LIMIT: (u64, u64) = (1_000, 50);

/// Longest packet with an error: RFC 1812 §4.3.2.3, RFC 4443 §2.4(c).
const LONGEST_ERROR_V4: usize = 576;
const LONGEST_ERROR_V6: usize = 1280;

/// Bytes before the quotation in a packet with an error: IP and ICMP headers.
const ERROR_HEADERS_V4: usize = 28;
const ERROR_HEADERS_V6: usize = 48;

impl Endpoint {
    /// Takes an ICMP message.
    pub(super) fn handle_icmpv4(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        out: &mut dyn FnMut(IcmpForTcp),
    ) -> Verdict {
        let Ok(message) = V4::parse(arrival.payload) else { return Verdict::Malformed };
        match message {
            V4::EchoRequest { id, seq, data } => {
                self.echo(now, arrival, |this| this.answer_v4(arrival, &V4::EchoReply { id, seq, data }))
            }
            error => pass_on_v4(arrival, &error, out),
        }
    }

    /// Takes an ICMPv6 message.
    pub(super) fn handle_icmpv6(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        out: &mut dyn FnMut(IcmpForTcp),
    ) -> Verdict {
        let (src, dst) = arrival.v6_addresses();
        let Ok(message) = V6::parse(arrival.payload, src, dst) else { return Verdict::Malformed };
        match message {
            V6::EchoRequest { id, seq, data } => {
                self.echo(now, arrival, |this| this.answer_v6(arrival, &V6::EchoReply { id, seq, data }))
            }
            V6::NeighbourSolicitation { target, source_link } => {
                self.handle_solicitation(now, arrival, target, source_link)
            }
            V6::NeighbourAdvertisement { target, solicited, overriding, target_link, .. } => {
                let source = Source::Advertisement { solicited, overrides: overriding };
                self.handle_advertisement(now, arrival, target, source, target_link)
            }
            error => pass_on_v6(arrival, &error, out),
        }
    }

    fn echo(&mut self, now: Instant, arrival: &Arrival<'_>, answer: impl FnOnce(&mut Endpoint)) -> Verdict {
        if !arrival.is_to_us_alone() || !self.routes.is_host(arrival.src) {
            return Verdict::Ignored;
        }
        if !self.echo_limit.take(now) {
            return Verdict::RateLimited;
        }
        answer(self);
        Verdict::EchoReply
    }

    /// Reports that there is no such port or protocol here.
    pub(super) fn refuse_v4(&mut self, now: Instant, arrival: &Arrival<'_>, code: u8) -> Verdict {
        let quote = quote(arrival, usize::from(self.config.mtu).min(LONGEST_ERROR_V4), ERROR_HEADERS_V4);
        self.refuse(now, arrival, |this| this.answer_v4(arrival, &V4::Unreachable { code, quote }))
    }

    /// The same in IPv6: no such port, or no such protocol as the header field at
    /// `pointer` names.
    pub(super) fn refuse_v6(&mut self, now: Instant, arrival: &Arrival<'_>, pointer: Option<u32>) -> Verdict {
        let quote = quote(arrival, usize::from(self.config.mtu).min(LONGEST_ERROR_V6), ERROR_HEADERS_V6);
        let message = match pointer {
            None => V6::Unreachable { code: 4, quote },
            Some(pointer) => V6::ParameterProblem { code: 1, pointer, quote },
        };
        self.refuse(now, arrival, |this| this.answer_v6(arrival, &message))
    }

    fn refuse(&mut self, now: Instant, arrival: &Arrival<'_>, answer: impl FnOnce(&mut Endpoint)) -> Verdict {
        if !arrival.is_to_us_alone() || !self.routes.is_host(arrival.src) {
            return Verdict::Ignored;
        }
        if !self.error_limit.take(now) {
            return Verdict::RateLimited;
        }
        answer(self);
        Verdict::Refused
    }
}

/// Passes an ICMP message on if it is an error about a TCP segment that we sent.
pub(super) fn pass_on_v4(arrival: &Arrival<'_>, message: &V4<'_>, out: &mut dyn FnMut(IcmpForTcp)) -> Verdict {
    let (kind, quote) = match *message {
        V4::FragmentationNeeded { mtu, quote } => (IcmpKind::TooBig { mtu }, quote),
        V4::Unreachable { code, quote } => (unreachable_v4(code), quote),
        V4::TimeExceeded { quote, .. } => (IcmpKind::TimeExceeded, quote),
        V4::ParameterProblem { quote, .. } => (IcmpKind::ParameterProblem, quote),
        // MUST-55 (RFC 9293 §3.9.2.2): source quench (type 4) is discarded in
        // silence, like redirects and all else.
        V4::EchoRequest { .. } | V4::EchoReply { .. } | V4::Unknown { .. } => return Verdict::Ignored,
    };
    pass_on(arrival, quote, kind, out)
}

/// The same of ICMPv6.
pub(super) fn pass_on_v6(arrival: &Arrival<'_>, message: &V6<'_>, out: &mut dyn FnMut(IcmpForTcp)) -> Verdict {
    let (kind, quote) = match *message {
        V6::PacketTooBig { mtu, quote } => (IcmpKind::TooBig { mtu: u16::try_from(mtu).unwrap_or(u16::MAX) }, quote),
        V6::Unreachable { code, quote } => (unreachable_v6(code), quote),
        V6::TimeExceeded { quote, .. } => (IcmpKind::TimeExceeded, quote),
        V6::ParameterProblem { quote, .. } => (IcmpKind::ParameterProblem, quote),
        _ => return Verdict::Ignored,
    };
    pass_on(arrival, quote, kind, out)
}

fn pass_on(arrival: &Arrival<'_>, quote: &[u8], kind: IcmpKind, out: &mut dyn FnMut(IcmpForTcp)) -> Verdict {
    let Some(quoted) = QuotedTcp::parse(quote) else { return Verdict::Ignored };
    // MUST-54 (RFC 9293 §3.9.2.2): an error must name the connection that it
    // is about; it came to the address that sent the segment.
    if quoted.src != arrival.dst {
        return Verdict::Ignored;
    }
    let tuple =
        Tuple { local: quoted.src, remote: quoted.dst, local_port: quoted.src_port, remote_port: quoted.dst_port };
    out(IcmpForTcp { tuple, error: IcmpError { seq: quoted.seq, kind } });
    Verdict::IcmpError
}

/// As much of the packet as fits an error of `longest` bytes.
fn quote<'a>(arrival: &Arrival<'a>, longest: usize, headers: usize) -> &'a [u8] {
    let room = longest.saturating_sub(headers);
    arrival.packet.get(..room).unwrap_or(arrival.packet)
}

/// RFC 1122 §3.2.2.1, RFC 1812 §5.2.7.1.
fn unreachable_v4(code: u8) -> IcmpKind {
    match code {
        0 | 6 | 8 | 11 => IcmpKind::NetworkUnreachable,
        icmpv4::unreachable::PROTOCOL | icmpv4::unreachable::PORT => IcmpKind::PortUnreachable,
        _ => IcmpKind::HostUnreachable,
    }
}

/// RFC 4443 §3.1.
fn unreachable_v6(code: u8) -> IcmpKind {
    match code {
        0 => IcmpKind::NetworkUnreachable,
        4 => IcmpKind::PortUnreachable,
        _ => IcmpKind::HostUnreachable,
    }
}
