//! Frames of an interface, as they are received: as `tcpdump -Q in` would see them, without a file.
//!
//! A packet socket (`packet(7)`) sees what is received, above the kernel's own receive offload
//! (GRO): turn that off to see what the wire carries. A VLAN tag that the kernel took off is
//! put back. Frames that the kernel dropped because its buffer was full are counted.
//!
//! A socket that listens to all interfaces at once gets packets without the headers of their
//! links, which differ, and the kernel says what each is. They become Linux cooked frames, as
//! libpcap makes them.
//! A packet that passes several devices, such as a bridge and its port, comes from each.

use super::{FRAME_MAX, Frame, Sink};
use crate::link_type;
use crate::sys::packet::{Kind, PacketSocket, Received};
use std::io;
use std::time::Duration;

/// The most frames taken at once.
const BURST: usize = 256;
const MAC_ADDRESSES: usize = 12;
const TAG: usize = 4;
/// Header of a Linux cooked frame. Its last two bytes are the ethertype; nothing else of it is read.
const COOKED: usize = 16;
/// Room in front of what is received.
const FRONT: usize = COOKED + TAG;

/// The name that stands for all interfaces, as in tcpdump.
pub const ANY: &str = "any";

/// An interface that is listened to, or all.
pub struct Live {
    socket: PacketSocket,
    link: u16,
    buffer: Box<[u8]>,
}

impl Live {
    /// Listens to an interface of this network namespace, or to all of them ([`ANY`]).
    ///
    /// # Errors
    /// There is no such interface, it is of a kind that cannot be read, or the process
    /// lacks CAP_NET_RAW.
    pub fn open(interface: &str) -> io::Result<Live> {
        let (socket, link) = if interface == ANY {
            (PacketSocket::of_all_received()?, link_type::LINUX_SLL)
        } else {
            let (socket, kind) = PacketSocket::open(interface)?;
            let link = match kind {
                Kind::Ethernet => link_type::ETHERNET,
                Kind::Ip => link_type::RAW,
            };
            (socket, link)
        };
        Ok(Live { socket, link, buffer: vec![0; FRONT + FRAME_MAX].into_boxed_slice() })
    }

    /// Hands frames to `sink` as they come, after waiting for the first for at most `wait`;
    /// returns how many there were.
    ///
    /// # Errors
    /// The operating system's answer, such as that the interface is gone.
    pub fn read(&mut self, wait: Duration, sink: &mut impl Sink) -> io::Result<usize> {
        if !self.socket.wait(wait)? {
            return Ok(0);
        }
        for count in 0..BURST {
            let Some(received) = self.socket.receive(&mut self.buffer[FRONT..])? else { return Ok(count) };
            sink.frame(&frame(&mut self.buffer, self.link, &received));
        }
        Ok(BURST)
    }

    /// Frames that the kernel dropped since the last call.
    pub fn dropped(&self) -> u64 {
        self.socket.dropped()
    }
}

/// Makes a frame of what was received behind the `FRONT` of a buffer.
fn frame<'a>(buffer: &'a mut [u8], link: u16, received: &Received) -> Frame<'a> {
    let mut data = FRONT..FRONT + received.captured;
    match (link, received.vlan) {
        (link_type::LINUX_SLL, None) => {
            buffer[FRONT - 2..FRONT].copy_from_slice(&received.ether_type.to_be_bytes());
            data.start -= COOKED;
        }
        (link_type::LINUX_SLL, Some(tag)) => {
            buffer[FRONT - 6..FRONT - 2].copy_from_slice(&tag);
            buffer[FRONT - 2..FRONT].copy_from_slice(&received.ether_type.to_be_bytes());
            data.start -= COOKED + TAG;
        }
        (link_type::ETHERNET, Some(tag)) if received.captured >= MAC_ADDRESSES => {
            data.start -= TAG;
            buffer.copy_within(FRONT..FRONT + MAC_ADDRESSES, data.start);
            buffer[data.start + MAC_ADDRESSES..FRONT + MAC_ADDRESSES].copy_from_slice(&tag);
        }
        _ => {}
    }
    let wire_len = received.wire_len + (FRONT - data.start) as u32;
    Frame { data: &buffer[data], wire_len, time_ns: received.time_ns, link }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;
    use baton_coalesce::Network;
    use baton_wire::eth::VlanTag;

    #[test]
    fn a_tag_that_the_kernel_took_off_is_back_behind_either_link_header() {
        for (link, header) in
            [(link_type::ETHERNET, &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0][..]), (link_type::LINUX_SLL, &[])]
        {
            for vlan in [None, Some([0x81, 0, 0x20, 7])] {
                let packet = [header, &[0x45; 60]].concat();
                let mut buffer = vec![0xee; FRONT + packet.len()];
                buffer[FRONT..].copy_from_slice(&packet);
                let (captured, wire_len) = (packet.len(), packet.len() as u32);
                let received = Received { captured, wire_len, time_ns: 9, vlan, ether_type: 0x0800, outgoing: false };
                let frame = frame(&mut buffer, link, &received);
                let found = Network::of(&link::frame(&frame)).unwrap();
                let tags: Vec<_> = found.tags.iter().collect();
                let expected: Vec<_> = vlan.iter().map(|_| VlanTag { tpid: 0x8100, tci: 0x2007 }).collect();
                assert_eq!((found.ether_type, tags), (0x0800, expected), "{link}");
                assert_eq!((&frame.data[found.offset..], frame.wire_len as usize), (&[0x45; 60][..], frame.data.len()));
            }
        }
    }
}
