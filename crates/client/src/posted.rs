//! Reads that found nothing lend their buffer to an engine in this program, which places their connection's next bytes
//! there (posted receives, LC §3.3.1). So these are copied once, from the device's memory to the caller.
//!
//! ```text
//!   read, nothing there --> drive the engine, with the buffer --> next frames of the connection --> buffer
//!                                                             --> all other frames              --> rings
//! ```
//!
//! The engine has the buffer only within the call, and under both locks: it has none of a call that sleeps, and no other
//! thread reads from the connection meanwhile. If another thread drives the engines, the call waits for it instead.

use super::batch;
use super::location::{InEngine, Location};
use super::shared::{Inner, Shared};
use super::stream::Stream;
use baton_consumer::consumer::Conn;
use baton_ipc::engine::monotonic;
use std::io;

/// The bytes that a read waits for.
#[derive(Clone, Copy)]
struct Awaited {
    region: u32,
    conn: Conn,
    /// Stream position of the first.
    position: u64,
}

impl Stream {
    /// Polls the devices, and reads: for a caller that has found nothing to read, and to which something may have
    /// arrived since. This connection's next bytes are placed in `buf`.
    ///
    /// # Errors
    /// Those of a read; `WouldBlock` if there are still no bytes, even on a blocking stream.
    pub fn read_arriving(&self, buf: &mut [u8]) -> io::Result<usize> {
        batch::end();
        let done = match self.shared.receive_into(self.id, buf)? {
            0 => self.shared.with(|inner| inner.read(self.id, buf))?,
            placed => Ok(placed),
        };
        self.shared.note_look_at_pairs();
        done
    }
}

impl Shared {
    /// Polls the devices and takes in what came. Returns how many of a connection's next bytes are in `buf`.
    pub(super) fn receive_into(&self, id: u64, buf: &mut [u8]) -> io::Result<usize> {
        let placed = self.with(|inner| inner.place(self, id, buf))?;
        if placed.is_none() {
            self.look_in_batch();
        }
        Ok(placed.unwrap_or(0))
    }
}

impl Inner {
    /// Drives this program's engine with a buffer for a connection's next bytes, and takes in the results. Returns how
    /// many it holds; `None` if the devices are to be polled without.
    fn place(&mut self, shared: &Shared, id: u64, buf: &mut [u8]) -> Option<usize> {
        let Awaited { region, conn, position } = self.awaited(id)?;
        let mut list = shared.engines.try_lock()?;
        let engine = list.iter().find(|local| local.drives(region))?;
        let mut posted = engine.runner.posted(region, conn, position, buf)?;
        let lost = shared.drive_all(&mut list, monotonic(), true, Some((region, &mut posted)));
        let placed = posted.placed;
        if placed > 0
            && let Some(region) = self.regions.get_mut(&region)
        {
            region.consumer.take_placed(conn, placed);
        }
        drop(list);
        shared.note_look();
        self.hear_driven(shared, lost);
        Some(placed)
    }

    /// The bytes that a read of a connection in an engine of this program waits for, if none are there.
    fn awaited(&self, id: u64) -> Option<Awaited> {
        let connection = self.connection(id)?;
        let &Location::Engine(InEngine { region, conn, stands: false, .. }) = connection.location() else {
            return None;
        };
        let waits = connection.unread.is_empty() && !connection.is_shut_for_reading();
        let there = self.regions.get(&region).filter(|region| waits && !region.dead && region.is_inside())?;
        Some(Awaited { region, conn, position: there.consumer.awaited(conn)? })
    }
}
