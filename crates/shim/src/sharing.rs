//! How long a child shares what its parent had when it forked.
//!
//! Each fork has a pair of sockets that are closed on exec: the parent keeps one, the child
//! the other, and so does every child of it. Once all of them have ended or become other
//! programs, the parent's end says that nobody is there, and what is closed on exec is the
//! parent's alone again. But for what a child takes along into another program under a new
//! number: before it does, it sends the inodes of its sockets, 8 bytes each.

use crate::descriptors::{floor, out_of_the_way};
use crate::sys::socket::{identity, is_inherited};
use crate::table::{Locked, locked};
use baton_consumer::held::interrupted;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

/// The ends that this process keeps, as the child of its parents, and their inodes.
static KEPT: Mutex<Vec<(OwnedFd, u64)>> = Mutex::new(Vec::new());

/// Children of one fork, and theirs.
#[derive(Clone)]
pub struct Sharing(Arc<Parents>);

/// The parent's end.
struct Parents {
    end: OwnedFd,
    taken: Mutex<Vec<u64>>,
}

/// The child's end.
pub struct Held(OwnedFd);

/// The same; no other thread has to do with such ends while this lives.
pub struct Frozen {
    end: OwnedFd,
    kept: Locked<'static, Vec<(OwnedFd, u64)>>,
}

/// For a fork that is about to be; none if the process may have no more descriptors.
pub fn begin() -> Option<(Sharing, Held)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (parents, childs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let sharing = Sharing(Arc::new(Parents { end: out_of_the_way(parents), taken: Mutex::default() }));
    Some((sharing, Held(out_of_the_way(childs))))
}

impl Sharing {
    /// True while one of them is what it was.
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

    /// True if another program has a socket from them, as far as [`Sharing::lasts`] heard.
    pub fn took(&self, inode: u64) -> bool {
        locked(&self.0.taken).contains(&inode)
    }
}

impl Held {
    pub fn freeze(self) -> Frozen {
        Frozen { end: self.0, kept: locked(&KEPT) }
    }
}

impl Frozen {
    /// In the child: kept as long as it is this program.
    pub fn keep(mut self) {
        let inode = identity(self.end.as_raw_fd()).map_or(0, |(_, inode)| inode);
        self.kept.push((self.end, inode));
    }
}

/// True if this process may have something to tell a parent.
pub fn is_child() -> bool {
    interrupted() || !locked(&KEPT).is_empty()
}

/// This process, or what it starts, is about to become another program: its parents are told
/// which sockets that gets.
pub fn tell_what_is_taken() {
    if interrupted() {
        return;
    }
    let kept = locked(&KEPT);
    if kept.is_empty() {
        return;
    }
    let sockets: Vec<u8> = descriptors()
        .into_iter()
        .filter(|fd| is_inherited(*fd))
        .filter_map(identity)
        .flat_map(|(_, inode)| inode.to_ne_bytes())
        .collect();
    for (end, inode) in kept.iter() {
        // A program that closes what it does not know may have closed it.
        if identity(end.as_raw_fd()).is_some_and(|(_, now)| now == *inode) {
            let _ = send(end, &sockets, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

/// All of this process.
fn descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return (0..floor()).collect() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_hears_what_was_taken_and_when_nobody_is_there() {
        let (sharing, held) = begin().unwrap();
        assert!(sharing.lasts());
        let inodes = [7u64, u64::MAX].map(u64::to_ne_bytes).concat();
        send(&held.0, &inodes, SendFlags::NOSIGNAL).unwrap();
        assert!(sharing.lasts() && sharing.took(7) && sharing.took(u64::MAX) && !sharing.took(8));
        send(&held.0, &9u64.to_ne_bytes(), SendFlags::NOSIGNAL).unwrap();
        drop(held);
        assert!(!sharing.lasts() && sharing.took(9), "said before the end");
    }
}
