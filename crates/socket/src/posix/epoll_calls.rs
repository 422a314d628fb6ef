//! The calls of `epoll(7)`.

use super::epoll::{Epoll, Item};
use super::socket::Socket;
use super::table::Entry;
use super::{Answer, Fd, Posix, refuse};
use libc::c_int;

const EDGE: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;

impl Posix {
    /// `epoll_create1(2)`.
    ///
    /// # Errors
    /// `EINVAL`, `EMFILE`.
    pub fn epoll_create(&mut self, flags: c_int) -> Answer<Fd> {
        if flags & !libc::EPOLL_CLOEXEC != 0 {
            return refuse(libc::EINVAL);
        }
        self.table.insert(Entry::Epoll(Box::default()))
    }

    /// `epoll_ctl(2)`. Only sockets can be watched.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL`, `EPERM` for an epoll instance, `EEXIST`, `ENOENT`.
    pub fn epoll_ctl(&mut self, epfd: Fd, op: c_int, fd: Fd, events: u32, data: u64) -> Answer<()> {
        if matches!(self.table.get(fd)?, Entry::Epoll(_)) {
            self.table.epoll_mut(epfd)?;
            return refuse(if fd == epfd { libc::EINVAL } else { libc::EPERM });
        }
        self.last_serial += 1;
        let item = Item { events, data, serial: self.last_serial, queued: false, off: false };
        let epoll = self.table.epoll_mut(epfd)?;
        let known = epoll.items.contains_key(&fd);
        match (op, known) {
            (libc::EPOLL_CTL_ADD, true) => return refuse(libc::EEXIST),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => return refuse(libc::ENOENT),
            (libc::EPOLL_CTL_DEL, true) => {
                epoll.items.remove(&fd);
                self.table.socket_mut(fd)?.watchers.retain(|watcher| *watcher != epfd);
                return Ok(());
            }
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _) => {
                epoll.items.insert(fd, item);
            }
            _ => return refuse(libc::EINVAL),
        }
        if !known {
            self.table.socket_mut(fd)?.watchers.push(epfd);
        }
        // A descriptor that is ready already counts as an edge.
        let mask = self.mask(fd);
        self.table.epoll_mut(epfd)?.queue(fd, mask);
        Ok(())
    }

    /// Returns at most `max` ready descriptors of an instance: events and the caller's data.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL`.
    pub fn epoll_ready(&mut self, epfd: Fd, max: usize) -> Answer<Vec<(u32, u64)>> {
        let mut epoll = std::mem::take(self.table.epoll_mut(epfd)?);
        let mut found = Vec::new();
        for _ in 0..epoll.ready.len() {
            if found.len() >= max {
                break;
            }
            let Some((fd, serial)) = epoll.ready.pop_front() else { break };
            let Some(item) = epoll.items.get_mut(&fd).filter(|item| item.serial == serial) else { continue };
            let mask = self.mask(fd) & item.wanted();
            item.queued = false;
            if mask == 0 {
                continue;
            }
            found.push((mask, item.data));
            if item.events & ONESHOT != 0 {
                item.off = true;
            } else if item.events & EDGE == 0 {
                item.queued = true;
                epoll.ready.push_back((fd, serial));
            }
        }
        *self.table.epoll_mut(epfd)? = epoll;
        Ok(found)
    }

    /// Tells the instances that watch a descriptor about new events.
    pub(super) fn notify(&mut self, fd: Fd, edges: u32) {
        let Ok(socket) = self.table.socket_mut(fd) else { return };
        if edges == 0 || socket.watchers.is_empty() {
            return;
        }
        let watchers = std::mem::take(&mut socket.watchers);
        for epfd in &watchers {
            if let Ok(epoll) = self.table.epoll_mut(*epfd) {
                epoll.queue(fd, edges);
            }
        }
        if let Ok(socket) = self.table.socket_mut(fd) {
            socket.watchers = watchers;
        }
    }

    /// Removes a closed socket from all instances.
    pub(super) fn leave_epolls(&mut self, fd: Fd, socket: &Socket) {
        for epfd in &socket.watchers {
            if let Ok(epoll) = self.table.epoll_mut(*epfd) {
                epoll.items.remove(&fd);
            }
        }
    }

    /// Removes all registrations of a closed instance.
    pub(super) fn unwatch(&mut self, epfd: Fd, epoll: &Epoll) {
        for fd in epoll.items.keys() {
            if let Ok(socket) = self.table.socket_mut(*fd) {
                socket.watchers.retain(|watcher| *watcher != epfd);
            }
        }
    }
}
