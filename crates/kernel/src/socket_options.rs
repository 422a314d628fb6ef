//! The options that a program set on its socket.
//!
//! On the same descriptor the kernel keeps nearly all of them across a move. Those that it resets,
//! and those that a husk must not have, are restored from here. The engine takes its behaviour from
//! here.

use crate::sys;
use baton_tcp::options::{KeepAlive, SocketOption};
use baton_tcp::time::Duration;
use std::io;
use std::os::fd::BorrowedFd;

/// An option with a value of type `int`. They are set in this order, because `IP_TOS` changes the
/// priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntOption {
    /// `IP_TOS`.
    Tos,
    /// `IPV6_TCLASS`, on AF_INET6 sockets only.
    TrafficClass,
    /// `SO_PRIORITY`.
    Priority,
    /// `SO_MARK`.
    Mark,
    /// `TCP_NODELAY`.
    NoDelay,
    /// `TCP_CORK`.
    Cork,
    /// `TCP_QUICKACK`: whether ACKs are currently sent at once.
    QuickAck,
    /// `TCP_KEEPIDLE`, s.
    KeepIdle,
    /// `TCP_KEEPINTVL`, s.
    KeepInterval,
    /// `TCP_KEEPCNT`.
    KeepCount,
    /// `SO_KEEPALIVE`.
    KeepAlive,
    /// `TCP_USER_TIMEOUT`, ms; 0 for the host's default.
    UserTimeout,
    /// `TCP_LINGER2`, s.
    Linger2,
    /// `TCP_NOTSENT_LOWAT`, bytes, as `u32`.
    NotSentLowWater,
    /// `SO_RCVLOWAT`, bytes.
    ReceiveLowWater,
    /// `SO_PEEK_OFF`, bytes; -1 for off.
    PeekOffset,
    /// `SO_BUSY_POLL`, µs.
    BusyPoll,
    /// `TCP_RTO_MAX_MS`, ms: the longest retransmission timeout (since Linux 6.15).
    TimeoutMax,
}

/// `linux/tcp.h`, `asm-generic/socket.h`.
const TCP_RTO_MAX_MS: i32 = 44;
const SO_BUF_LOCK: i32 = 72;

impl IntOption {
    const COUNT: usize = 18;

    /// All options, in the order of their declaration.
    pub const ALL: [IntOption; IntOption::COUNT] = [
        IntOption::Tos,
        IntOption::TrafficClass,
        IntOption::Priority,
        IntOption::Mark,
        IntOption::NoDelay,
        IntOption::Cork,
        IntOption::QuickAck,
        IntOption::KeepIdle,
        IntOption::KeepInterval,
        IntOption::KeepCount,
        IntOption::KeepAlive,
        IntOption::UserTimeout,
        IntOption::Linger2,
        IntOption::NotSentLowWater,
        IntOption::ReceiveLowWater,
        IntOption::PeekOffset,
        IntOption::BusyPoll,
        IntOption::TimeoutMax,
    ];

    /// The level and the name for `setsockopt`.
    const fn name(self) -> (i32, i32) {
        const SOCKET: i32 = libc::SOL_SOCKET;
        const TCP: i32 = libc::IPPROTO_TCP;
        match self {
            IntOption::Tos => (libc::IPPROTO_IP, libc::IP_TOS),
            IntOption::TrafficClass => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            IntOption::Priority => (SOCKET, libc::SO_PRIORITY),
            IntOption::Mark => (SOCKET, libc::SO_MARK),
            IntOption::NoDelay => (TCP, libc::TCP_NODELAY),
            IntOption::Cork => (TCP, libc::TCP_CORK),
            IntOption::QuickAck => (TCP, libc::TCP_QUICKACK),
            IntOption::KeepIdle => (TCP, libc::TCP_KEEPIDLE),
            IntOption::KeepInterval => (TCP, libc::TCP_KEEPINTVL),
            IntOption::KeepCount => (TCP, libc::TCP_KEEPCNT),
            IntOption::KeepAlive => (SOCKET, libc::SO_KEEPALIVE),
            IntOption::UserTimeout => (TCP, libc::TCP_USER_TIMEOUT),
            IntOption::Linger2 => (TCP, libc::TCP_LINGER2),
            IntOption::NotSentLowWater => (TCP, libc::TCP_NOTSENT_LOWAT),
            IntOption::ReceiveLowWater => (SOCKET, libc::SO_RCVLOWAT),
            IntOption::PeekOffset => (SOCKET, libc::SO_PEEK_OFF),
            IntOption::BusyPoll => (SOCKET, libc::SO_BUSY_POLL),
            IntOption::TimeoutMax => (TCP, TCP_RTO_MAX_MS),
        }
    }

