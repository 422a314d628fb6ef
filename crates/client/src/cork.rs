//! Written bytes that are held back for more: `TCP_CORK` and `MSG_MORE`.
//!
//! The bytes are in the ring already, but the engine is told of them only when enough have
//! accumulated, when the program says that no more follow, or after a time limit. So output that a
//! program writes in pieces leaves as one piece and costs one doorbell.

use super::batch;
use super::connection::Connection;
use super::held_back::Cork;
use super::location::{InEngine, Location};
use super::region::{Region, in_engine};
use super::setting::Setting;
use super::shared::Inner;
use super::stream::Stream;
use baton_consumer::consumer::{Conn, Consumer};
use baton_consumer::stream::Source;
use baton_tcp::options::SocketOption;
use rustix::net::sockopt;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Most bytes held back: the size of the largest super-frame.
const MOST: usize = 64 << 10;

/// Interval at which the thread looks for bytes held back too long. They wait for one to two of
/// these intervals. Linux releases them after 200 ms (tcp(7), `TCP_CORK`).
const LONGEST: Duration = Duration::from_millis(150);

impl Stream {
    /// Sets whether written bytes are held back until there are enough of them (`TCP_CORK`).
    ///
    /// # Errors
    /// Those of [`Stream::set_nodelay`].
    pub fn set_cork(&self, on: bool) -> io::Result<()> {
        self.shared.with(|inner| {
            let held = inner.held_back(self.id);
            inner.set(self.id, Setting::Cork(on))?;
            if held > 0 && !on {
                batch::wrote(held);
            }
            Ok(())
        })?
    }

    /// Sets whether small segments are sent at once (`TCP_NODELAY`). Setting it also sends bytes
    /// that are held back.
    ///
    /// # Errors
    /// `NotConnected`, or the kernel's error.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.shared.with(|inner| {
            let held = inner.held_back(self.id);
            inner.set(self.id, Setting::NoDelay(on))?;
            if held > 0 && on {
                batch::wrote(held);
            }
            Ok(())
        })?
    }

    /// Returns whether `TCP_CORK` is set.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn cork(&self) -> io::Result<bool> {
        self.ask(|setting| if let Setting::Cork(on) = setting { Some(*on) } else { None }, |fd| sockopt::tcp_cork(fd))
    }

    /// Writes as much of several pieces as fits, as one write, after skipping the first `skip`
    /// bytes. With `more`, the bytes wait for the next write (`MSG_MORE`). Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` if there is no space, otherwise those of a write.
    pub fn send_pieces(&self, pieces: &[IoSlice<'_>], skip: usize, more: bool) -> io::Result<usize> {
        if let Some(count) = self.near().and_then(|near| near.write(pieces, skip)) {
            return Ok(count);
        }
        self.shared.with(|inner| {
            let sent = inner.send_pieces(self.id, pieces, skip, more);
            self.remember(inner.near(self.id));
            if !inner.connection(self.id).is_some_and(Connection::holds_back) {
                batch::wrote(*sent.as_ref().unwrap_or(&0));
            }
            sent
        })?
    }
}

impl Inner {
    /// Writes as much of `data` as fits. With `more`, the bytes may wait for the next write.
    pub(super) fn write_some(&mut self, id: u64, data: &[u8], more: bool) -> io::Result<usize> {
        let Inner { connections, regions, ready, .. } = self;
        let connection = connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        if connection.stands() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let written = match connection.location() {
            Location::Kernel(_) => {
                let written = connection.write_kernel(id, ready.as_fd(), data, more);
                connection.at_home.0 += *written.as_ref().unwrap_or(&0) as u64;
                written
            }
            Location::Away(_) | Location::Coming(_) => Err(ErrorKind::WouldBlock.into()),
            &Location::Engine(InEngine { region, conn, .. }) => in_engine(regions, region, conn, |consumer| {
                connection.flush_to(consumer, conn)?;
                connection.write_engine(consumer, conn, data, more)
            }),
            Location::Pair(_) => return self.write_pair(id, data),
            // The error itself is left for the next read.
            Location::Ended(Some(error)) => Err(error.kind().into()),
            Location::Ended(None) => Err(ErrorKind::BrokenPipe.into()),
        };
        if connection.holds_back() {
            self.note_held();
        }
        written
    }

