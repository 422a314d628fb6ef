//! Settings that a program makes on a stream, independent of its connection's location.
//!
//! Each setting is passed to whichever of kernel and engine has the connection, and again to the
//! next one, so the socket returns to the kernel with the options that the program set. Options
//! that were never set here are left to the socket. Nothing is set on a husk, because the broker
//! needs some options off there.

use super::connection::Connection;
use super::shared::{Inner, Region};
use baton_consumer::buffers::Share;
use baton_consumer::consumer::{Conn, Consumer};
use baton_engine::options::IpFields;
use baton_tcp::options::{KeepAlive, SocketOption};
use rustix::net::{AddressFamily, Shutdown, shutdown, sockopt};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// One setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Setting {
    NoDelay(bool),
    /// Written bytes are held back for more.
    Cork(bool),
    /// Idle time before the first probe, interval, number of probes.
    KeepAlive(Option<(Duration, Duration, u32)>),
    UserTimeout(Option<Duration>),
    Linger(Option<Duration>),
    TrafficClass(u8),
    /// The kernel's congestion control; engines ignore it.
    Congestion(String),
    SendBuffer(u32),
    ReceiveBuffer(u32),
    /// Reading has been shut down.
    ShutRead,
}

impl Setting {
    /// Settings that a socket has now and its husk will lack.
    pub fn of_socket(fd: BorrowedFd<'_>) -> rustix::io::Result<Vec<Setting>> {
        let on = sockopt::socket_keepalive(fd)?;
        let times = (sockopt::tcp_keepidle(fd)?, sockopt::tcp_keepintvl(fd)?, sockopt::tcp_keepcnt(fd)?);
        let timeout = sockopt::tcp_user_timeout(fd)?;
        let timeout = (timeout > 0).then(|| Duration::from_millis(timeout.into()));
        Ok(vec![Setting::KeepAlive(on.then_some(times)), Setting::UserTimeout(timeout)])
    }

    /// Applies the setting to a socket.
    fn tell_socket(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Setting::NoDelay(on) => sockopt::set_tcp_nodelay(fd, *on)?,
            Setting::Cork(on) => sockopt::set_tcp_cork(fd, *on)?,
            Setting::KeepAlive(None) => sockopt::set_socket_keepalive(fd, false)?,
            Setting::KeepAlive(Some((idle, interval, probes))) => {
                sockopt::set_tcp_keepidle(fd, *idle)?;
                sockopt::set_tcp_keepintvl(fd, *interval)?;
                sockopt::set_tcp_keepcnt(fd, *probes)?;
                sockopt::set_socket_keepalive(fd, true)?;
            }
            Setting::UserTimeout(span) => sockopt::set_tcp_user_timeout(fd, millis(*span))?,
            Setting::Linger(span) => sockopt::set_socket_linger(fd, *span)?,
            Setting::TrafficClass(class) => {
                if sockopt::socket_domain(fd)? == AddressFamily::INET6 {
                    sockopt::set_ipv6_tclass(fd, (*class).into())?;
                }
                // On a dual-stack socket, this applies to IPv4 packets.
                sockopt::set_ip_tos(fd, *class)?;
            }
            Setting::Congestion(name) => sockopt::set_tcp_congestion(fd, name)?,
            Setting::SendBuffer(bytes) => sockopt::set_socket_send_buffer_size(fd, *bytes as usize)?,
            Setting::ReceiveBuffer(bytes) => sockopt::set_socket_recv_buffer_size(fd, *bytes as usize)?,
            // This fails only for a connection that has ended, which needs no shutdown.
            Setting::ShutRead => drop(shutdown(fd, Shutdown::Read)),
        }
        Ok(())
    }

    /// Passes the setting to the engine, if it concerns engines.
    fn tell_engine(&self, consumer: &mut Consumer, conn: Conn, all: &[Setting]) -> io::Result<()> {
        let engines = |span: Duration| baton_tcp::time::Duration::from_millis(span.as_millis() as u64);
        let option = match self {
            Setting::NoDelay(on) => SocketOption::NoDelay(*on),
            Setting::KeepAlive(keep) => SocketOption::KeepAlive(keep.map(|(idle, interval, probes)| KeepAlive {
                idle: engines(idle),
                interval: engines(interval),
                probes: probes.min(127) as u8,
            })),
            Setting::UserTimeout(span) => SocketOption::UserTimeout(span.map(engines)),
            Setting::TrafficClass(class) => {
                return consumer.set_ip_fields(conn, IpFields { traffic_class: class & !3, ..IpFields::default() });
            }
            Setting::SendBuffer(_) | Setting::ReceiveBuffer(_) => return set_shares(consumer, conn, all),
            Setting::Linger(_) | Setting::Congestion(_) | Setting::ShutRead | Setting::Cork(_) => return Ok(()),
        };
        consumer.set_option(conn, option)
    }
}

