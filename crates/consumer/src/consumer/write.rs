//! Writing to a connection: bytes of the program's, or another source's.

use super::{Conn, Consumer};
use crate::stream::Source;
use std::io;

impl Consumer {
    /// Queues bytes for sending and returns how many were taken.
    ///
    /// # Errors
    /// `WouldBlock` if none could be taken; else what ended the connection.
    #[inline]
    pub fn write(&mut self, conn: Conn, data: &[u8]) -> io::Result<usize> {
        self.write_from(conn, data)
    }

    /// As [`Consumer::write`], from any source.
    ///
    /// # Errors
    /// As for [`Consumer::write`].
    #[inline]
    pub fn write_from(&mut self, conn: Conn, data: impl Source) -> io::Result<usize> {
        self.with(conn, |stream, region, pool| stream.write(region, conn.0, data, pool))
    }

    /// As [`Consumer::write`], but the engine is told with the next write, or by
    /// [`Consumer::push`]: more is to follow.
    ///
    /// # Errors
    /// As for [`Consumer::write`].
    pub fn write_more(&mut self, conn: Conn, data: &[u8]) -> io::Result<usize> {
        self.write_more_from(conn, data)
    }

    /// As [`Consumer::write_more`], from any source.
    ///
    /// # Errors
    /// As for [`Consumer::write`].
    pub fn write_more_from(&mut self, conn: Conn, data: impl Source) -> io::Result<usize> {
        self.with(conn, |stream, region, pool| stream.write_more(region, conn.0, data, pool))
    }

    /// Tells the engine of all that was written.
    pub fn push(&mut self, conn: Conn) {
        // Of a connection that is not here there is nothing to be told.
        let _ = self.with(conn, |stream, region, pool| {
            stream.push(region, conn.0, pool);
            Ok(())
        });
    }
}