    /// Reads the option from a socket.
    pub(crate) fn read(self, fd: BorrowedFd<'_>) -> io::Result<i32> {
        let (level, name) = self.name();
        sys::get_int(fd, level, name)
    }

    /// Sets the option on a socket.
    pub(crate) fn write(self, fd: BorrowedFd<'_>, value: i32) -> io::Result<()> {
        let (level, name) = self.name();
        sys::set_int(fd, level, name, value)
    }
}

/// The sizes of a socket's buffers, as the kernel reports them: twice what was requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffers {
    /// `SO_SNDBUF`, bytes.
    pub send: i32,
    /// `SO_RCVBUF`, bytes.
    pub receive: i32,
    /// `SO_BUF_LOCK`: 1 if the program set the send buffer, 2 if the receive buffer. The kernel
    /// tunes a buffer that the program did not set.
    pub locks: i32,
}

/// The options that a program set on its socket, as plain data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketOptions {
    ints: [Option<i32>; IntOption::COUNT],
    /// `SO_REUSEADDR`, which repair mode clears.
    pub reuse_address: bool,
    /// The sizes of the buffers.
    pub buffers: Buffers,
    /// `TCP_WINDOW_CLAMP`, bytes: the largest window that the kernel would offer now.
    pub window_clamp: i32,
    /// `SO_LINGER` as the kernel's two `int`s: on, s.
    pub linger: [u8; 8],
    /// `SO_RCVTIMEO` as the kernel's two `long`s: s, µs.
    pub receive_timeout: [u8; 16],
    /// `SO_SNDTIMEO`, in the same form.
    pub send_timeout: [u8; 16],
    /// `TCP_CONGESTION`: the name, padded with zeros.
    pub congestion: [u8; 16],
}

impl SocketOptions {
    /// The value of an option, if the socket has it.
    pub fn int(&self, option: IntOption) -> Option<i32> {
        self.ints[option as usize]
    }

    /// Changes what a restore sets, because the program set an option while its connection was
    /// away.
    pub fn set_int(&mut self, option: IntOption, value: i32) {
        self.ints[option as usize] = Some(value);
    }

    /// The name of the kernel's congestion control.
    pub fn congestion_name(&self) -> &str {
        let len = self.congestion.iter().position(|&b| b == 0).unwrap_or(self.congestion.len());
        std::str::from_utf8(&self.congestion[..len]).unwrap_or_default()
    }

    /// The options that the engine needs to know.
    pub fn for_engine(&self) -> Vec<SocketOption> {
        let set = |option| self.int(option).is_some_and(|value| value != 0);
        let number = |option| self.int(option).map_or(0, |value| value.max(0) as u64);
        let mut options =
            vec![SocketOption::NoDelay(set(IntOption::NoDelay)), SocketOption::Cork(set(IntOption::Cork))];
        if set(IntOption::KeepAlive) {
            options.push(SocketOption::KeepAlive(Some(KeepAlive {
                idle: Duration::from_secs(number(IntOption::KeepIdle)),
                interval: Duration::from_secs(number(IntOption::KeepInterval)),
                probes: number(IntOption::KeepCount).min(u64::from(u8::MAX)) as u8,
            })));
        }
        if set(IntOption::UserTimeout) {
            options.push(SocketOption::UserTimeout(Some(Duration::from_millis(number(IntOption::UserTimeout)))));
        }
        if set(IntOption::Linger2) {
            options.push(SocketOption::Linger2(Some(Duration::from_secs(number(IntOption::Linger2)))));
        }
        options
    }
}

