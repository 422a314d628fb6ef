//! Sides of links ([`baton_pair`]) in memory files.
//!
//! ```text
//!  broker                    program X                    program Y
//!  SharedSide::create  --->  open, both its own           open_link(.., X's to read)
//! ```
//!
//! A program gets a descriptor of the other's side that permits reading alone, of a file that its user cannot
//! open again. Neither file can shrink, so no access finds a page missing, whatever the other program does.

use crate::memory::{read_only, sealed_len, sealed_memory};
use crate::sys;
use baton_pair::{Layout, Link, Side};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// One side of a link in a memfd, with the file's descriptor, for the broker.
pub struct SharedSide {
    file: OwnedFd,
    side: Arc<Side>,
}

impl SharedSide {
    /// Makes a side that nobody has used. Its pages exist once they are touched.
    ///
    /// # Errors
    /// Those of `memfd_create(2)` and `mmap(2)`.
    pub fn create(layout: Layout) -> io::Result<SharedSide> {
        let file = sealed_memory("baton-pair", layout.bytes())?;
        let side = sys::memory::new_side(file.as_fd(), layout.bytes(), layout)?;
        Ok(SharedSide { file, side })
    }

    /// Maps a side that a predecessor made.
    ///
    /// # Errors
    /// `InvalidInput` if the file holds no side or could still shrink; otherwise those of `mmap(2)`.
    pub fn open(file: OwnedFd) -> io::Result<SharedSide> {
        let side = sys::memory::side(file.as_fd(), sealed_len(&file)?, true)?;
        Ok(SharedSide { file, side })
    }

    /// The side that lies in this memory.
    pub fn side(&self) -> &Arc<Side> {
        &self.side
    }

    /// A descriptor of the file that permits reading alone, for the program at the other side.
    ///
    /// # Errors
    /// Those of `open(2)`, for example without `/proc`.
    pub fn read_only(&self) -> io::Result<OwnedFd> {
        read_only(self.file.as_fd())
    }
}

impl AsFd for SharedSide {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Joins the side that this program writes and the one that it may read.
///
/// # Errors
/// `InvalidInput` if the files hold no two sides of a link or could still shrink; otherwise those of `mmap(2)`.
pub fn open_link(ours: &OwnedFd, theirs: &OwnedFd) -> io::Result<Link> {
    let ours = sys::memory::side(ours.as_fd(), sealed_len(ours)?, true)?;
    let theirs = sys::memory::side(theirs.as_fd(), sealed_len(theirs)?, false)?;
    Link::new(ours, theirs).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))
}

/// A side that this program only follows ([`baton_pair::Follower`]), which writes nothing.
///
/// # Errors
/// As for [`open_link`].
pub fn read_side(file: &OwnedFd) -> io::Result<Arc<Side>> {
    sys::memory::side(file.as_fd(), sealed_len(file)?, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_pair::Follower;
    use std::num::NonZeroU64;

    #[test]
    fn bytes_go_from_one_program_to_the_other_and_only_the_owner_can_write() {
        let layout = Layout::new(4, 4096).unwrap();
        let sides = [(); 2].map(|()| SharedSide::create(layout).unwrap());
        let own = sides.each_ref().map(|side| side.as_fd().try_clone_to_owned().unwrap());
        let seen = sides.each_ref().map(|side| side.read_only().unwrap());
        let links = [open_link(&own[0], &seen[1]).unwrap(), open_link(&own[1], &seen[0]).unwrap()];
        assert!(open_link(&seen[0], &own[1]).is_err(), "a program cannot write to the other's side");
        let number = NonZeroU64::MIN;
        let [mut one, mut other] = links.each_ref().map(|link| link.begin(2, number).unwrap());
        assert_eq!(one.write(b"through memory").unwrap().0, 14);
        let mut got = [0; 20];
        assert_eq!(other.read(&mut got).unwrap().0, 14);
        assert_eq!(&got[..14], b"through memory");
        // A follower only reads.
        let mut follower = Follower::new(seen.map(|file| read_side(&file).unwrap()), 2, number).unwrap();
        assert_eq!(follower.look().unwrap().course.written, [14, 0]);
        assert_eq!(follower.read(0, 14, &mut got).unwrap().count, 14);
        assert_eq!(&got[..14], b"through memory");
    }
}
