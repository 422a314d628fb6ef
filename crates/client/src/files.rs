//! Sending what lies in a file without a copy on the way: it is read to where the engine sends
//! from.

use super::line::Whereabouts;
use super::shared::{Inner, in_engine};
use super::stream::Stream;
use baton_consumer::stream::FilePiece;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;

impl Stream {
    /// Writes what there is room for of `len` bytes of a file, from byte `at` on, as one; with
    /// `more` it waits for what is written next (`MSG_MORE`). Fewer at the end of the file,
    /// and where the system does not have it in memory. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; `Unsupported` if it cannot be read so, or the
    /// connection is in no engine: then it is to be read, and written; else as a write's.
    pub fn send_file(&self, file: BorrowedFd<'_>, at: u64, len: usize, more: bool) -> io::Result<usize> {
        self.shared.with(|inner| inner.send_file(self.id, FilePiece { file, at, len }, more))?
    }
}

impl Inner {
    fn send_file(&mut self, id: u64, piece: FilePiece<'_>, more: bool) -> io::Result<usize> {
        let Inner { lines, regions, .. } = self;
        let line = lines.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        let Whereabouts::Engine { region, conn } = line.at else { return Err(ErrorKind::Unsupported.into()) };
        let sent = in_engine(regions, region, conn, |consumer| {
            line.flush_to(consumer, conn)?;
            line.write_engine(consumer, conn, piece, more)
        });
        if line.holds_back() {
            self.note_held();
        }
        sent
    }
}
