//! Reads whose buffer an engine of this program fills itself (posted receives, LC §3.3.1).

use super::{Conn, Consumer};

impl Consumer {
    /// Stream position of the next byte to read, if none has arrived and more may.
    pub fn awaited(&self, conn: Conn) -> Option<u64> {
        self.stream(conn)?.awaited()
    }

    /// The engine has placed the next `count` bytes in the program's memory: they are read. To be called before
    /// [`Consumer::poll`].
    pub fn take_placed(&mut self, conn: Conn, count: usize) {
        let entered = self.read_entered(conn);
        let taken = self.with(conn, |stream, region, pool| {
            stream.take_placed(region, conn.0, count, pool);
            Ok(())
        });
        if entered > 0 && taken.is_ok() {
            self.note_read(conn, entered, count);
        }
    }
}
