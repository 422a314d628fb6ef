//! The calls that create, name, connect and close sockets.

use super::Fd;
use super::socket::{self, Listening, Socket, State};
use super::table::Entry;
use super::{ANSWER_TURNS, Answer, Errno, Posix, refuse};
use baton_engine::region::Identity;
use baton_tcp::time::Duration;
use libc::c_int;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};

/// Longest accept queue, the value of Linux's `somaxconn`.
const BACKLOG_MAX: usize = 4096;

/// Ports for sockets that name none, as in Linux.
const EPHEMERAL: std::ops::Range<u16> = 32_768..61_000;

/// The direction that a blocking call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// `accept`, `recv`.
    Read,
    /// `connect`, `send`.
    Write,
}

impl Posix {
    /// `socket(2)` for TCP over IPv4 or IPv6.
    ///
    /// # Errors
    /// `EAFNOSUPPORT`, `EPROTOTYPE`, `EPROTONOSUPPORT`, `EINVAL`, `EMFILE`.
    pub fn socket(&mut self, domain: c_int, kind: c_int, protocol: c_int) -> Answer<Fd> {
        let v6 = match domain {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return refuse(libc::EAFNOSUPPORT),
        };
        let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        match kind & !flags {
            libc::SOCK_STREAM if protocol == 0 || protocol == libc::IPPROTO_TCP => {}
            libc::SOCK_STREAM => return refuse(libc::EPROTONOSUPPORT),
            libc::SOCK_DGRAM | libc::SOCK_RAW | libc::SOCK_SEQPACKET => return refuse(libc::EPROTOTYPE),
            _ => return refuse(libc::EINVAL),
        }
        let socket = Socket::new(v6, flags & libc::SOCK_NONBLOCK != 0);
        self.table.insert(Entry::Socket(Box::new(socket)))
    }

    /// `bind(2)`. Port 0 takes a free port immediately.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`, `EINVAL` if the socket has a name, `EAFNOSUPPORT`, `EADDRNOTAVAIL`,
    /// `EADDRINUSE`.
    pub fn bind(&mut self, fd: Fd, addr: SocketAddr) -> Answer<()> {
        let socket = self.table.socket(fd)?;
        if socket.bound.is_some() || !matches!(socket.state, State::Fresh) {
            return refuse(libc::EINVAL);
        }
        let addr = within_family(socket.v6, addr)?;
        if !addr.ip().is_unspecified() && !self.is_ours(addr.ip()) {
            return refuse(libc::EADDRNOTAVAIL);
        }
        let (reuse, v6only) = (socket.options.reuse_address, socket.options.v6only);
        let addr = if addr.port() != 0 {
            if self.is_taken(addr, reuse, v6only) {
                return refuse(libc::EADDRINUSE);
            }
            addr
        } else {
            self.free_port(addr, v6only)?
        };
        self.table.socket_mut(fd)?.bound = Some(addr);
        Ok(())
    }