impl SocketOptions {
    /// Takes over the options that are on in the engine. Those not listed are off.
    pub fn set_from_engine(&mut self, on: &[SocketOption]) {
        let seconds = |span: Duration| i32::try_from(span.as_millis() / 1000).unwrap_or(i32::MAX);
        for (option, off) in
            [(IntOption::NoDelay, 0), (IntOption::Cork, 0), (IntOption::KeepAlive, 0), (IntOption::UserTimeout, 0)]
        {
            self.set_int(option, off);
        }
        for option in on {
            match *option {
                SocketOption::NoDelay(on) => self.set_int(IntOption::NoDelay, on.into()),
                SocketOption::Cork(on) => self.set_int(IntOption::Cork, on.into()),
                SocketOption::KeepAlive(Some(keep)) => {
                    self.set_int(IntOption::KeepIdle, seconds(keep.idle));
                    self.set_int(IntOption::KeepInterval, seconds(keep.interval));
                    self.set_int(IntOption::KeepCount, keep.probes.into());
                    self.set_int(IntOption::KeepAlive, 1);
                }
                SocketOption::UserTimeout(Some(span)) => {
                    self.set_int(IntOption::UserTimeout, i32::try_from(span.as_millis()).unwrap_or(i32::MAX));
                }
                SocketOption::Linger2(Some(span)) => self.set_int(IntOption::Linger2, seconds(span)),
                // Temporary, and the kernel's own matter.
                SocketOption::QuickAck(_) => {}
                SocketOption::KeepAlive(None) | SocketOption::UserTimeout(None) | SocketOption::Linger2(None) => {}
            }
        }
    }

    /// Encodes all options in a fixed number of bytes, the same for every socket.
    pub(crate) fn to_bytes(&self, out: &mut Vec<u8>) {
        for int in self.ints {
            out.push(int.is_some().into());
            out.extend(int.unwrap_or_default().to_le_bytes());
        }
        out.push(self.reuse_address.into());
        let Buffers { send, receive, locks } = self.buffers;
        for int in [send, receive, locks, self.window_clamp] {
            out.extend(int.to_le_bytes());
        }
        for bytes in [&self.linger[..], &self.receive_timeout, &self.send_timeout, &self.congestion] {
            out.extend(bytes);
        }
    }

    /// Decodes what [`SocketOptions::to_bytes`] wrote, and removes it from the front of `bytes`.
    pub(crate) fn from_bytes(bytes: &mut &[u8]) -> Option<SocketOptions> {
        let mut ints = [None; IntOption::COUNT];
        for int in &mut ints {
            let [is_set] = take(bytes)?;
            let value = i32::from_le_bytes(take(bytes)?);
            *int = (is_set != 0).then_some(value);
        }
        let [reuse] = take(bytes)?;
        let mut int = || Some(i32::from_le_bytes(take(bytes)?));
        let buffers = Buffers { send: int()?, receive: int()?, locks: int()? };
        let window_clamp = int()?;
        Some(SocketOptions {
            ints,
            reuse_address: reuse != 0,
            buffers,
            window_clamp,
            linger: take(bytes)?,
            receive_timeout: take(bytes)?,
            send_timeout: take(bytes)?,
            congestion: take(bytes)?,
        })
    }
}

/// Removes `N` bytes from the front, if there are that many.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*head)
}

