//! Sending and receiving.

use super::socket::{State, is_roomy};
use super::table::Fd;
use super::{Answer, Errno, Posix, refuse};
use crate::consumer::Conn;
use libc::c_int;
use std::io::ErrorKind;

/// Flags of `send` that are heeded, or ask for what is done anyway.
const SEND_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;

/// Flags of `recv` that are heeded.
const RECV_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_PEEK | libc::MSG_WAITALL;

impl Posix {
    /// `send(2)`: takes what fits.
    ///
    /// # Errors
    /// `EAGAIN` if nothing fits now; the connection's error, once, then `EPIPE`;
    /// `EPIPE` after `shutdown`; `EBADF`, `ENOTSOCK`, `ENOTCONN`, `EOPNOTSUPP`.
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
        let taken = self.host.write(conn, data);
        socket.starved |= !is_roomy(self.host.writable(conn), self.buffer_bytes);
        taken.map_err(Errno::from)
    }

    /// `recv(2)`; 0 at the end of the stream. `MSG_WAITALL` is the caller's to see
    /// to: it knows how to wait.
    ///
    /// # Errors
    /// `EAGAIN` if nothing waits; the connection's error, once; `EBADF`,
    /// `ENOTSOCK`, `ENOTCONN`, `EOPNOTSUPP`.
    pub fn recv(&mut self, fd: Fd, buf: &mut [u8], flags: c_int) -> Answer<usize> {
        if flags & !RECV_FLAGS != 0 {
            return refuse(libc::EOPNOTSUPP);
        }
        let conn = self.connected(fd)?;
        let taken = if flags & libc::MSG_PEEK != 0 { self.host.peek(conn, buf) } else { self.host.read(conn, buf) };
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
            // An error is told once; the stream has ended all the same.
            Err(_) => socket.error.take().map_or(Ok(0), Err),
        }
    }

    /// The connection of a socket; `EAGAIN` while it is being opened.
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
