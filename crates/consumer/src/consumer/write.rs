//! Writing to a connection from the program's memory or another source.

use super::{Conn, Consumer};
use crate::stream::Source;
use std::io;

impl Consumer {
    /// Queues bytes for sending and returns how many were taken.
    ///
    /// # Errors
    /// `WouldBlock` if none could be taken; otherwise the error that ended the connection.
    #[inline]
    pub fn write(&mut self, conn: Conn, data: &[u8]) -> io::Result<usize> {
        self.write_from(conn, data)
    }

    /// Like [`Consumer::write`], from any source.
    ///
    /// # Errors
    /// Those of [`Consumer::write`].
    #[inline]
    pub fn write_from(&mut self, conn: Conn, data: impl Source) -> io::Result<usize> {
        let entered = self.write_entered(conn);
        if entered == 0 {
            return self.with(conn, |stream, region, pool| stream.write(region, conn.0, data, pool));
        }
        let count = self.queue_marked(conn, data, entered)?;
        self.push(conn);
        Ok(count)
    }

    /// Like [`Consumer::write`], but tells the engine only with the next write or
    /// [`Consumer::push`], because more bytes will follow.
    ///
    /// # Errors
    /// Those of [`Consumer::write`].
    pub fn write_more(&mut self, conn: Conn, data: &[u8]) -> io::Result<usize> {
        self.write_more_from(conn, data)
    }

    /// Like [`Consumer::write_more`], from any source.
    ///
    /// # Errors
    /// Those of [`Consumer::write`].
    pub fn write_more_from(&mut self, conn: Conn, data: impl Source) -> io::Result<usize> {
        let entered = self.write_entered(conn);
        self.queue_marked(conn, data, entered)
    }

    /// Queues bytes without a word to the engine, and notes when; `entered` is 0 if nobody asks.
    fn queue_marked(&mut self, conn: Conn, data: impl Source, entered: u64) -> io::Result<usize> {
        let count = self.with(conn, |stream, region, pool| stream.write_more(region, conn.0, data, pool))?;
        if entered > 0 && count > 0 {
            self.note_copied(conn, entered);
        }
        Ok(count)
    }

    /// Tells the engine about all written bytes.
    pub fn push(&mut self, conn: Conn) {
        // If the connection is not here, there is nothing to report.
        let _ = self.with(conn, |stream, region, pool| {
            stream.push(region, conn.0, pool);
            Ok(())
        });
    }
}