/// Reads all options. Call this before repair mode is on, because that changes some.
pub(crate) fn capture_socket_options(fd: BorrowedFd<'_>) -> io::Result<SocketOptions> {
    const SOCKET: i32 = libc::SOL_SOCKET;
    const TCP: i32 = libc::IPPROTO_TCP;
    let mut options = SocketOptions {
        ints: [None; IntOption::COUNT],
        reuse_address: sys::get_int(fd, SOCKET, libc::SO_REUSEADDR)? != 0,
        buffers: Buffers {
            send: sys::get_int(fd, SOCKET, libc::SO_SNDBUF)?,
            receive: sys::get_int(fd, SOCKET, libc::SO_RCVBUF)?,
            locks: sys::get_int(fd, SOCKET, SO_BUF_LOCK)?,
        },
        window_clamp: sys::get_int(fd, TCP, libc::TCP_WINDOW_CLAMP)?,
        linger: [0; 8],
        receive_timeout: [0; 16],
        send_timeout: [0; 16],
        congestion: [0; 16],
    };
    for option in IntOption::ALL {
        // An AF_INET socket has no traffic class, and a kernel may lack busy polling.
        options.ints[option as usize] = option.read(fd).ok();
    }
    sys::get(fd, SOCKET, libc::SO_LINGER, &mut options.linger)?;
    sys::get(fd, SOCKET, libc::SO_RCVTIMEO, &mut options.receive_timeout)?;
    sys::get(fd, SOCKET, libc::SO_SNDTIMEO, &mut options.send_timeout)?;
    sys::get(fd, TCP, libc::TCP_CONGESTION, &mut options.congestion)?;
    Ok(options)
}

/// Sets all options except `SO_REUSEADDR`, the buffers, the window clamp and the longest timeout,
/// which are set at other times. Sets only those that differ, because the program may have had
/// permissions that the caller lacks. The peer's window must be closed, since some of these options
/// push data out.
pub(crate) fn restore_socket_options(fd: BorrowedFd<'_>, options: &SocketOptions) -> io::Result<()> {
    for option in IntOption::ALL.into_iter().filter(|option| *option != IntOption::TimeoutMax) {
        if let Some(value) = options.int(option)
            && option.read(fd)? != value
        {
            option.write(fd, value)?;
        }
    }
    const SOCKET: i32 = libc::SOL_SOCKET;
    restore_bytes(fd, SOCKET, libc::SO_LINGER, &options.linger)?;
    restore_bytes(fd, SOCKET, libc::SO_RCVTIMEO, &options.receive_timeout)?;
    restore_bytes(fd, SOCKET, libc::SO_SNDTIMEO, &options.send_timeout)?;
    restore_bytes(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &options.congestion)
}

fn restore_bytes<const N: usize>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8; N]) -> io::Result<()> {
    let mut now = [0; N];
    sys::get(fd, level, name, &mut now)?;
    if now == *value { Ok(()) } else { sys::set(fd, level, name, value) }
}

/// Sets `SO_REUSEADDR`, once repair mode is off. Without it, a server that closes its listener
/// could not listen on the port again while the connection exists.
pub(crate) fn restore_reuse_address(fd: BorrowedFd<'_>, options: &SocketOptions) -> io::Result<()> {
    if options.reuse_address {
        sys::set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    }
    Ok(())
}

/// Shortens the timeout of a connection without a round-trip time. Linux then waits 3 s for an
/// answer before it retransmits; 1 s is the shortest time that can be set. Call this before
/// anything is queued.
pub(crate) fn hasten(fd: BorrowedFd<'_>, options: &SocketOptions) -> io::Result<()> {
    let shorter = options.int(IntOption::TimeoutMax).is_some_and(|usual| usual > 1000);
    if shorter { IntOption::TimeoutMax.write(fd, 1000) } else { Ok(()) }
}

/// Undoes [`hasten`], once everything that can be sent has been sent. Its timer runs by then, and
/// what follows has a round-trip time.
pub(crate) fn restore_timeout_max(fd: BorrowedFd<'_>, options: &SocketOptions) -> io::Result<()> {
    options.int(IntOption::TimeoutMax).map_or(Ok(()), |usual| IntOption::TimeoutMax.write(fd, usual))
}

