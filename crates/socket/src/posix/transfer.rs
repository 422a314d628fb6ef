//! Sending and receiving.

use super::Fd;
use super::socket::State;
use super::table::Entry;
use super::wire::Wire;
use super::{Answer, Errno, Posix, refuse};
use crate::host::Host;
use baton_consumer::consumer::Conn;
use baton_consumer::stream::Stream;
use libc::c_int;
use std::io::{self, ErrorKind};

/// Accepted flags of `send`: those with an effect, and those whose effect is the default here.
const SEND_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR;

/// Accepted flags of `recv`.
const RECV_FLAGS: c_int =
    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_TRUNC;

impl Posix {
    /// `send(2)`: takes as many bytes as fit. With `MSG_MORE`, bytes that do not fill a segment are
    /// held back for the next call. `MSG_EOR` has no effect, because TCP has no records.
    ///
    /// # Errors
    /// `EAGAIN` if nothing fits now, or if as many bytes as `TCP_NOTSENT_LOWAT` wait; the
    /// connection's error, once, then `EPIPE`; `EPIPE` after `shutdown`; `EBADF`, `ENOTSOCK`,
    /// `ENOTCONN`, `EOPNOTSUPP`.
    pub fn send(&mut self, fd: Fd, data: &[u8], flags: c_int) -> Answer<usize> {
        if flags & !SEND_FLAGS != 0 {
            return refuse(libc::EOPNOTSUPP);
        }
        let conn = self.connected(fd)?;
        let socket = self.table.socket_mut(fd)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        if socket.shut_write || self.host.stream(conn).is_none_or(|stream| stream.is_closed()) {
            return refuse(libc::EPIPE);
        }
        let waits = socket.options.notsent_low;
        let most = if waits == u32::MAX { usize::MAX } else { (waits as usize).saturating_sub(self.host.unsent(conn)) };
        let taken = match most {
            0 if !data.is_empty() => Err(ErrorKind::WouldBlock.into()),
            _ => self.write(fd, conn, &data[..data.len().min(most)], flags & libc::MSG_MORE != 0),
        };
        let socket = self.table.socket_mut(fd)?;
        socket.starved |= !socket.is_roomy(&self.host, conn, self.buffer_bytes);
        taken.map_err(Errno::from)
    }

    /// `recv(2)`; returns 0 at the end of the stream. The caller must implement `MSG_WAITALL`,
    /// because it knows how to wait. For `MSG_TRUNC` use [`Posix::discard`].
    ///
    /// # Errors
    /// `EAGAIN` if nothing is available; the connection's error, once; `EBADF`, `ENOTSOCK`,
    /// `ENOTCONN`, `EOPNOTSUPP`.
    pub fn recv(&mut self, fd: Fd, buf: &mut [u8], flags: c_int) -> Answer<usize> {
        self.take(
            fd,
            flags,
            |host, conn| {
                if flags & libc::MSG_PEEK != 0 { host.peek(conn, buf) } else { host.read(conn, buf) }
            },
        )
    }

    /// `recv(2)` with `MSG_TRUNC`: like [`Posix::recv`], but discards up to `len` bytes (tcp(7)).
    /// With `MSG_PEEK` they are only counted.
    ///
    /// # Errors
    /// Those of [`Posix::recv`].
    pub fn discard(&mut self, fd: Fd, len: usize, flags: c_int) -> Answer<usize> {
        self.take(fd, flags, |host, conn| {
            if flags & libc::MSG_PEEK == 0 {
                return host.skip(conn, len);
            }
            match host.stream(conn).map_or(0, |stream| stream.readable()) {
                // If there are no bytes, a peek tells why.
                0 => host.peek(conn, &mut [0][..len.min(1)]),
                waiting => Ok(waiting.min(len)),
            }
        })
    }

    fn take(
        &mut self,
        fd: Fd,
        flags: c_int,
        from: impl FnOnce(&mut Host<Wire>, Conn) -> io::Result<usize>,
    ) -> Answer<usize> {
        if flags & !RECV_FLAGS != 0 {
            return refuse(libc::EOPNOTSUPP);
        }
        let conn = self.connected(fd)?;
        let taken = from(&mut self.host, conn);
        let socket = self.table.socket_mut(fd)?;
        match taken {
            Ok(count) => Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if socket.shut_read {
                    Ok(0)
                } else {
                    refuse(libc::EAGAIN)
                }
            }
            // The error is reported once; after that, the stream has ended.
            Err(_) => socket.error.take().map_or(Ok(0), Err),
        }
    }

    /// Returns what `TCP_INQ` adds to a `recvmsg`, if it is on: the number of bytes left to read; 1
    /// for the end of the stream (Linux: `tcp_inq_hint`).
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`.
    pub fn inq(&self, fd: Fd) -> Answer<Option<c_int>> {
        let socket = self.table.socket(fd)?;
        let Some(stream) = socket.conn().and_then(|conn| self.host.stream(conn)) else { return Ok(None) };
        let left = stream.readable().max(usize::from(stream.peer_finished()));
        Ok(socket.options.inq.then_some(left.min(c_int::MAX as usize) as c_int))
    }

    /// `ioctl(FIONREAD)`: returns the number of bytes that a `recv` could return now.
    ///
    /// # Errors
    /// `EBADF`; `ENOTTY` for an epoll instance, `EINVAL` for a listening socket, as in Linux.
    pub fn unread(&self, fd: Fd) -> Answer<usize> {
        self.counted(fd, |stream| stream.readable())
    }

    /// `ioctl(SIOCOUTQ)`: returns the number of bytes, sent or not, that the peer has not
    /// acknowledged.
    ///
    /// # Errors
    /// Those of [`Posix::unread`].
    pub fn unsent(&self, fd: Fd) -> Answer<usize> {
        self.counted(fd, |stream| if stream.is_closed() { 0 } else { stream.unacknowledged() })
    }

    fn counted(&self, fd: Fd, count: impl FnOnce(&Stream) -> usize) -> Answer<usize> {
        match self.table.get(fd)? {
            Entry::Epoll(_) => refuse(libc::ENOTTY),
            Entry::Socket(socket) if matches!(socket.state, State::Listening(_)) => refuse(libc::EINVAL),
            Entry::Socket(socket) => Ok(socket.conn().and_then(|conn| self.host.stream(conn)).map_or(0, count)),
        }
    }

    /// Returns the connection of a socket; fails with `EAGAIN` while it is being opened.
    fn connected(&mut self, fd: Fd) -> Answer<Conn> {
        let socket = self.table.socket_mut(fd)?;
        match socket.state {
            State::Open(conn) => match self.host.stream(conn) {
                Some(stream) if !stream.is_established() => refuse(libc::EAGAIN),
                _ => Ok(conn),
            },
            State::Opening(_) => refuse(libc::EAGAIN),
            State::Fresh | State::Listening(_) => Err(socket.error.take().unwrap_or(Errno(libc::ENOTCONN))),
        }
    }
}
