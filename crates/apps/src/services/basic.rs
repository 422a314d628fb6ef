//! Echo, discard and chargen.

use super::{Message, ramp};
use crate::net::{Flow, Handler, StreamIo};
use std::io::{self, ErrorKind};

/// Bytes that a handler moves before other connections run.
const SHARE: usize = 4 << 20;

/// Sends back what it receives (RFC 862). It reads more only after everything read before is queued
/// for sending, so a peer that does not read occupies one buffer.
pub struct Echo {
    buf: Vec<u8>,
    /// `buf[sent..len]` has not been sent yet.
    sent: usize,
    len: usize,
}

impl Echo {
    /// First and largest size of the buffer in bytes: it is small while requests are small.
    const SIZES: (usize, usize) = (2048, 64 * 1024);

    /// A new connection.
    pub fn new() -> Echo {
        Echo { buf: vec![0; Echo::SIZES.0], sent: 0, len: 0 }
    }
}

impl Default for Echo {
    fn default() -> Echo {
        Echo::new()
    }
}

impl Handler for Echo {
    fn on_ready(&mut self, io: &mut dyn StreamIo) -> io::Result<Flow> {
        let mut moved = 0;
        loop {
            while self.sent < self.len {
                self.sent += io.write(&self.buf[self.sent..self.len])?;
            }
            if moved >= SHARE {
                return Ok(Flow::Again);
            }
            if self.len == self.buf.len() && self.buf.len() < Echo::SIZES.1 {
                self.buf.resize(Echo::SIZES.1, 0);
            }
            (self.sent, self.len) = (0, 0);
            self.len = io.read(&mut self.buf)?;
            moved += self.len;
            if self.len == 0 {
                io.finish()?;
                return Ok(Flow::Done);
            }
        }
    }
}

/// Receives and discards (RFC 863).
pub struct Discard {
    message: Message,
}

impl Discard {
    /// A new connection.
    pub fn new(message: Message) -> Discard {
        Discard { message }
    }
}

impl Handler for Discard {
    fn on_ready(&mut self, io: &mut dyn StreamIo) -> io::Result<Flow> {
        let mut moved = 0;
        while moved < SHARE {
            match io.skip(self.message.0.min(SHARE))? {
                0 => return Ok(Flow::Done),
                len => moved += len,
            }
        }
        Ok(Flow::Again)
    }
}

/// Sends the ramp until the peer closes (RFC 864, which leaves the data open).
pub struct Chargen {
    message: Message,
    offset: u64,
}

impl Chargen {
    /// A new connection.
    pub fn new(message: Message) -> Chargen {
        Chargen { message, offset: 0 }
    }
}

impl Handler for Chargen {
    fn on_ready(&mut self, io: &mut dyn StreamIo) -> io::Result<Flow> {
        // Received data is discarded; when the peer finishes, so does the service.
        match io.skip(SHARE) {
            Ok(0) => return Ok(Flow::Done),
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let mut moved = 0;
        while moved < SHARE {
            let data = ramp::from(self.offset);
            let len = io.write(&data[..data.len().min(self.message.0)])?;
            self.offset += len as u64;
            moved += len;
        }
        Ok(Flow::Again)
    }
}
