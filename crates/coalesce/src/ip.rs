//! The header of an IP packet in a frame, with what of it concerns the segment behind it.

use crate::extensions;
use crate::flow::{Flow, Tags};
use crate::frame::Frame;
use crate::network::Network;
use crate::verdict::Reason;
use baton_wire::eth::ether_type;
use baton_wire::ipv6;

/// A packet's part in a fragmented one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fragment {
    /// It is whole.
    None,
    /// It is the first of several.
    First,
    /// It does not begin with the header of its protocol.
    Later,
}

/// The header of an IP packet.
#[derive(Clone, Copy, Debug)]
pub struct Ip<'a> {
    pub(crate) frame: &'a Frame<'a>,
    /// The frame from the IP header on, as far as it was captured.
    pub(crate) packet: &'a [u8],
    pub(crate) offset: usize,
    /// Addresses and tags; the ports are still 0.
    pub(crate) flow: Flow,
    /// IP header with options and extensions, in bytes.
    pub(crate) header_len: usize,
    /// Header and payload, in bytes, by the IP header.
    pub(crate) total_len: usize,
    pub(crate) protocol: u8,
    pub(crate) traffic_class: u8,
    pub(crate) ttl: u8,
    pub(crate) fragment: Fragment,
    pub(crate) options: bool,
}

impl<'a> Ip<'a> {
    /// Finds and reads the IP header of a frame.
    ///
    /// # Errors
    /// [`Reason::NotIp`] or [`Reason::Malformed`].
    #[inline(always)]
    pub fn of(frame: &'a Frame<'a>) -> Result<Ip<'a>, Reason> {
        Ip::read(frame, Network::of(frame).ok_or(Reason::NotIp)?)
    }

    /// Reads the header at `network`, which is of this frame.
    ///
    /// # Errors
    /// [`Reason::NotIp`] or [`Reason::Malformed`].
    #[inline(always)]
    pub fn read(frame: &'a Frame<'a>, network: Network) -> Result<Ip<'a>, Reason> {
        match network.ether_type {
            ether_type::IPV4 => Ip::v4(frame, network.offset, network.tags),
            ether_type::IPV6 => Ip::v6(frame, network.offset, network.tags),
            _ => Err(Reason::NotIp),
        }
    }

    /// The protocol of its payload, behind extension headers.
    #[inline]
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Where its payload begins, in bytes from the start of the frame; `None` for a fragment that is not the
    /// first.
    #[inline]
    pub fn payload_offset(&self) -> Option<usize> {
        (self.fragment != Fragment::Later).then_some(self.offset + self.header_len)
    }

    #[inline(always)]
    pub(crate) fn v4(frame: &'a Frame<'a>, at: usize, tags: Tags) -> Result<Ip<'a>, Reason> {
        let packet = frame.bytes.get(at..).unwrap_or_default();
        let Some(header) = packet.first_chunk::<20>() else { return Err(Reason::Malformed) };
        let header_len = usize::from(header[0] & 0xf) * 4;
        if header[0] >> 4 != 4 || header_len < 20 || packet.len() < header_len {
            return Err(Reason::Malformed);
        }
        let total_len = v4_len(packet).unwrap_or_else(|| (frame.wire_len as usize).saturating_sub(at));
        if total_len < header_len {
            return Err(Reason::Malformed);
        }
        let bits = u16::from_be_bytes([header[6], header[7]]);
        let fragment = match bits & 0x3fff {
            0 => Fragment::None,
            more if more & 0x1fff == 0 => Fragment::First,
            _ => Fragment::Later,
        };
        let address = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        Ok(Ip {
            frame,
            packet,
            offset: at,
            flow: Flow::v4(address(12), address(16), 0, tags),
            header_len,
            total_len,
            protocol: header[9],
            traffic_class: header[1],
            ttl: header[8],
            fragment,
            options: header_len != 20,
        })
    }

    #[inline(always)]
    fn v6(frame: &'a Frame<'a>, at: usize, tags: Tags) -> Result<Ip<'a>, Reason> {
        let packet = frame.bytes.get(at..).unwrap_or_default();
        let Some(header) = packet.first_chunk::<{ ipv6::HEADER_LEN }>() else { return Err(Reason::Malformed) };
        if header[0] >> 4 != 6 {
            return Err(Reason::Malformed);
        }
        let wire_len = (frame.wire_len as usize).saturating_sub(at);
        let total_len = v6_len(packet).unwrap_or(wire_len.max(ipv6::HEADER_LEN));
        let address = |at: usize| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&header[at..at + 16]);
            bytes
        };
        let mut ip = Ip {
            frame,
            packet,
            offset: at,
            flow: Flow::v6(address(8), address(24), 0, tags),
            header_len: ipv6::HEADER_LEN,
            total_len,
            protocol: header[6],
            traffic_class: header[0] << 4 | header[1] >> 4,
            ttl: header[7],
            fragment: Fragment::None,
            options: false,
        };
        if extensions::is_extension(header[6]) {
            ip.pass_extensions()?;
        }
        Ok(ip)
    }

    /// Goes on to what is behind extension headers.
    #[cold]
    fn pass_extensions(&mut self) -> Result<(), Reason> {
        let data = &self.packet[self.header_len..self.total_len.min(self.packet.len())];
        let found = extensions::walk(self.protocol, data).ok_or(Reason::Malformed)?;
        self.protocol = found.protocol;
        self.header_len += found.len;
        self.fragment = match (found.fragment, found.later) {
            (_, true) => Fragment::Later,
            (true, false) => Fragment::First,
            (false, false) => Fragment::None,
        };
        self.options = true;
        Ok(())
    }
}

impl Network {
    /// Length of the IP packet in bytes, by its header; `None` if it is no IP packet, or its header is cut off
    /// before it says, or says 0.
    pub fn ip_len(&self, frame: &Frame<'_>) -> Option<usize> {
        let packet = frame.bytes.get(self.offset..)?;
        match self.ether_type {
            ether_type::IPV4 => v4_len(packet),
            ether_type::IPV6 => v6_len(packet),
            _ => None,
        }
    }
}

#[inline(always)]
fn v4_len(packet: &[u8]) -> Option<usize> {
    nonzero_half(packet, 2)
}

#[inline(always)]
fn v6_len(packet: &[u8]) -> Option<usize> {
    Some(ipv6::HEADER_LEN + nonzero_half(packet, 4)?)
}

#[inline(always)]
fn nonzero_half(packet: &[u8], at: usize) -> Option<usize> {
    match u16::from_be_bytes(*packet.get(at..)?.first_chunk()?) {
        0 => None,
        len => Some(len.into()),
    }
}
