//! What a program sets on a stream, wherever its connection is.
//!
//! A setting is told to whoever has the connection, and once more to whoever gets it: the
//! socket comes home with the options that it left with. What was never set here is the
//! socket's own affair. On a husk nothing is set: the broker needs some of it off.

use super::line::{Line, Whereabouts};
use super::shared::{Inner, Region};
use baton_consumer::buffers::Share;
use baton_consumer::consumer::{Conn, Consumer};
use baton_engine::options::IpFields;
use baton_tcp::options::{KeepAlive, SocketOption};
use rustix::net::{AddressFamily, Shutdown, shutdown, sockopt};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// One thing that a program sets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Setting {
    NoDelay(bool),
    /// Written bytes wait for more.
    Cork(bool),
    /// Silence, time between probes, probes.
    KeepAlive(Option<(Duration, Duration, u32)>),
    UserTimeout(Option<Duration>),
    Linger(Option<Duration>),
    TrafficClass(u8),
    /// The kernel's; an engine has its own.
    Congestion(String),
    SendBuffer(u32),
    ReceiveBuffer(u32),
    /// Nothing more is read.
    ShutRead,
}

impl Setting {
    /// What a socket has now that its husk will not have.
    pub fn of_socket(fd: BorrowedFd<'_>) -> rustix::io::Result<Vec<Setting>> {
        let on = sockopt::socket_keepalive(fd)?;
        let times = (sockopt::tcp_keepidle(fd)?, sockopt::tcp_keepintvl(fd)?, sockopt::tcp_keepcnt(fd)?);
        let timeout = sockopt::tcp_user_timeout(fd)?;
        let timeout = (timeout > 0).then(|| Duration::from_millis(timeout.into()));
        Ok(vec![Setting::KeepAlive(on.then_some(times)), Setting::UserTimeout(timeout)])
    }

    /// Tells the kernel.
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
                // Of a socket of both versions the IPv4 packets' too.
                sockopt::set_ip_tos(fd, *class)?;
            }
            Setting::Congestion(name) => sockopt::set_tcp_congestion(fd, name)?,
            Setting::SendBuffer(bytes) => sockopt::set_socket_send_buffer_size(fd, *bytes as usize)?,
            Setting::ReceiveBuffer(bytes) => sockopt::set_socket_recv_buffer_size(fd, *bytes as usize)?,
            // A connection that ended meanwhile has nothing to close.
            Setting::ShutRead => drop(shutdown(fd, Shutdown::Read)),
        }
        Ok(())
    }

    /// Tells the engine, if it is the engine's affair.
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

impl Line {
    /// The last setting of a kind.
    pub fn setting<T>(&self, kind: impl FnMut(&Setting) -> Option<T>) -> Option<T> {
        self.settings.iter().chain(&self.before).find_map(kind)
    }

    /// True if a close is to be a reset (`SO_LINGER` with no time): the stream was told so, or its
    /// socket was before the connection was handed over.
    pub fn aborts(&self) -> bool {
        let span = self.setting(|setting| if let Setting::Linger(span) = setting { Some(*span) } else { None });
        span.or_else(|| sockopt::socket_linger(&self.fd).ok()) == Some(Some(Duration::ZERO))
    }

    /// Nothing more is to be read.
    pub fn is_shut_for_reading(&self) -> bool {
        self.settings.contains(&Setting::ShutRead)
    }

    /// The connection has come to the kernel.
    pub fn tell_socket(&mut self) {
        for setting in &self.settings {
            // The kernel took each one's like before, or it was said to the program.
            let _ = setting.tell_socket(self.fd.as_fd());
        }
        self.untold = false;
    }

    /// The connection has come to an engine, or something was set there. What the engine
    /// has no room to hear now is said again later.
    pub fn tell_engine(&mut self, consumer: &mut Consumer, conn: Conn) {
        let told = self.settings.iter().try_for_each(|setting| setting.tell_engine(consumer, conn, &self.settings));
        self.untold = matches!(told, Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.note_told();
    }
}

impl Inner {
    /// Sets something, there and from now on.
    pub(super) fn set(&mut self, id: u64, setting: Setting) -> io::Result<()> {
        let Inner { lines, regions, .. } = self;
        let line = lines.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        if line.is_in_kernel() {
            setting.tell_socket(line.fd.as_fd())?;
        } else if let Setting::Congestion(name) = &setting {
            // The kernel alone knows which there are; on a husk it changes nothing.
            sockopt::set_tcp_congestion(&line.fd, name)?;
        }
        // What changes nothing of what a stream is ready for wakes nobody.
        let quiet = matches!(setting, Setting::NoDelay(_) | Setting::Cork(_));
        let kind = std::mem::discriminant(&setting);
        line.settings.retain(|other| std::mem::discriminant(other) != kind);
        line.settings.push(setting.clone());
        if let Whereabouts::Engine { region, conn } = line.at
            && let Some(region) = regions.get_mut(&region)
        {
            match setting {
                Setting::Cork(on) => line.set_cork(&mut region.consumer, conn, on),
                Setting::NoDelay(on) => line.set_nodelay(&mut region.consumer, conn, on),
                _ => line.tell_engine(&mut region.consumer, conn),
            }
        }
        // What an engine had no room to hear is said again by the thread.
        self.untold |= line.untold;
        self.look |= line.untold;
        if !quiet {
            line.wake();
        }
        Ok(())
    }

    /// Says again what engines had no room to hear; true if there is such still.
    pub(super) fn tell_again(&mut self) -> bool {
        let Inner { lines, regions, untold, .. } = self;
        if !std::mem::take(untold) {
            return false;
        }
        for line in lines.values_mut().filter(|line| line.untold) {
            if let Whereabouts::Engine { region, conn } = line.at
                && let Some(Region { consumer, .. }) = regions.get_mut(&region)
            {
                line.tell_engine(consumer, conn);
            }
            *untold |= line.untold;
        }
        *untold
    }
}
