//! One setting of a stream: how it is passed to a socket, and to an engine.

use baton_consumer::buffers::Share;
use baton_consumer::consumer::{Conn, Consumer};
use baton_engine::options::IpFields;
use baton_tcp::options::{KeepAlive, SocketOption};
use rustix::net::{AddressFamily, Shutdown, shutdown, sockopt};
use std::io;
use std::os::fd::BorrowedFd;
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
    pub fn tell_socket(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
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
    pub fn tell_engine(&self, consumer: &mut Consumer, conn: Conn, all: &[Setting]) -> io::Result<()> {
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
