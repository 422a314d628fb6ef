//! A router between two hosts whose next link has a smaller MTU. It reports that (RFC 1191, RFC
//! 8201) or, as some routers do, drops packets silently.

use baton_tcp::time::Duration;
use baton_wire::eth::{Header, ether_type};
use baton_wire::packet::{Link, Packet};
use baton_wire::{icmpv4, icmpv6, ipv4, ipv6};
use core::net::IpAddr;

/// Configuration of the router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathMtu {
    /// Largest IP packet that passes, in bytes.
    pub mtu: u16,
    /// It reports packets that do not pass to their sender.
    pub tells: bool,
    /// How long the report takes.
    pub delay: Duration,
}

/// The fate of a frame there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Passage {
    /// It passes.
    Passes,
    /// It is dropped silently.
    Dropped,
    /// It is dropped, and its sender is sent this frame.
    Refused(Vec<u8>),
}

/// Decides the fate of `frame`; all but TCP passes.
pub fn pass(frame: &[u8], link: Link, narrow: PathMtu) -> Passage {
    let Ok(packet) = Packet::parse(frame, link) else { return Passage::Passes };
    let ip = usize::from(packet.ip_offset);
    if frame.len() - ip <= usize::from(narrow.mtu) {
        return Passage::Passes;
    }
    match complaint(frame, &packet, narrow.mtu) {
        Some(complaint) if narrow.tells => Passage::Refused(complaint),
        _ => Passage::Dropped,
    }
}

/// The ICMP error for a packet. Its source is the receiver's address: this world has no
/// addresses for routers, and hosts do not check the source.
fn complaint(frame: &[u8], packet: &Packet, mtu: u16) -> Option<Vec<u8>> {
    let ip = usize::from(packet.ip_offset);
    let mut out = vec![0; 1300];
    let mut body = vec![0; 1240];
    let header = match (packet.src.ip(), packet.dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let quote = &frame[ip..frame.len().min(ip + 548)];
            let len = icmpv4::Message::FragmentationNeeded { mtu, quote }.write(&mut body).ok()?;
            body.truncate(len);
            let header = ipv4::Header::atomic(60, icmpv4::PROTOCOL, dst, src);
            header.write(&[], len, &mut out).ok()?
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let quote = &frame[ip..frame.len().min(ip + 1232)];
            let message = icmpv6::Message::PacketTooBig { mtu: mtu.into(), quote };
            let len = message.write(dst, src, &mut body).ok()?;
            body.truncate(len);
            let header = ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                next_header: icmpv6::PROTOCOL,
                hop_limit: 60,
                src: dst,
                dst: src,
            };
            header.write(len, &mut out).ok()?
        }
        _ => return None,
    };
    let mut link = Vec::new();
    if ip != 0 {
        let (forth, _) = Header::parse(frame).ok()?;
        let ether_type = if packet.is_v6() { ether_type::IPV6 } else { ether_type::IPV4 };
        let back = Header { dst: forth.src, src: forth.dst, vlan: forth.vlan, ether_type };
        link.resize(back.len(), 0);
        back.write(&mut link).ok()?;
    }
    Some([&link[..], &out[..header], &body].concat())
}