    fn is_ours(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|cidr| cidr.addr.ip() == ip)
    }

    /// True if another socket's name conflicts. Two sockets with `SO_REUSEADDR` may share a name
    /// while neither listens.
    fn is_taken(&self, addr: SocketAddr, reuse: bool, v6only: bool) -> bool {
        self.table.sockets().any(|other| {
            let Some(bound) = other.bound.filter(|bound| bound.port() == addr.port()) else { return false };
            let may_share = reuse && other.options.reuse_address && !matches!(other.state, State::Listening(_));
            overlap(addr, v6only, bound, other.options.v6only) && !may_share
        })
    }

    fn free_port(&mut self, addr: SocketAddr, v6only: bool) -> Answer<SocketAddr> {
        let count = EPHEMERAL.end - EPHEMERAL.start;
        for _ in 0..count {
            self.last_port = self.last_port.wrapping_add(1);
            let addr = SocketAddr::new(addr.ip(), EPHEMERAL.start + self.last_port % count);
            if !self.is_taken(addr, false, v6only) {
                return Ok(addr);
            }
        }
        refuse(libc::EADDRINUSE)
    }

    /// `listen(2)`. On a listening socket it changes the backlog.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`, `EINVAL` if the socket is connected, `EADDRINUSE`, `ENOBUFS`.
    pub fn listen(&mut self, fd: Fd, backlog: c_int) -> Answer<()> {
        let backlog = usize::try_from(backlog).unwrap_or(0).clamp(1, BACKLOG_MAX);
        let socket = self.table.socket_mut(fd)?;
        match &mut socket.state {
            State::Fresh => {}
            State::Listening(listening) => {
                listening.backlog = backlog;
                return Ok(());
            }
            _ => return refuse(libc::EINVAL),
        }
        if socket.bound.is_none() {
            let any = SocketAddr::new(any(socket.v6), 0);
            self.bind(fd, any)?;
        }
        let socket = self.table.socket(fd)?;
        let (bits, addr) = (socket.options.bits(), socket.bound.unwrap_or(SocketAddr::new(any(socket.v6), 0)));
        let listener = self.asking(|host| host.listen_with(addr, backlog as u32, bits))?;
        self.by_listener.insert(listener.0, fd);
        let listening = Listening { listener, answer: None, queue: VecDeque::new(), backlog };
        self.table.socket_mut(fd)?.state = State::Listening(listening);
        for _ in 0..ANSWER_TURNS {
            self.turn()?;
            match self.listening_of(listener.0).and_then(|listening| listening.answer) {
                None => {}
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => return self.unlisten(fd).and(Err(error)),
            }
        }
        self.unlisten(fd)?;
        refuse(libc::ENOBUFS)
    }

    /// Stops listening and resets connections that were not accepted.
    fn unlisten(&mut self, fd: Fd) -> Answer<()> {
        let socket = self.table.socket_mut(fd)?;
        if let State::Listening(listening) = std::mem::replace(&mut socket.state, State::Fresh) {
            self.drop_listener(listening)?;
        }
        Ok(())
    }

    fn drop_listener(&mut self, listening: Listening) -> Answer<()> {
        self.by_listener.remove(&listening.listener.0);
        for conn in listening.queue {
            self.host.abort(conn);
        }
        self.asking(|host| host.unlisten(listening.listener))
    }

    /// `accept4(2)`: returns the next connection and its peer's address.
    ///
    /// # Errors
    /// `EAGAIN` if no connection is waiting; `EBADF`, `ENOTSOCK`, `EINVAL`, `EMFILE`.
    pub fn accept(&mut self, fd: Fd, flags: c_int) -> Answer<(Fd, SocketAddr)> {
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return refuse(libc::EINVAL);
        }
        let full = self.table.is_full();
        let listener = self.table.socket_mut(fd)?;
        let State::Listening(listening) = &mut listener.state else { return refuse(libc::EINVAL) };
        if listening.queue.is_empty() {
            return refuse(libc::EAGAIN);
        }
        if full {
            return refuse(libc::EMFILE);
        }
        let Some(conn) = listening.queue.pop_front() else { return refuse(libc::EAGAIN) };
        let mut socket = Socket::new(listener.v6, flags & libc::SOCK_NONBLOCK != 0);
        socket.options = listener.options.inherited();
        socket.state = State::Open(conn);
        if let Some(stream) = self.host.stream(conn) {
            let error = stream.is_closed().then(|| self.host.error(conn)).flatten();
            socket.look(stream, error.map(Errno::from), true);
        }
        let v6 = socket.v6;
        let accepted = self.table.insert(Entry::Socket(Box::new(socket)))?;
        self.set_owner(conn, Some(accepted));
        self.apply_options(accepted);
        let identity = self.host.identity(conn).unwrap_or_default();
        Ok((accepted, remote_name(v6, &identity)))
    }

    /// `connect(2)`: starts connecting, or reports the state of the attempt.
    ///
    /// # Errors
    /// `EINPROGRESS` after starting, `EALREADY` during the attempt, `EISCONN` once success has been
    /// reported; the attempt's error, once. Otherwise `EBADF`, `ENOTSOCK`, `EAFNOSUPPORT`,
    /// `ENETUNREACH`, `EADDRNOTAVAIL`, `EADDRINUSE`, `ENOBUFS`.
    pub fn connect(&mut self, fd: Fd, addr: SocketAddr) -> Answer<()> {
        let socket = self.table.socket_mut(fd)?;
        match &socket.state {
            State::Opening(_) => return refuse(libc::EALREADY),
            State::Listening(_) => return refuse(libc::EISCONN),
            State::Open(conn) => {
                let established = self.host.stream(*conn).is_none_or(|stream| stream.is_established());
                return match (established, socket.connect_unreported) {
                    (false, _) => refuse(libc::EALREADY),
                    (true, true) => {
                        socket.connect_unreported = false;
                        socket.error.take().map_or(Ok(()), Err)
                    }
                    (true, false) => refuse(libc::EISCONN),
                };
            }
            State::Fresh => {}
        }
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let peer = within_family(socket.v6, addr)?;
        let (local, bits) = (socket.bound, socket.options.bits());
        let attempt = self.asking(|host| host.connect_with(peer, local, bits))?;
        self.by_attempt.insert(attempt.0, fd);
        let fresh = self.table.socket(fd)?;
        let (v6, nonblocking) = (fresh.v6, fresh.nonblocking);
        let mut socket = Socket::new(v6, nonblocking);
        let old = self.table.socket_mut(fd)?;
        socket.options = old.options.clone();
        socket.bound = old.bound;
        socket.watchers = std::mem::take(&mut old.watchers);
        socket.state = State::Opening(attempt);
        socket.peer = Some(peer);
        socket.connect_unreported = true;
        *old = socket;
        for _ in 0..ANSWER_TURNS {
            self.turn()?;
            if !matches!(self.table.socket(fd)?.state, State::Opening(_)) {
                break;
            }
        }
        // Report an attempt that failed immediately.
        match &mut *self.table.socket_mut(fd)? {
            Socket { state: State::Fresh, error, .. } => Err(error.take().unwrap_or(Errno(libc::ECONNABORTED))),
            _ => refuse(libc::EINPROGRESS),
        }
    }

    /// `shutdown(2)`.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`, `ENOTCONN`.
    pub fn shutdown(&mut self, fd: Fd, how: Shutdown) -> Answer<()> {
        let socket = self.table.socket_mut(fd)?;
        let conn = match socket.state {
            State::Listening(_) if how != Shutdown::Write => return self.unlisten(fd),
            State::Open(conn) => conn,
            _ => return refuse(libc::ENOTCONN),
        };
        if !self.host.stream(conn).is_some_and(|stream| stream.is_established() && !stream.is_closed()) {
            return refuse(libc::ENOTCONN);
        }
        let (read, write) = (how != Shutdown::Write, how != Shutdown::Read);
        socket.shut_read |= read;
        if write && !socket.shut_write {
            socket.shut_write = true;
            self.asking(|host| match host.shutdown(conn) {
                Err(error) if error.kind() == std::io::ErrorKind::NotConnected => Ok(()),
                done => done,
            })?;
        }
        self.notify(fd, socket::ALL);
        Ok(())
    }

    /// `close(2)`. Bytes that wait to be sent are still sent. A connection with unread bytes, or
    /// with `SO_LINGER` of 0 seconds, is reset.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&mut self, fd: Fd) -> Answer<()> {
        match self.table.remove(fd)? {
            Entry::Epoll(epoll) => self.unwatch(fd, &epoll),
            Entry::Socket(socket) => {
                self.leave_epolls(fd, &socket);
                match socket.state {
                    State::Fresh => {}
                    State::Listening(listening) => self.drop_listener(listening)?,
                    State::Opening(attempt) => {
                        self.by_attempt.remove(&attempt.0);
                    }
                    State::Open(conn) => {
                        self.set_owner(conn, None);
                        match socket.options.linger {
                            Some(0) => self.host.abort(conn),
                            _ => self.host.close(conn),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns until when a close waits for [`Posix::unsent`] to become 0 (`SO_LINGER` on a blocking
    /// socket), in nanoseconds; `None` if it does not wait.
    pub fn lingers_until(&self, fd: Fd) -> Option<u64> {
        let socket = self.table.socket(fd).ok().filter(|socket| !socket.nonblocking)?;
        let seconds = socket.options.linger.filter(|seconds| *seconds > 0)?;
        Some((self.now + Duration::from_secs(seconds.into())).0)
    }

    /// `getsockname(2)`.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`.
    pub fn local_name(&self, fd: Fd) -> Answer<SocketAddr> {
        let socket = self.table.socket(fd)?;
        let identity = socket.conn().and_then(|conn| self.host.identity(conn));
        Ok(match (identity, socket.bound) {
            (Some(identity), _) => name(socket.v6, identity.local.ip(), identity.local_port),
            (None, Some(bound)) => name(socket.v6, bound.ip(), bound.port()),
            (None, None) => SocketAddr::new(any(socket.v6), 0),
        })
    }

    /// `getpeername(2)`.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`, `ENOTCONN`.
    pub fn peer_name(&self, fd: Fd) -> Answer<SocketAddr> {
        let socket = self.table.socket(fd)?;
        let conn = socket.conn().ok_or(Errno(libc::ENOTCONN))?;
        match self.host.stream(conn) {
            Some(stream) if stream.is_established() && !stream.is_closed() => {}
            _ => return refuse(libc::ENOTCONN),
        }
        Ok(remote_name(socket.v6, &self.host.identity(conn).unwrap_or_default()))
    }

    /// `fcntl(F_GETFL)`: returns whether the descriptor is non-blocking.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn is_nonblocking(&self, fd: Fd) -> Answer<bool> {
        Ok(match self.table.get(fd)? {
            Entry::Socket(socket) => socket.nonblocking,
            Entry::Epoll(_) => false,
        })
    }

    /// `fcntl(F_SETFL)` for `O_NONBLOCK`; has no effect on an epoll instance.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_nonblocking(&mut self, fd: Fd, on: bool) -> Answer<()> {
        self.table.get(fd)?;
        if let Ok(socket) = self.table.socket_mut(fd) {
            socket.nonblocking = on;
        }
        Ok(())
    }

    /// Returns until when a call that failed with `EAGAIN` may be retried, in
    /// nanoseconds; `None` if the socket is non-blocking and it may not.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`.
    pub fn patience(&self, fd: Fd, side: Side) -> Answer<Option<u64>> {
        let socket = self.table.socket(fd)?;
        let timeout = match side {
            Side::Read => socket.options.receive_timeout,
            Side::Write => socket.options.send_timeout,
        };
        Ok((!socket.nonblocking).then(|| match timeout.0 {
            0 => u64::MAX,
            _ => (self.now + timeout).0,
        }))
    }
}

fn any(v6: bool) -> IpAddr {
    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// Converts an address for the engine: an IPv4-mapped address becomes an IPv4 address.
fn within_family(v6: bool, addr: SocketAddr) -> Answer<SocketAddr> {
    if v6 != addr.is_ipv6() {
        return refuse(libc::EAFNOSUPPORT);
    }
    Ok(SocketAddr::new(addr.ip().to_canonical(), addr.port()))
}

/// Converts an address for a socket of a given family.
fn name(v6: bool, ip: IpAddr, port: u16) -> SocketAddr {
    let ip = match ip {
        IpAddr::V4(ip) if v6 => ip.to_ipv6_mapped().into(),
        ip => ip,
    };
    SocketAddr::new(ip, port)
}

fn remote_name(v6: bool, identity: &Identity) -> SocketAddr {
    name(v6, identity.remote.ip(), identity.remote_port)
}

/// True if one packet could match both of two names with the same port.
fn overlap(a: SocketAddr, a_v6only: bool, b: SocketAddr, b_v6only: bool) -> bool {
    let covers = |any: SocketAddr, v6only: bool, ip: IpAddr| {
        any.ip().is_unspecified() && (any.is_ipv4() == ip.is_ipv4() || any.is_ipv6() && !v6only)
    };
    a.ip() == b.ip() || covers(a, a_v6only, b.ip()) || covers(b, b_v6only, a.ip())
}
