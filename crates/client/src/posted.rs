//! Reads that found nothing lend their buffer to an engine in this program, which places their connection's next bytes
//! there (posted receives, LC §3.3.1). So these are copied once, from the device's memory to the caller.
//!
//! ```text
//!   read, nothing there --> drive the engine, with the buffer --> next frames of the connection --> buffer
//!                                                             --> all other frames              --> rings
//! ```
//!
//! The engine has the buffer only within the call, and under the lock: it has none of a call that sleeps.

use super::batch;
use super::location::{InEngine, Location};
use super::shared::{Inner, Shared};
use super::stream::Stream;
use baton_consumer::consumer::Conn;
use baton_ipc::engine::monotonic;
use std::io;

impl Stream {
    /// Polls the devices, and reads: for a caller that has found nothing to read, and to which something may have
    /// arrived since. This connection's next bytes are placed in `buf`.
    ///
    /// # Errors
    /// Those of a read; `WouldBlock` if there are still no bytes, even on a blocking stream.
    pub fn read_arriving(&self, buf: &mut [u8]) -> io::Result<usize> {
        batch::end();
        let done = self.shared.with(|inner| inner.read_arriving(&self.shared, self.id, buf))?;
        self.shared.note_look_at_pairs();
        done
    }
}

impl Inner {
    /// As [`Stream::read_arriving`].
    pub(super) fn read_arriving(&mut self, shared: &Shared, id: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.clock = monotonic();
        let awaited = self.awaited(id);
        let placed =
            awaited.map_or(0, |(region, conn, position)| self.receive_into(shared, region, conn, position, buf));
        self.receive(shared, awaited.map(|(region, ..)| region));
        self.take_completions(shared);
        if placed > 0 { Ok(placed) } else { self.read(id, buf) }
    }

    /// The queue pair of a connection in an engine of this program, and the stream position of the next byte to read,
    /// if none is there.
    fn awaited(&self, id: u64) -> Option<(u32, Conn, u64)> {
        let connection = self.connection(id)?;
        let &Location::Engine(InEngine { region, conn, stands: false, .. }) = connection.location() else {
            return None;
        };
        let waits = connection.unread.is_empty() && !connection.is_shut_for_reading();
        let position = self.regions.get(&region).filter(|region| waits && !region.dead)?.consumer.awaited(conn)?;
        self.local.iter().any(|local| local.drives(region)).then_some((region, conn, position))
    }

    /// Drives the engine of a region with a buffer for the bytes of a connection from `position` on. Returns how many
    /// of them it holds.
    fn receive_into(&mut self, shared: &Shared, region: u32, conn: Conn, position: u64, buf: &mut [u8]) -> usize {
        let Some(local) = self.local.iter_mut().find(|local| local.drives(region)) else { return 0 };
        let Some(mut posted) = local.runner.posted(region, conn, position, buf) else { return 0 };
        let driven = local.runner.drive(self.clock, true, Some(&mut posted));
        let placed = posted.placed;
        if placed > 0
            && let Some(region) = self.regions.get_mut(&region)
        {
            region.consumer.take_placed(conn, placed);
        }
        if driven.is_err() {
            self.lose_engine_of(shared, region);
        }
        placed
    }
}