    fn send_pieces(&mut self, id: u64, pieces: &[IoSlice<'_>], mut skip: usize, more: bool) -> io::Result<usize> {
        if pieces.iter().all(|piece| piece.is_empty()) {
            // Writing zero bytes can still report an error.
            return self.write_some(id, &[], more);
        }
        let mut total = 0;
        for (at, piece) in pieces.iter().enumerate() {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            let piece = &piece[std::mem::take(&mut skip)..];
            let last = pieces[at + 1..].iter().all(|piece| piece.is_empty());
            match self.write_some(id, piece, more || !last) {
                Ok(count) => {
                    total += count;
                    if count < piece.len() {
                        break;
                    }
                }
                Err(_) if total > 0 => {
                    self.push(id);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    fn held_back(&self, id: u64) -> usize {
        self.connection(id).map_or(0, |connection| connection.cork.bytes)
    }

    fn push(&mut self, id: u64) {
        let Inner { connections, regions, .. } = self;
        connections.get_mut(&id).into_iter().for_each(|connection| connection.push_into(regions));
    }

    /// Notes that bytes are held back, so that the thread releases them in time.
    pub(super) fn note_held(&mut self) {
        self.corks.news = true;
        if self.corks.at.is_none() {
            self.corks.at = Some(Instant::now() + LONGEST);
            self.look = true;
        }
    }

    /// Releases bytes that were held back too long. Returns the time of the next look.
    pub(super) fn push_old(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if self.corks.at.is_some_and(|at| at <= now) {
            let Inner { connections, regions, .. } = self;
            let is_old =
                |connection: &&mut Connection| connection.cork.since.is_some_and(|since| since + LONGEST <= now);
            connections.values_mut().filter(is_old).for_each(|connection| connection.push_into(regions));
            self.corks.at = std::mem::take(&mut self.corks.news).then(|| now + LONGEST);
        }
        self.corks.at
    }
}

impl Connection {
    /// Writes to the engine. Tells it at once, or holds the bytes back for the next write.
    pub fn write_engine(
        &mut self,
        consumer: &mut Consumer,
        conn: Conn,
        data: impl Source,
        more: bool,
    ) -> io::Result<usize> {
        if self.cork.delays && !self.cork.on {
            self.tell_nodelay(consumer, conn, false);
        }
        if !(more || self.cork.on) || self.cork.bytes + data.at_most() >= MOST {
            self.cork.let_go();
            return consumer.write_from(conn, data);
        }
        let queued = consumer.write_more_from(conn, data);
        let count = queued.as_ref().map_or(0, |count| *count);
        if count < data.at_most() {
            // The ring is full. Space appears only after the peer acknowledges some of these bytes.
            self.cork.let_go();
            consumer.push(conn);
        } else if count > 0 {
            self.cork.bytes += count;
            self.cork.since.get_or_insert_with(Instant::now);
        }
        queued
    }

    /// True if bytes are held back.
    pub fn holds_back(&self) -> bool {
        self.cork.since.is_some()
    }

    fn push_into(&mut self, regions: &mut BTreeMap<u32, Region>) {
        self.cork.let_go();
        if let Some((region, conn)) = self.in_engine()
            && let Some(region) = regions.get_mut(&region).filter(|region| !region.dead)
        {
            region.consumer.push(conn);
        }
    }

    /// Applies `TCP_CORK` while an engine has the connection.
    pub fn set_cork(&mut self, consumer: &mut Consumer, conn: Conn, on: bool) {
        self.cork.on = on;
        if !on && self.holds_back() {
            self.cork.let_go();
            consumer.push(conn);
        }
    }

    /// Applies `TCP_NODELAY` while an engine has the connection. Turning it off takes effect at the
    /// next write only, because programs that cork often toggle it around each answer.
    pub fn set_nodelay(&mut self, consumer: &mut Consumer, conn: Conn, on: bool) {
        self.cork.delays = !on && self.cork.nodelay != Some(false);
        if on && self.cork.nodelay != Some(true) {
            self.tell_nodelay(consumer, conn, true);
        }
        if on && self.holds_back() {
            // tcp(7): setting TCP_NODELAY flushes pending output, including corked output.
            self.cork.let_go();
            consumer.push(conn);
        }
    }

    fn tell_nodelay(&mut self, consumer: &mut Consumer, conn: Conn, on: bool) {
        if consumer.set_option(conn, SocketOption::NoDelay(on)).is_ok() {
            (self.cork.nodelay, self.cork.delays) = (Some(on), false);
        } else {
            self.settings_pending = true;
        }
    }

    /// Notes that the engine has been told of all settings.
    pub fn note_settings_told(&mut self) {
        self.cork.nodelay = self.setting(|setting| if let Setting::NoDelay(on) = setting { Some(*on) } else { None });
        self.cork.delays = false;
    }

    /// Takes up corking after an engine has adopted the connection and knows of all its bytes.
    pub fn begin_cork(&mut self) {
        let known = self.setting(|setting| if let Setting::Cork(on) = setting { Some(*on) } else { None });
        // Before the program had a stream it set the option on the socket, and the husk still has
        // it.
        let on = known.unwrap_or_else(|| sockopt::tcp_cork(&self.fd).unwrap_or(false));
        if on && known.is_none() {
            self.settings.push(Setting::Cork(true));
        }
        self.cork = Cork { on, ..Cork::default() };
    }
}
