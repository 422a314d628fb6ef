//! Where the time of the messages of kernel connections goes, by layer.
//!
//! ```text
//!   kernel functions, or tracepoints --> BPF programs --> SPANS, a slot a connection --Watch::read--> Table
//!                         (latency.c)       |  state of a message, with its socket
//!                                           +--> CONNECTIONS: whose slot it is, and what was not followed
//! ```
//!
//! The programs (`bpf/programs/latency.c`) are attached while a [`Watch`] exists. Once it is dropped, or its
//! process has died, nothing of it is left in the kernel. `docs/design/latency.md` has the points.
//!
//! A connection takes a slot with its first call to send or to receive. Slots are bounded; the connections
//! beyond are counted. When a connection closes, the next reading keeps what it had and frees its slot.

mod error;
mod maps;
mod points;
mod wanted;

pub use error::LatencyError;
pub use maps::{Unfollowed, Watched};
pub use points::{By, Sight, finding, sights};
pub use wanted::Wanted;

use aya::{Btf, Ebpf};
use baton_latency::Table;
use maps::Maps;
use std::collections::VecDeque;

/// The slots of a watch that is not for one connection. Each takes 70 KB of the kernel's memory.
pub const SLOTS: u32 = 256;

/// The most connections without a slot that a watch counts (`LEFT_OUT_MAX` in `latency.h`).
pub const LEFT_OUT_MAX: u64 = 65_536;

/// All that a watch has seen so far.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The connections with a slot, and those that closed last.
    pub connections: Vec<Watched>,
    /// The sums of connections that closed before those.
    pub earlier: Table,
    /// How many connections that is.
    pub earlier_count: u64,
    /// Connections for which there was no slot, counted up to [`LEFT_OUT_MAX`].
    pub left_out: u64,
}

/// Watches connections of the kernel until it is dropped.
pub struct Watch {
    maps: Maps,
    closed: VecDeque<Watched>,
    earlier: Table,
    earlier_count: u64,
    sights: Vec<Sight>,
    slots: u32,
    /// The programs, with their attachments.
    _programs: Ebpf,
}

impl Watch {
    /// Starts to watch, with room for `slots` connections at a time (at least 1).
    ///
    /// # Errors
    /// [`LatencyError`] with the remedy: no privileges, no BTF, or no point of either way is to be had.
    pub fn start(wanted: &Wanted, slots: u32) -> Result<Watch, LatencyError> {
        let slots = slots.max(1);
        let mut programs = points::load(&wanted.as_program_reads()?, slots)?;
        let maps = Maps::open(&mut programs, slots)?;
        let chosen = points::Chosen::of(&mut programs, &btf()?)?;
        chosen.attach(&mut programs)?;
        let sights = chosen.sights;
        let (closed, earlier) = (VecDeque::new(), Table::default());
        Ok(Watch { maps, closed, earlier, earlier_count: 0, sights, slots, _programs: programs })
    }

    /// How each way is seen.
    pub fn sights(&self) -> &[Sight] {
        &self.sights
    }

    /// Reads all that was seen so far, and frees the slots of closed connections.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn read(&mut self) -> Result<Reading, LatencyError> {
        let mut connections = Vec::new();
        for watched in self.maps.watched()? {
            if watched.closed {
                self.maps.free(watched.slot)?;
                self.closed.push_back(watched);
            } else {
                connections.push(watched);
            }
        }
        while self.closed.len() > self.slots as usize {
            let oldest = self.closed.pop_front().map(|watched| watched.table).unwrap_or_default();
            self.earlier.add(&oldest);
            self.earlier_count += 1;
        }
        connections.extend(self.closed.iter().cloned());
        let (earlier, earlier_count) = (self.earlier.clone(), self.earlier_count);
        Ok(Reading { connections, earlier, earlier_count, left_out: self.maps.left_out()? })
    }
}

/// The kernel's description of its own types and functions.
fn btf() -> Result<Btf, LatencyError> {
    Btf::from_sys_fs().map_err(|error| LatencyError::NoBtf { what: baton_port::error::chain(&error) })
}
