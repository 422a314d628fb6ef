//! Sends a file's content without an intermediate copy: the file is read directly into the buffer
//! that the engine sends from.

use super::region::in_engine;
use super::shared::Inner;
use super::stream::Stream;
use baton_consumer::stream::FilePiece;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;

impl Stream {
    /// Writes up to `len` bytes of a file, starting at offset `at`, as one write. With `more`, the
    /// bytes wait for the next write (`MSG_MORE`). Fewer bytes are written if there is less space,
    /// at the end of the file, and where the file is not in the page cache. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` if there is no space; `Unsupported` if the file cannot be read this way or no
    /// engine runs the connection, in which case the caller must read and write; otherwise those of
    /// a write.
    pub fn send_file(&self, file: BorrowedFd<'_>, at: u64, len: usize, more: bool) -> io::Result<usize> {
        self.shared.with(|inner| inner.send_file(self.id, FilePiece { file, at, len }, more))?
    }
}

impl Inner {
    fn send_file(&mut self, id: u64, piece: FilePiece<'_>, more: bool) -> io::Result<usize> {
        let Inner { connections, regions, .. } = self;
        let connection = connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        let there = connection.in_engine().filter(|_| !connection.stands());
        let (region, conn) = there.ok_or(ErrorKind::Unsupported)?;
        let sent = in_engine(regions, region, conn, |consumer| {
            connection.flush_to(consumer, conn)?;
            connection.write_engine(consumer, conn, piece, more)
        });
        if connection.holds_back() {
            self.note_held();
        }
        sent
    }
}
