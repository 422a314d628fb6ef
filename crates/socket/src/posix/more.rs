//! `MSG_MORE`: bytes that are held back for more.
//!
//! They are in the ring, but the engine is not told of them until they fill a segment, something is
//! sent without `MSG_MORE`, `TCP_NODELAY` is set or `TCP_CORK` cleared, or a time limit expires.

use super::Fd;
use super::Posix;
use baton_consumer::consumer::Conn;
use baton_tcp::time::{Duration, Instant};
use std::io;

/// Longest time that bytes are held back (tcp(7), `TCP_CORK`: 200 ms).
const LONGEST: Duration = Duration::from_millis(200);

impl Posix {
    /// Writes as much as fits. With `more`, bytes that do not fill a segment are held back.
    pub(super) fn write(&mut self, fd: Fd, conn: Conn, data: &[u8], more: bool) -> io::Result<usize> {
        if !more {
            // This write tells the engine of all bytes, including those held back.
            self.note_held(fd, 0);
            return self.host.write(conn, data);
        }
        let held = self.table.socket(fd).map_or(0, |socket| socket.held);
        let mss = self.facts(conn).map_or(1, |info| usize::from(info.snd_mss).max(1));
        // The engine is told of this many bytes now; less than a segment is held back.
        let now = ((held + data.len()) / mss * mss).saturating_sub(held);
        let mut taken = 0;
        if now > 0 {
            taken = self.host.write(conn, &data[..now])?;
            self.note_held(fd, 0);
            if taken < now {
                return Ok(taken);
            }
        }
        let rest = &data[taken..];
        let kept = match self.host.write_more(conn, rest) {
            Ok(kept) => kept,
            Err(_) if taken > 0 => 0,
            Err(error) => return Err(error),
        };
        let held = self.table.socket(fd).map_or(0, |socket| socket.held);
        self.note_held(fd, held + kept);
        if kept < rest.len() {
            // The ring is full. Space appears only after the peer acknowledges some of these bytes.
            self.let_go_held(fd);
        }
        Ok(taken + kept)
    }

    fn note_held(&mut self, fd: Fd, bytes: usize) {
        let until = self.now + LONGEST;
        let Ok(socket) = self.table.socket_mut(fd) else { return };
        socket.held = bytes;
        if bytes == 0 {
            self.held.remove(&fd);
        } else {
            self.held.entry(fd).or_insert(until);
        }
    }

    /// Releases the bytes that a socket holds back.
    pub(super) fn let_go_held(&mut self, fd: Fd) {
        self.held.remove(&fd);
        let Ok(socket) = self.table.socket(fd) else { return };
        if let (1.., Some(conn)) = (socket.held, socket.conn()) {
            self.host.push(conn);
            self.note_held(fd, 0);
        }
    }

    /// Releases bytes that were held back too long.
    pub(super) fn let_go_old(&mut self) {
        let now = self.now;
        let old: Vec<Fd> = self.held.iter().filter(|(_, until)| **until <= now).map(|(fd, _)| *fd).collect();
        old.into_iter().for_each(|fd| self.let_go_held(fd));
    }

    /// Returns when [`Posix::let_go_old`] has something to do.
    pub(super) fn next_let_go(&self) -> Option<Instant> {
        self.held.values().min().copied()
    }
}
