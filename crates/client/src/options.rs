//! Options of a [`Stream`]. They apply wherever its connection is, and move with it.

use super::connection::Connection;
use super::location::{InEngine, Inquiry, Location};
use super::pair_info;
use super::setting::Setting;
use super::shared::Inner;
use super::stream::Stream;
use crate::sys::tcp_info;
use baton_consumer::wake::block_on;
use baton_ipc::message::Request;
use rustix::net::sockopt;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::Duration;

/// When an idle peer is probed (`SO_KEEPALIVE` and its three parameters).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probing {
    /// Idle time before the first probe, in whole seconds.
    pub idle: Duration,
    /// Time between probes, in whole seconds.
    pub interval: Duration,
    /// Number of unanswered probes after which the connection is given up.
    pub probes: u32,
}

impl Stream {
    pub(super) fn set(&self, setting: Setting) -> io::Result<()> {
        self.shared.with(|inner| inner.set(self.id, setting))?
    }

    pub(super) fn ask<T>(
        &self,
        kind: impl FnMut(&Setting) -> Option<T>,
        socket: impl FnOnce(std::os::fd::BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        self.shared.with(|inner| {
            let connection = inner.connection(self.id).ok_or(ErrorKind::NotConnected)?;
            connection.setting(kind).map_or_else(|| Ok(socket(connection.fd.as_fd())?), Ok)
        })?
    }

    /// Returns whether small segments are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.ask(
            |setting| if let Setting::NoDelay(on) = setting { Some(*on) } else { None },
            |fd| sockopt::tcp_nodelay(fd),
        )
    }

    /// Turns probing of an idle peer on or off.
    ///
    /// # Errors
    /// `InvalidInput` if a time is less than 1 second or more than 32,767 seconds, or if there are
    /// more than 127 probes or none; otherwise those of [`Stream::set_nodelay`].
    pub fn set_keepalive(&self, probing: Option<Probing>) -> io::Result<()> {
        let seconds = |span: Duration| (1..=32_767).contains(&span.as_secs());
        if probing.is_some_and(|p| !seconds(p.idle) || !seconds(p.interval) || !(1..=127).contains(&p.probes)) {
            return Err(ErrorKind::InvalidInput.into());
        }
        self.set(Setting::KeepAlive(probing.map(|p| (p.idle, p.interval, p.probes))))
    }

    /// Returns when an idle peer is probed; `None` if it is not.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn keepalive(&self) -> io::Result<Option<Probing>> {
        let found = self.ask(
            |setting| if let Setting::KeepAlive(keep) = setting { Some(*keep) } else { None },
            |fd| {
                let on = sockopt::socket_keepalive(fd)?;
                let times = (sockopt::tcp_keepidle(fd)?, sockopt::tcp_keepintvl(fd)?, sockopt::tcp_keepcnt(fd)?);
                Ok(on.then_some(times))
            },
        )?;
        Ok(found.map(|(idle, interval, probes)| Probing { idle, interval, probes }))
    }

    /// Sets how long sent data may remain unacknowledged before the connection is given up
    /// (`TCP_USER_TIMEOUT`), with millisecond resolution. `None` applies the host's number of
    /// retries.
    ///
    /// # Errors
    /// Those of [`Stream::set_nodelay`].
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set(Setting::UserTimeout(timeout))
    }

    /// Returns the timeout set by [`Stream::set_user_timeout`].
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn user_timeout(&self) -> io::Result<Option<Duration>> {
        self.ask(
            |setting| if let Setting::UserTimeout(span) = setting { Some(*span) } else { None },
            |fd| {
                let millis = sockopt::tcp_user_timeout(fd)?;
                Ok((millis > 0).then(|| Duration::from_millis(millis.into())))
            },
        )
    }

    /// Sets what happens to unsent data when the stream is dropped (`SO_LINGER`). A linger time of
    /// zero resets the connection. Any other time is set on the socket, but dropping a stream never
    /// waits.
    ///
    /// # Errors
    /// Those of [`Stream::set_nodelay`].
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.set(Setting::Linger(linger))
    }

    /// Returns the linger time.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.ask(
            |setting| if let Setting::Linger(span) = setting { Some(*span) } else { None },
            |fd| sockopt::socket_linger(fd),
        )
    }

    /// Sets the differentiated services field of the connection's packets (`IP_TOS`,
    /// `IPV6_TCLASS`). The lower two bits are ignored: TCP uses them for ECN.
    ///
    /// # Errors
    /// Those of [`Stream::set_nodelay`].
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        self.set(Setting::TrafficClass(class & !3))
    }

    /// Sets the congestion control that the kernel uses for the connection (`TCP_CONGESTION`). An
    /// engine uses its own for all connections.
    ///
    /// # Errors
    /// `NotFound` if the kernel has no congestion control of this name; otherwise those of
    /// [`Stream::set_nodelay`].
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        self.set(Setting::Congestion(name.to_owned()))
    }

    /// Returns the name of the kernel's congestion control for the connection.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn congestion(&self) -> io::Result<String> {
        self.ask(
            |setting| if let Setting::Congestion(name) = setting { Some(name.clone()) } else { None },
            |fd| sockopt::tcp_congestion(fd),
        )
    }

    /// Sets how many bytes the stream buffers for sending (`SO_SNDBUF`). In an engine, a stream
    /// buffer is the limit.
    ///
    /// # Errors
    /// Those of [`Stream::set_nodelay`].
    pub fn set_send_buffer(&self, bytes: u32) -> io::Result<()> {
        self.set(Setting::SendBuffer(bytes))
    }

    /// Sets how many received bytes the stream buffers (`SO_RCVBUF`). In an engine, a stream buffer
    /// is the limit.
    ///
    /// # Errors
    /// Those of [`Stream::set_nodelay`].
    pub fn set_receive_buffer(&self, bytes: u32) -> io::Result<()> {
        self.set(Setting::ReceiveBuffer(bytes))
    }

    /// Sets the longest wait of a blocking read; `None` means no limit. A read that waits longer
    /// fails with `WouldBlock`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        self.timeouts.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[0] = timeout;
    }

    /// Sets the longest wait of a blocking write; `None` means no limit. A write that waits longer
    /// fails with `WouldBlock`.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) {
        self.timeouts.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[1] = timeout;
    }

    /// Shuts down one direction or both. The sending direction ends after all written bytes. The
    /// receiving direction ends for this program only: bytes that have arrived can still be read,
    /// then reads return 0.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn shut(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.set(Setting::ShutRead)?;
        }
        if how == Shutdown::Read { Ok(()) } else { self.shutdown() }
    }

    /// Returns and clears the pending error, if there is one (`SO_ERROR`).
    ///
    /// # Errors
    /// `NotConnected` after the end.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.shared.with(|inner| inner.take_error(self.id))?
    }

    /// Returns `TCP_INFO` in the kernel's layout (`linux/tcp.h`). If the kernel has the connection,
    /// it is the kernel's own. Otherwise it is the engine's, which fills in the first 104 bytes;
    /// the call waits for the engine's answer.
    ///
    /// # Errors
    /// `NotConnected` after the end, or if the engine has the connection and the service has gone.
    pub fn tcp_info(&self) -> io::Result<Vec<u8>> {
        block_on(None, |cx| self.shared.with(|inner| inner.poll_info(self.id, cx))?)
    }
}