fn millis(span: Option<Duration>) -> u32 {
    span.map_or(0, |span| span.as_millis().clamp(1, i32::MAX as u128) as u32)
}

fn set_shares(consumer: &mut Consumer, conn: Conn, all: &[Setting]) -> io::Result<()> {
    let size = consumer.small_buffer();
    let (mut send, mut receive) = Default::default();
    for setting in all {
        match setting {
            Setting::SendBuffer(bytes) => send = Share::of(*bytes, size),
            Setting::ReceiveBuffer(bytes) => receive = Share::of(*bytes, size),
            _ => {}
        }
    }
    consumer.set_shares(conn, send, receive)
}

impl Connection {
    /// Returns the last setting of a kind.
    pub fn setting<T>(&self, kind: impl FnMut(&Setting) -> Option<T>) -> Option<T> {
        self.settings.iter().chain(&self.before).find_map(kind)
    }

    /// True if closing must reset the connection (`SO_LINGER` with zero time), as set on the stream
    /// or on its socket before the handover.
    pub fn aborts(&self) -> bool {
        let span = self.setting(|setting| if let Setting::Linger(span) = setting { Some(*span) } else { None });
        span.or_else(|| sockopt::socket_linger(&self.fd).ok()) == Some(Some(Duration::ZERO))
    }

    /// True if reading has been shut down.
    pub fn is_shut_for_reading(&self) -> bool {
        self.settings.contains(&Setting::ShutRead)
    }

    /// Applies all settings to the socket after the connection has arrived in the kernel.
    pub fn tell_socket(&mut self) {
        for setting in &self.settings {
            // The kernel accepted each setting before, or the program was told of the error.
            let _ = setting.tell_socket(self.fd.as_fd());
        }
        self.settings_pending = false;
    }

    /// Passes all settings to the engine that has the connection. Those that it has no space for
    /// now are sent again later.
    pub fn tell_engine(&mut self, consumer: &mut Consumer, conn: Conn) {
        let told = self.settings.iter().try_for_each(|setting| setting.tell_engine(consumer, conn, &self.settings));
        self.settings_pending = matches!(told, Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.note_settings_told();
    }
}

impl Inner {
    /// Applies a setting now, and at every later move.
    pub(super) fn set(&mut self, id: u64, setting: Setting) -> io::Result<()> {
        let Inner { connections, regions, .. } = self;
        let connection = connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        if connection.is_in_kernel() {
            setting.tell_socket(connection.fd.as_fd())?;
        } else if let Setting::Congestion(name) = &setting {
            // Only the kernel knows the valid names. The call has no effect on a husk.
            sockopt::set_tcp_congestion(&connection.fd, name)?;
        }
        // Settings that cannot change the stream's readiness wake nobody.
        let quiet = matches!(setting, Setting::NoDelay(_) | Setting::Cork(_));
        let kind = std::mem::discriminant(&setting);
        connection.settings.retain(|other| std::mem::discriminant(other) != kind);
        connection.settings.push(setting.clone());
        if let Some((region, conn)) = connection.in_engine()
            && let Some(region) = regions.get_mut(&region)
        {
            match setting {
                Setting::Cork(on) => connection.set_cork(&mut region.consumer, conn, on),
                Setting::NoDelay(on) => connection.set_nodelay(&mut region.consumer, conn, on),
                _ => connection.tell_engine(&mut region.consumer, conn),
            }
        }
        // The thread sends again what the engine had no space for.
        self.settings_pending |= connection.settings_pending;
        self.look |= connection.settings_pending;
        if !quiet {
            connection.wake();
        }
        Ok(())
    }

    /// Sends again the settings that engines had no space for. Returns true if some remain.
    pub(super) fn tell_again(&mut self) -> bool {
        let Inner { connections, regions, settings_pending, .. } = self;
        if !std::mem::take(settings_pending) {
            return false;
        }
        for connection in connections.values_mut().filter(|connection| connection.settings_pending) {
            if let Some((region, conn)) = connection.in_engine()
                && let Some(Region { consumer, .. }) = regions.get_mut(&region)
            {
                connection.tell_engine(consumer, conn);
            }
            *settings_pending |= connection.settings_pending;
        }
        *settings_pending
    }
}
