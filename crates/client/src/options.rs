//! Options of a [`Stream`]: they hold wherever its connection is, and go with it.

use super::line::Whereabouts;
use super::settings::Setting;
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

/// When an idle peer is probed (`SO_KEEPALIVE` and its three numbers).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probing {
    /// Silence before the first probe, whole seconds.
    pub idle: Duration,
    /// Time between probes, whole seconds.
    pub interval: Duration,
    /// Probes without any answer before the connection is given up.
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
            let line = inner.line(self.id).ok_or(ErrorKind::NotConnected)?;
            line.setting(kind).map_or_else(|| Ok(socket(line.fd.as_fd())?), Ok)
        })?
    }

    /// Whether small segments leave at once.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.ask(
            |setting| if let Setting::NoDelay(on) = setting { Some(*on) } else { None },
            |fd| sockopt::tcp_nodelay(fd),
        )
    }

    /// Probes an idle peer, or does not.
    ///
    /// # Errors
    /// `InvalidInput` if a time is below a second or beyond 32,767, or the probes beyond 127;
    /// else as [`Stream::set_nodelay`].
    pub fn set_keepalive(&self, probing: Option<Probing>) -> io::Result<()> {
        let seconds = |span: Duration| (1..=32_767).contains(&span.as_secs());
        if probing.is_some_and(|p| !seconds(p.idle) || !seconds(p.interval) || !(1..=127).contains(&p.probes)) {
            return Err(ErrorKind::InvalidInput.into());
        }
        self.set(Setting::KeepAlive(probing.map(|p| (p.idle, p.interval, p.probes))))
    }

    /// When an idle peer is probed, if it is.
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

    /// How long sent data may stay unacknowledged before the connection is given up
    /// (`TCP_USER_TIMEOUT`), in milliseconds; `None` for the host's number of tries.
    ///
    /// # Errors
    /// As [`Stream::set_nodelay`].
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set(Setting::UserTimeout(timeout))
    }

    /// As it was set.
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

    /// What happens when the stream is dropped with data not sent (`SO_LINGER`). Zero resets
    /// the connection; any other time goes with the socket, but dropping a stream never waits.
    ///
    /// # Errors
    /// As [`Stream::set_nodelay`].
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.set(Setting::Linger(linger))
    }

    /// As it was set.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.ask(
            |setting| if let Setting::Linger(span) = setting { Some(*span) } else { None },
            |fd| sockopt::socket_linger(fd),
        )
    }

    /// The differentiated services of the connection's packets (`IP_TOS`, `IPV6_TCLASS`); the
    /// lower two bits are TCP's own.
    ///
    /// # Errors
    /// As [`Stream::set_nodelay`].
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        self.set(Setting::TrafficClass(class & !3))
    }

    /// The congestion control that the kernel uses for the connection (`TCP_CONGESTION`). An
    /// engine has its own for all.
    ///
    /// # Errors
    /// `NotFound` if the kernel has none of this name; else as [`Stream::set_nodelay`].
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        self.set(Setting::Congestion(name.to_owned()))
    }

    /// The name of the kernel's congestion control for it.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn congestion(&self) -> io::Result<String> {
        self.ask(
            |setting| if let Setting::Congestion(name) = setting { Some(name.clone()) } else { None },
            |fd| sockopt::tcp_congestion(fd),
        )
    }

    /// How much the stream holds of what is to be sent (`SO_SNDBUF`), in bytes; an engine
    /// has no more than a stream buffer.
    ///
    /// # Errors
    /// As [`Stream::set_nodelay`].
    pub fn set_send_buffer(&self, bytes: u32) -> io::Result<()> {
        self.set(Setting::SendBuffer(bytes))
    }

    /// How much the stream holds of what was received (`SO_RCVBUF`), likewise.
    ///
    /// # Errors
    /// As [`Stream::set_nodelay`].
    pub fn set_receive_buffer(&self, bytes: u32) -> io::Result<()> {
        self.set(Setting::ReceiveBuffer(bytes))
    }

    /// Longest wait of a blocking read; `None` for no bound. A read that waits longer fails
    /// with `WouldBlock`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        self.timeouts.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[0] = timeout;
    }

    /// Longest wait of a blocking write, likewise.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) {
        self.timeouts.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[1] = timeout;
    }

    /// Ends one direction or both. The sending one after all that was written; the receiving
    /// one for this program only: what is here already can be read, then reads return 0.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn shut(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.set(Setting::ShutRead)?;
        }
        if how == Shutdown::Read { Ok(()) } else { self.shutdown() }
    }

    /// What went wrong since the last call, if anything did (`SO_ERROR`).
    ///
    /// # Errors
    /// `NotConnected` after the end.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.shared.with(|inner| inner.take_error(self.id))?
    }

    /// `TCP_INFO` of whoever has the connection, in the kernel's layout (`linux/tcp.h`): the
    /// kernel's own, or the engine's first 104 bytes. Waits for the engine's answer.
    ///
    /// # Errors
    /// `NotConnected` after the end, or without a service while the engine has it.
    pub fn tcp_info(&self) -> io::Result<Vec<u8>> {
        block_on(None, |cx| self.shared.with(|inner| inner.poll_info(self.id, cx))?)
    }
}

impl Inner {
    fn take_error(&mut self, id: u64) -> io::Result<Option<io::Error>> {
        let Inner { lines, regions, .. } = self;
        let line = lines.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        Ok(match &mut line.at {
            Whereabouts::Kernel => sockopt::socket_error(&line.fd)?.err().map(io::Error::from),
            Whereabouts::Away | Whereabouts::Coming { .. } => None,
            Whereabouts::Engine { region, conn } => {
                let consumer = regions.get_mut(region).map(|region| &mut region.consumer);
                consumer.and_then(|consumer| consumer.take_soft_error(*conn))
            }
            Whereabouts::Ended(error) => error.take(),
        })
    }

    fn poll_info(&mut self, id: u64, cx: &Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let line = self.lines.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        let ask = match &line.at {
            Whereabouts::Kernel => return Poll::Ready(tcp_info::of(line.fd.as_fd())),
            Whereabouts::Ended(_) => return Poll::Ready(Err(ErrorKind::NotConnected.into())),
            Whereabouts::Away | Whereabouts::Coming { .. } => false,
            Whereabouts::Engine { .. } => match line.info.take() {
                Some(mut bytes) => {
                    // As long as the kernel's, whichever kernel it is.
                    bytes.resize(tcp_info::len(line.fd.as_fd())?, 0);
                    return Poll::Ready(Ok(bytes));
                }
                None => !std::mem::replace(&mut line.asked, true),
            },
        };
        line.askers.add(cx);
        if ask && let Err(error) = self.say(&Request::Info { id }, Vec::new()) {
            // The next one may have more luck.
            self.lines.get_mut(&id).into_iter().for_each(|line| line.asked = false);
            return Poll::Ready(Err(error));
        }
        if self.channel.is_none() { Poll::Ready(Err(ErrorKind::NotConnected.into())) } else { Poll::Pending }
    }

    /// The engine's answer; an empty one if the connection is on its way elsewhere, of which
    /// there will be word.
    pub(super) fn on_info(&mut self, id: u64, bytes: Vec<u8>) {
        let Some(line) = self.lines.get_mut(&id).filter(|_| !bytes.is_empty()) else { return };
        line.asked = false;
        line.info = Some(bytes);
        line.askers.wake();
    }
}
