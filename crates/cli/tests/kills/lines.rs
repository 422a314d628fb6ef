//! One end of a connection: sends the ramp, checks the ramp that it receives, and records progress.

use crate::words::{Report, Role, monotonic_ns};
use baton_apps::services::ramp;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};

/// Bytes per read.
const READ: usize = 1 << 16;
/// Most reads per turn.
const READS: usize = 8;

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum End {
    Fin,
    Reset,
}

/// Counters of one end.
pub struct Ends {
    pub role: Role,
    pub written: u64,
    pub read: u64,
    pub end: Option<(End, u64)>,
    pub watch: Watch,
}

impl Ends {
    pub fn new(role: Role) -> Ends {
        Ends { role, written: 0, read: 0, end: None, watch: Watch::new() }
    }

    /// Writes up to `len` of the next bytes.
    pub fn write(&mut self, len: usize, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        match write(&ramp::from(self.written)[..len]) {
            Ok(count) => self.written += count as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads what has arrived, and checks every byte.
    pub fn read(
        &mut self,
        buffer: &mut Vec<u8>,
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        buffer.resize(READ, 0);
        for _ in 0..READS {
            match read(buffer) {
                Ok(0) => {
                    self.end.get_or_insert((End::Fin, monotonic_ns()));
                    return Ok(());
                }
                Ok(count) => {
                    let right = ramp::matches(self.read, &buffer[..count]);
                    assert!(right, "{count} bytes at {} are not those that were written", self.read);
                    self.read += count as u64;
                    self.watch.on_bytes();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.watch.on_drained();
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        // A connection that never runs empty makes progress, too.
        self.watch.on_drained();
        Ok(())
    }
}

/// Progress of a connection after an event.
pub struct Watch {
    since_ns: u64,
    home: Option<u64>,
    /// True if the connection was not in the kernel at the time of the event.
    away: bool,
    drained: bool,
    bytes: Option<u64>,
    last_ns: u64,
    gap: u64,
}

impl Watch {
    fn new() -> Watch {
        Watch { since_ns: 0, home: Some(0), away: false, drained: true, bytes: Some(0), last_ns: 0, gap: 0 }
    }

    /// Starts to watch for progress after an event at this time. `away` says whether the connection
    /// was outside the kernel, where that matters.
    pub fn begin(&mut self, since_ns: u64, away: bool) {
        let home = (!away).then_some(0);
        *self = Watch { since_ns, home, away, drained: false, bytes: None, last_ns: self.last_ns, gap: 0 };
    }

    fn since(&self) -> u64 {
        monotonic_ns().saturating_sub(self.since_ns)
    }

    pub fn awaits_home(&self) -> bool {
        self.home.is_none()
    }

    pub fn on_home(&mut self) {
        if self.awaits_home() {
            self.home = Some(self.since());
        }
    }

    /// Notes that everything that had arrived before the event has been read.
    fn on_drained(&mut self) {
        self.drained |= self.home.is_some();
    }

    fn on_bytes(&mut self) {
        let now = monotonic_ns();
        if self.last_ns > 0 {
            self.gap = self.gap.max(now - self.last_ns);
        }
        self.last_ns = now;
        if self.drained && self.bytes.is_none() {
            self.bytes = Some(self.since());
        }
    }

    pub fn goes_on(&self) -> bool {
        self.home.is_some() && self.bytes.is_some()
    }

    pub fn tell(&self, report: &mut Report) {
        report.home.push(self.home.filter(|_| self.away));
        report.bytes.push(self.bytes.unwrap_or(u64::MAX));
        report.gap.push(self.gap.max(monotonic_ns() - self.last_ns));
    }
}
