//! The kinds of load: each type drives one connection.

use super::spec::{Check, Load, MAX_LATENCY, Shared};
use crate::net::{Flow, Handler, StreamIo};
use crate::services::ramp;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Instant;

/// Bytes that a bulk connection moves before other connections run.
const SHARE: usize = 4 << 20;

/// Bytes per read of a bulk receiver.
const READ: usize = 256 * 1024;

type Results = Rc<RefCell<Shared>>;

fn wrong_bytes() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "received bytes differ from the bytes sent")
}

fn ended_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the service closed the connection")
}

fn check(how: Check, offset: u64, data: &[u8]) -> io::Result<()> {
    let right = match how {
        Check::All => ramp::matches(offset, data),
        Check::Ends => ramp::ends_match(offset, data),
        Check::None => true,
    };
    if right { Ok(()) } else { Err(wrong_bytes()) }
}

fn note_end(results: &Results, error: Option<&io::Error>) {
    if let Some(error) = error {
        results.borrow_mut().failure.get_or_insert_with(|| error.to_string());
    }
}

/// Repeatedly sends a request and waits for its echo. The requests are consecutive parts of the
/// ramp, so the response to another request is noticed.
pub struct Requester {
    results: Results,
    check: Check,
    size: usize,
    /// Offset of the request in the ramp.
    offset: u64,
    sent: usize,
    received: usize,
    started: Option<Instant>,
    buf: Vec<u8>,
}

impl Requester {
    pub fn new(load: &Load, results: Results) -> Requester {
        let size = load.size.max(1);
        let buf = vec![0; size.min(READ)];
        Requester { results, check: load.check, size, offset: 0, sent: 0, received: 0, started: None, buf }
    }

    fn complete(&mut self, started: Instant) {
        let results = &mut *self.results.borrow_mut();
        if self.offset == 0 {
            results.started += 1;
        }
        if results.measuring {
            results.requests += 1;
            results.bytes += self.size as u64;
            let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(MAX_LATENCY);
            results.latency.saturating_record(nanos.max(1));
        }
        self.offset += self.size as u64;
        (self.sent, self.received) = (0, 0);
    }
}

impl Handler for Requester {
    fn on_ready(&mut self, io: &mut dyn StreamIo) -> io::Result<Flow> {
        // Only a few rounds per turn, because responses on other connections are waiting.
        for _ in 0..4 {
            let started = *self.started.get_or_insert_with(Instant::now);
            while self.sent < self.size {
                let data = ramp::from(self.offset + self.sent as u64);
                match io.write(&data[..data.len().min(self.size - self.sent)]) {
                    Ok(len) => self.sent += len,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            while self.received < self.sent {
                let room = self.buf.len().min(self.size - self.received);
                let len = io.read(&mut self.buf[..room])?;
                if len == 0 {
                    return Err(ended_early());
                }
                check(self.check, self.offset + self.received as u64, &self.buf[..len])?;
                self.received += len;
            }
            if self.received == self.size {
                self.complete(started);
                self.started = None;
            }
        }
        Ok(Flow::Again)
    }

    fn on_end(&mut self, error: Option<&io::Error>) {
        note_end(&self.results, error);
    }
}

/// Sends the ramp for as long as it is driven.
pub struct Sender {
    results: Results,
    /// Bytes in a write.
    size: usize,
    offset: u64,
}

impl Sender {
    pub fn new(load: &Load, results: Results) -> Sender {
        Sender { results, size: if load.size == 0 { usize::MAX } else { load.size }, offset: 0 }
    }
}

impl Handler for Sender {
    fn on_ready(&mut self, io: &mut dyn StreamIo) -> io::Result<Flow> {
        let mut moved = 0;
        while moved < SHARE {
            let data = ramp::from(self.offset);
            let len = io.write(&data[..data.len().min(self.size)])?;
            moved += len;
            let results = &mut *self.results.borrow_mut();
            if self.offset == 0 {
                results.started += 1;
            }
            if results.measuring {
                results.bytes += len as u64;
            }
            self.offset += len as u64;
        }
        Ok(Flow::Again)
    }

    fn on_end(&mut self, error: Option<&io::Error>) {
        note_end(&self.results, error);
    }
}

/// Receives the ramp for as long as it is driven.
pub struct Receiver {
    results: Results,
    check: Check,
    offset: u64,
    buf: Vec<u8>,
}

impl Receiver {
    pub fn new(load: &Load, results: Results) -> Receiver {
        let size = if load.size == 0 { READ } else { load.size };
        Receiver { results, check: load.check, offset: 0, buf: vec![0; size] }
    }
}

impl Handler for Receiver {
    fn on_ready(&mut self, io: &mut dyn StreamIo) -> io::Result<Flow> {
        let mut moved = 0;
        while moved < SHARE {
            let len = io.read(&mut self.buf)?;
            if len == 0 {
                return Err(ended_early());
            }
            check(self.check, self.offset, &self.buf[..len])?;
            moved += len;
            let results = &mut *self.results.borrow_mut();
            if self.offset == 0 {
                results.started += 1;
            }
            if results.measuring {
                results.bytes += len as u64;
            }
            self.offset += len as u64;
        }
        Ok(Flow::Again)
    }

    fn on_end(&mut self, error: Option<&io::Error>) {
        note_end(&self.results, error);
    }
}
