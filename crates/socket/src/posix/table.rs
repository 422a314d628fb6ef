//! The table of descriptors: small numbers, always the lowest free one.

use super::epoll::Epoll;
use super::socket::Socket;
use super::{Answer, Errno, Fd, refuse};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Lowest number given out: programs take lower numbers for standard streams.
const FIRST: Fd = 3;

/// The object behind a descriptor.
pub(super) enum Entry {
    Socket(Box<Socket>),
    Epoll(Box<Epoll>),
}

/// Descriptors in use.
pub(super) struct Table {
    entries: Vec<Option<Entry>>,
    free: BinaryHeap<Reverse<usize>>,
    limit: usize,
}

impl Table {
    pub fn new(limit: u32) -> Table {
        Table { entries: Vec::new(), free: BinaryHeap::new(), limit: limit as usize }
    }

    /// True if all descriptors are in use.
    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.entries.len() >= self.limit
    }

    /// Gives `entry` the lowest free number; fails with `EMFILE` if there is none.
    pub fn insert(&mut self, entry: Entry) -> Answer<Fd> {
        if self.is_full() {
            return refuse(libc::EMFILE);
        }
        let index = self.free.pop().map_or(self.entries.len(), |Reverse(index)| index);
        if index == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[index] = Some(entry);
        Ok(FIRST + index as Fd)
    }

    pub fn remove(&mut self, fd: Fd) -> Answer<Entry> {
        let index = index(fd)?;
        let entry = self.entries.get_mut(index).and_then(Option::take).ok_or(Errno(libc::EBADF))?;
        self.free.push(Reverse(index));
        Ok(entry)
    }

    pub fn get(&self, fd: Fd) -> Answer<&Entry> {
        self.entries.get(index(fd)?).and_then(Option::as_ref).ok_or(Errno(libc::EBADF))
    }

    fn get_mut(&mut self, fd: Fd) -> Answer<&mut Entry> {
        self.entries.get_mut(index(fd)?).and_then(Option::as_mut).ok_or(Errno(libc::EBADF))
    }

    /// Returns a socket; fails with `ENOTSOCK` for an epoll instance.
    pub fn socket(&self, fd: Fd) -> Answer<&Socket> {
        match self.get(fd)? {
            Entry::Socket(socket) => Ok(socket),
            Entry::Epoll(_) => refuse(libc::ENOTSOCK),
        }
    }

    pub fn socket_mut(&mut self, fd: Fd) -> Answer<&mut Socket> {
        match self.get_mut(fd)? {
            Entry::Socket(socket) => Ok(socket),
            Entry::Epoll(_) => refuse(libc::ENOTSOCK),
        }
    }

    /// Returns an epoll instance; fails with `EINVAL` for a socket.
    pub fn epoll_mut(&mut self, fd: Fd) -> Answer<&mut Epoll> {
        match self.get_mut(fd)? {
            Entry::Epoll(epoll) => Ok(epoll),
            Entry::Socket(_) => refuse(libc::EINVAL),
        }
    }

    /// Iterates over all sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.entries.iter().filter_map(|entry| match entry {
            Some(Entry::Socket(socket)) => Some(&**socket),
            _ => None,
        })
    }
}

fn index(fd: Fd) -> Answer<usize> {
    usize::try_from(fd.wrapping_sub(FIRST)).map_err(|_| Errno(libc::EBADF))
}