impl Inner {
    fn take_error(&mut self, id: u64) -> io::Result<Option<io::Error>> {
        let Inner { connections, regions, .. } = self;
        let connection = connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        Ok(match connection.location() {
            Location::Kernel(_) => sockopt::socket_error(&connection.fd)?.err().map(io::Error::from),
            Location::Away(_) | Location::Coming(_) | Location::Pair(_) => None,
            Location::Engine(InEngine { region, conn, .. }) => {
                let consumer = regions.get_mut(region).map(|region| &mut region.consumer);
                consumer.and_then(|consumer| consumer.take_soft_error(*conn))
            }
            Location::Ended(_) => connection.take_error(),
        })
    }

    fn poll_info(&mut self, id: u64, cx: &Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let connection = self.connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        match connection.location() {
            Location::Kernel(_) => return Poll::Ready(tcp_info::of(connection.fd.as_fd())),
            Location::Pair(pair) => {
                let mut info = tcp_info::of(connection.fd.as_fd())?;
                pair.end.with(|end| pair_info::fill_in(&mut info, end));
                return Poll::Ready(Ok(info));
            }
            Location::Ended(_) => return Poll::Ready(Err(ErrorKind::NotConnected.into())),
            Location::Away(_) | Location::Coming(_) | Location::Engine(_) => {}
        }
        let ask = match connection.inquiry().map(Inquiry::take) {
            Some(Ok(mut bytes)) => {
                // Zeros pad the engine's part to the size that the running kernel reports.
                bytes.resize(tcp_info::len(connection.fd.as_fd())?, 0);
                return Poll::Ready(Ok(bytes));
            }
            Some(Err(must_ask)) => must_ask,
            // On the way. The caller is woken on arrival.
            None => false,
        };
        connection.askers.add(cx);
        if ask && let Err(error) = self.say(&Request::Info { id }, Vec::new()) {
            // The next caller asks again.
            self.connections.get_mut(&id).into_iter().for_each(Connection::forget_inquiry);
            return Poll::Ready(Err(error));
        }
        if self.channel.is_none() { Poll::Ready(Err(ErrorKind::NotConnected.into())) } else { Poll::Pending }
    }

    /// Stores the engine's answer. An empty one means that the connection is moving, and a later
    /// message will say where.
    pub(super) fn on_info(&mut self, id: u64, bytes: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(&id).filter(|_| !bytes.is_empty()) else { return };
        // A connection that has left the engine meanwhile has forgotten the question.
        let Some(inquiry) = connection.inquiry() else { return };
        *inquiry = Inquiry::Answered(bytes);
        connection.askers.wake();
    }
}
