//! Sources of the bytes written to a stream: the program's memory, or a piece of a file, which is
//! read directly into the send buffer.

use crate::sys::file;
use baton_engine::region::{ConsumerRegion, Extent};
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;

/// A source of bytes to write.
pub trait Source: Copy {
    /// Upper bound for the number of bytes.
    fn at_most(self) -> usize;

    /// Copies bytes, starting with number `done`, to the start of `to`. Returns how many: fewer
    /// than fit if there are no more, or if no more are available now.
    ///
    /// # Errors
    /// `Unsupported` if the bytes cannot be copied in this way.
    fn put(self, done: usize, region: &ConsumerRegion, to: Extent) -> io::Result<usize>;
}

impl Source for &[u8] {
    fn at_most(self) -> usize {
        <[u8]>::len(self)
    }

    fn put(self, done: usize, region: &ConsumerRegion, to: Extent) -> io::Result<usize> {
        let count = to.len() as usize;
        region.write(to, &self[done..done + count]);
        Ok(count)
    }
}

/// A piece of a file. Only bytes in the page cache are written, so nobody waits for a disk.
#[derive(Clone, Copy, Debug)]
pub struct FilePiece<'a> {
    /// The file to read from.
    pub file: BorrowedFd<'a>,
    /// Offset of its first byte in the file.
    pub at: u64,
    /// Number of bytes.
    pub len: usize,
}

impl Source for FilePiece<'_> {
    fn at_most(self) -> usize {
        self.len
    }

    fn put(self, done: usize, region: &ConsumerRegion, to: Extent) -> io::Result<usize> {
        let read = file::read_cached(self.file, self.at + done as u64, region, to);
        // A full ring is reported as `WouldBlock` elsewhere.
        read.map_err(|_| ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_engine::region::{Layout, Region};
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn a_file_is_read_to_its_place_and_to_no_other() {
        let layout = Layout { qps: 1, queue_depth: 2, requests: 4, data_bytes: 256 };
        let region = ConsumerRegion::new(Region::heap(layout).unwrap());
        let path = std::env::temp_dir().join(format!("baton-source-{}", std::process::id()));
        File::create(&path).unwrap().write_all(&[1, 2, 3, 4, 5]).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let piece = FilePiece { file: file.as_fd(), at: 1, len: 100 };
        let read = piece.put(2, &region, region.extent(64, 100).unwrap());
        // Some file systems cannot tell whether they would have to wait.
        let expected: &[u8] = if read.is_ok() { &[4, 5] } else { &[] };
        assert_eq!(read.unwrap_or(0), expected.len());
        let mut all = [0; 256];
        region.read(region.extent(0, 256).unwrap(), &mut all);
        let mut right = [0; 256];
        right[64..64 + expected.len()].copy_from_slice(expected);
        assert_eq!(all, right);
        assert_eq!(piece.put(4, &region, region.extent(0, 1).unwrap()).unwrap_or(0), 0, "the file has ended");
    }
}