/// Stops what a husk must not do by itself: probe the peer, or give up.
pub(crate) fn silence(fd: BorrowedFd<'_>) -> io::Result<()> {
    IntOption::KeepAlive.write(fd, 0)?;
    IntOption::UserTimeout.write(fd, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    #[test]
    fn options_are_in_order() {
        assert!(IntOption::ALL.iter().enumerate().all(|(i, option)| *option as usize == i));
    }

    #[test]
    fn what_was_set_is_read_and_set_on_another_socket() {
        let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (one, other) = (listener(), listener());
        let fd = one.as_fd();
        let values = [
            (IntOption::Tos, 0x20),
            (IntOption::Priority, 4),
            (IntOption::NoDelay, 1),
            (IntOption::KeepIdle, 77),
            (IntOption::KeepInterval, 13),
            (IntOption::KeepCount, 4),
            (IntOption::KeepAlive, 1),
            (IntOption::UserTimeout, 12_345),
            (IntOption::Linger2, 22),
            (IntOption::NotSentLowWater, 131_072),
            (IntOption::ReceiveLowWater, 7),
            (IntOption::PeekOffset, 3),
        ];
        for (option, value) in values {
            option.write(fd, value).unwrap();
        }
        sys::set(fd, libc::SOL_SOCKET, libc::SO_LINGER, &[1, 0, 0, 0, 5, 0, 0, 0]).unwrap();
        sys::set(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, [3u64, 0].map(u64::to_ne_bytes).as_flattened()).unwrap();
        sys::set(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"reno").unwrap();
        let captured = capture_socket_options(fd).unwrap();
        for (option, value) in values {
            assert_eq!(captured.int(option), Some(value), "{option:?}");
        }
        assert_eq!(captured.congestion_name(), "reno");
        restore_socket_options(other.as_fd(), &captured).unwrap();
        let again = capture_socket_options(other.as_fd()).unwrap();
        assert_eq!(SocketOptions { reuse_address: captured.reuse_address, ..again }, captured);
        let mut changed = captured;
        changed.set_int(IntOption::NoDelay, 0);
        restore_socket_options(other.as_fd(), &changed).unwrap();
        assert_eq!(capture_socket_options(other.as_fd()).unwrap().int(IntOption::NoDelay), Some(0));
    }

    #[test]
    fn what_was_set_in_the_engine_is_set_in_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let before = capture_socket_options(listener.as_fd()).unwrap();
        let keepalive = KeepAlive { idle: Duration::from_secs(10), interval: Duration::from_secs(2), probes: 3 };
        let on = [SocketOption::NoDelay(true), SocketOption::KeepAlive(Some(keepalive))];
        let mut options = before.clone();
        options.set_int(IntOption::Cork, 1);
        options.set_from_engine(&on);
        let told = options.for_engine();
        assert!(on.iter().all(|option| told.contains(option)) && told.contains(&SocketOption::Cork(false)), "{told:?}");
        let mut bytes = Vec::new();
        options.to_bytes(&mut bytes);
        assert_eq!(SocketOptions::from_bytes(&mut &bytes[..]), Some(options));
    }

    #[test]
    fn the_engine_hears_of_what_it_serves() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for (option, value) in [
            (IntOption::NoDelay, 1),
            (IntOption::KeepAlive, 1),
            (IntOption::KeepIdle, 10),
            (IntOption::KeepInterval, 2),
            (IntOption::KeepCount, 3),
            (IntOption::UserTimeout, 1500),
        ] {
            option.write(listener.as_fd(), value).unwrap();
        }
        let options = capture_socket_options(listener.as_fd()).unwrap().for_engine();
        let keepalive = KeepAlive { idle: Duration::from_secs(10), interval: Duration::from_secs(2), probes: 3 };
        for wanted in [
            SocketOption::NoDelay(true),
            SocketOption::Cork(false),
            SocketOption::KeepAlive(Some(keepalive)),
            SocketOption::UserTimeout(Some(Duration::from_millis(1500))),
        ] {
            assert!(options.contains(&wanted), "{wanted:?} in {options:?}");
        }
    }
}
