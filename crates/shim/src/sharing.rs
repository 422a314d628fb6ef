//! Finds out how long children share the descriptors that their parent had when it forked.
//!
//! Each fork makes a pair of sockets that are closed on exec. The parent keeps one end, the child
//! the other, which its own children inherit. Once all of them have ended or executed other
//! programs, the parent's end reports the end of the stream, and the parent's close-on-exec
//! descriptors are its own again. An exception is a socket that a child duplicates to another
//! number and passes to another program: before the exec the child sends the inodes of the
//! sockets that the program inherits, 8 bytes each.

use crate::descriptors::{self, out_of_the_way};
use crate::locks::{Locked, locked};
use crate::os::socket::{identity, is_inherited};
use baton_consumer::held::interrupted;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// The ends that this process has as a child of its parents, and the inodes of these ends.
static KEPT: Mutex<Vec<(OwnedFd, u64)>> = Mutex::new(Vec::new());

/// The children of one fork, and their children.
#[derive(Clone)]
pub struct Sharing(Arc<ParentEnd>);

/// The parent's end.
struct ParentEnd {
    end: OwnedFd,
    taken: Mutex<Vec<u64>>,
}

/// The child's end.
pub struct ChildEnd(OwnedFd);

/// The child's end during a fork, with the lock on [`KEPT`].
pub struct FrozenEnd {
    end: OwnedFd,
    kept: Locked<'static, Vec<(OwnedFd, u64)>>,
}

/// Makes the pair for a fork. Returns `None` if the process has reached its limit of descriptors.
pub fn begin() -> Option<(Sharing, ChildEnd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (parent_end, child_end) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let sharing = Sharing(Arc::new(ParentEnd { end: out_of_the_way(parent_end), taken: Mutex::default() }));
    Some((sharing, ChildEnd(out_of_the_way(child_end))))
}

impl Sharing {
    /// True while one of the children still runs the same program.
    pub fn lasts(&self) -> bool {
        let mut taken = locked(&self.0.taken);
        let mut bytes = [0; 512];
        loop {
            match recv(&self.0.end, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return false,
                Ok((count, _)) => {
                    let (inodes, _) = bytes[..count].as_chunks::<8>();
                    taken.extend(inodes.iter().map(|inode| u64::from_ne_bytes(*inode)));
                }
                Err(_) => return true,
            }
        }
    }

    /// True if a child passed the socket to another program, as of the last [`Sharing::lasts`].
    pub fn took(&self, inode: u64) -> bool {
        locked(&self.0.taken).contains(&inode)
    }
}

impl ChildEnd {
    pub fn freeze(self) -> FrozenEnd {
        FrozenEnd { end: self.0, kept: locked(&KEPT) }
    }
}

impl FrozenEnd {
    /// Called in the child: keeps the end until this process executes another program.
    pub fn keep(mut self) {
        let inode = identity(self.end.as_raw_fd()).map_or(0, |(_, inode)| inode);
        self.kept.push((self.end, inode));
    }
}

/// True if this process has parents to report to, or if that cannot be checked now.
pub fn is_child() -> bool {
    interrupted() || !locked(&KEPT).is_empty()
}

/// Called before this process or a child of it executes another program: reports to the parents which
/// sockets that program inherits.
pub fn report_inherited() {
    if interrupted() {
        return;
    }
    let kept = locked(&KEPT);
    if kept.is_empty() {
        return;
    }
    let sockets: Vec<u8> = descriptors::open()
        .into_iter()
        .filter(|fd| is_inherited(*fd))
        .filter_map(identity)
        .flat_map(|(_, inode)| inode.to_ne_bytes())
        .collect();
    for (end, inode) in kept.iter() {
        // The program may have closed this descriptor without knowing it.
        if identity(end.as_raw_fd()).is_some_and(|(_, now)| now == *inode) {
            let _ = send(end, &sockets, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_learns_which_sockets_were_taken_and_when_no_child_is_left() {
        let (sharing, held) = begin().unwrap();
        assert!(sharing.lasts());
        let inodes = [7u64, u64::MAX].map(u64::to_ne_bytes).concat();
        send(&held.0, &inodes, SendFlags::NOSIGNAL).unwrap();
        assert!(sharing.lasts() && sharing.took(7) && sharing.took(u64::MAX) && !sharing.took(8));
        send(&held.0, &9u64.to_ne_bytes(), SendFlags::NOSIGNAL).unwrap();
        drop(held);
        assert!(!sharing.lasts() && sharing.took(9), "the inode was sent before the end");
    }
}
