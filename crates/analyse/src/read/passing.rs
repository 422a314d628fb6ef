//! IP packets as they pass the interfaces of this network namespace, both ways.

use super::FRAME_MAX;
use crate::sys::packet::PacketSocket;
use std::io;
use std::time::Duration;

/// The most packets taken at once.
const BURST: usize = 256;

/// A packet that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassingPacket<'a> {
    /// Its bytes, from the IP header on.
    pub data: &'a [u8],
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// This machine sends it; otherwise it has come.
    pub outgoing: bool,
}

/// All interfaces of a network namespace. A loopback device's packets pass twice: they go, and they come.
pub struct Passing {
    socket: PacketSocket,
    buffer: Box<[u8]>,
}

impl Passing {
    /// Listens to all interfaces.
    ///
    /// # Errors
    /// The process lacks CAP_NET_RAW.
    pub fn open() -> io::Result<Passing> {
        Ok(Passing { socket: PacketSocket::of_all()?, buffer: vec![0; FRAME_MAX].into_boxed_slice() })
    }

    /// Hands packets to `take` as they pass, after waiting for the first for at most `wait`; returns how many
    /// there were.
    ///
    /// # Errors
    /// The operating system's answer.
    pub fn read(&mut self, wait: Duration, mut take: impl FnMut(PassingPacket<'_>)) -> io::Result<usize> {
        if !self.socket.wait(wait)? {
            return Ok(0);
        }
        for count in 0..BURST {
            let Some(received) = self.socket.receive(&mut self.buffer)? else { return Ok(count) };
            let data = &self.buffer[..received.captured];
            take(PassingPacket { data, time_ns: received.time_ns, outgoing: received.outgoing });
        }
        Ok(BURST)
    }

    /// Packets that the kernel dropped since the last call, because they were not read in time.
    pub fn dropped(&self) -> u64 {
        self.socket.dropped()
    }
}
