//! Frames of an interface, as they are received: as `tcpdump -Q in` would see them, without a file.
//!
//! A packet socket (`packet(7)`) sees what is received, above the kernel's own receive offload
//! (GRO): turn that off to see what the wire carries. A VLAN tag that the kernel took off is
//! put back. Frames that the kernel dropped because its buffer was full are counted.

use super::{FRAME_MAX, Frame, Sink};
use crate::link_type;
use crate::sys::packet::{Kind, PacketSocket, Received};
use std::io;
use std::time::Duration;

/// The most frames taken at once.
const BURST: usize = 256;
const MAC_ADDRESSES: usize = 12;
const TAG: usize = 4;

/// An interface that is listened to.
pub struct Live {
    socket: PacketSocket,
    link: u16,
    buffer: Box<[u8]>,
}

impl Live {
    /// Listens to an interface of this network namespace.
    ///
    /// # Errors
    /// There is no such interface, it is of a kind that cannot be read, or the process
    /// lacks CAP_NET_RAW.
    pub fn open(interface: &str) -> io::Result<Live> {
        let (socket, kind) = PacketSocket::open(interface)?;
        let link = match kind {
            Kind::Ethernet => link_type::ETHERNET,
            Kind::Ip => link_type::RAW,
        };
        Ok(Live { socket, link, buffer: vec![0; TAG + FRAME_MAX].into_boxed_slice() })
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
            let Some(received) = self.socket.receive(&mut self.buffer[TAG..])? else { return Ok(count) };
            sink.frame(&self.frame(&received));
        }
        Ok(BURST)
    }

    /// Frames that the kernel dropped since the last call.
    pub fn dropped(&self) -> u64 {
        self.socket.dropped()
    }

    fn frame(&mut self, received: &Received) -> Frame<'_> {
        let mut data = TAG..TAG + received.captured;
        let mut wire_len = received.wire_len;
        if let Some(tag) = received.vlan
            && self.link == link_type::ETHERNET
            && received.captured >= MAC_ADDRESSES
        {
            self.buffer.copy_within(TAG..TAG + MAC_ADDRESSES, 0);
            self.buffer[MAC_ADDRESSES..MAC_ADDRESSES + TAG].copy_from_slice(&tag);
            data.start = 0;
            wire_len += TAG as u32;
        }
        Frame { data: &self.buffer[data], wire_len, time_ns: received.time_ns, link: self.link }
    }
}
