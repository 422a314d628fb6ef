//! `getsockopt(2)` and `setsockopt(2)`, with values in the layout of the C types.

use super::socket::{Socket, State};
use super::{Answer, Fd, Posix, refuse};
use crate::host::OURS;
use baton_consumer::buffers::Share;
use baton_consumer::consumer::Conn;
use baton_engine::tce::{TCP_INFO_BYTES, tcp_info_bytes};
use baton_tcp::info::Info;
use baton_tcp::options::SocketOption;
use baton_tcp::time::Duration;
use libc::c_int;

/// Values that `TCP_MAXSEG` accepts, in bytes (Linux: `TCP_MIN_MSS`, `MAX_TCP_WINDOW`).
const MAXSEG: std::ops::RangeInclusive<c_int> = 88..=32_767;

/// Size of a `TCP_CONGESTION` name in bytes.
const NAME_BYTES: usize = 16;

impl Posix {
    /// Applies the options that were set before the connection existed.
    pub(super) fn apply_options(&mut self, fd: Fd) {
        let Ok(socket) = self.table.socket(fd) else { return };
        for option in socket.options.beyond_bits() {
            // A connection without the option is better than no connection.
            let _ = self.tell(fd, option);
        }
        self.apply_shares(fd);
    }

    fn apply_shares(&mut self, fd: Fd) {
        let Ok(socket) = self.table.socket(fd) else { return };
        if let Some(conn) = socket.conn() {
            // This fails only for a connection that has ended.
            let _ = self.host.set_shares(conn, socket.options.send_share, socket.options.receive_share);
        }
    }

    fn tell(&mut self, fd: Fd, option: SocketOption) -> Answer<()> {
        let Some(conn) = self.table.socket(fd)?.conn() else { return Ok(()) };
        self.asking(|host| host.set_option(conn, option))
    }

    /// `setsockopt(2)`.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`, `ENOPROTOOPT`, `EINVAL`, `ENOENT` for an unknown
    /// congestion control.
    pub fn set_option(&mut self, fd: Fd, level: c_int, name: c_int, value: &[u8]) -> Answer<()> {
        self.table.socket(fd)?;
        match level {
            libc::SOL_SOCKET => self.set_socket_option(fd, name, value),
            libc::IPPROTO_TCP => self.set_tcp_option(fd, name, value),
            libc::IPPROTO_IP if name == libc::IP_MTU_DISCOVER => self.set_mtu_discover(fd, value),
            libc::IPPROTO_IP => self.set_ip_option(fd, name, value, libc::IP_TOS, libc::IP_TTL),
            libc::IPPROTO_IPV6 if name == libc::IPV6_V6ONLY => {
                let on = int(value)? != 0;
                let socket = self.table.socket_mut(fd)?;
                if !socket.v6 || socket.bound.is_some() || !matches!(socket.state, State::Fresh) {
                    return refuse(libc::EINVAL);
                }
                socket.options.v6only = on;
                Ok(())
            }
            libc::IPPROTO_IPV6 if self.table.socket(fd)?.v6 => {
                self.set_ip_option(fd, name, value, libc::IPV6_TCLASS, libc::IPV6_UNICAST_HOPS)
            }
            _ => refuse(libc::ENOPROTOOPT),
        }
    }

    fn set_socket_option(&mut self, fd: Fd, name: c_int, value: &[u8]) -> Answer<()> {
        let buffer_bytes = self.buffer_bytes;
        let options = &mut self.table.socket_mut(fd)?.options;
        // A negative size counts as the largest, as in Linux.
        let share = |value| int(value).map(|bytes| Share::of(u32::try_from(bytes).unwrap_or(u32::MAX), buffer_bytes));
        match name {
            libc::SO_REUSEADDR => options.reuse_address = int(value)? != 0,
            libc::SO_KEEPALIVE => {
                options.keepalive = int(value)? != 0;
                let option = options.keepalive();
                return self.tell(fd, option);
            }
            libc::SO_LINGER => {
                let (on, seconds) = (int(value)?, int(value.get(4..).unwrap_or_default())?);
                options.linger = (on != 0).then_some(u32::try_from(seconds).unwrap_or(0));
            }
            libc::SO_RCVTIMEO => options.receive_timeout = timeval(value)?,
            libc::SO_SNDTIMEO => options.send_timeout = timeval(value)?,
            libc::SO_RCVBUF => {
                options.receive_share = share(value)?;
                self.apply_shares(fd);
            }
            libc::SO_SNDBUF => {
                options.send_share = share(value)?;
                self.apply_shares(fd);
            }
            _ => return refuse(libc::ENOPROTOOPT),
        }
        Ok(())
    }

    fn set_tcp_option(&mut self, fd: Fd, name: c_int, value: &[u8]) -> Answer<()> {
        if name == libc::TCP_CONGESTION {
            let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
            return if &value[..end] == self.congestion.name().as_bytes() { Ok(()) } else { refuse(libc::ENOENT) };
        }
        let number = int(value)?;
        let on = number != 0;
        let options = &mut self.table.socket_mut(fd)?.options;
        let option = match name {
            libc::TCP_NODELAY => {
                options.nodelay = on;
                SocketOption::NoDelay(on)
            }
            libc::TCP_CORK => {
                options.cork = on;
                SocketOption::Cork(on)
            }
            libc::TCP_MAXSEG if number == 0 || MAXSEG.contains(&number) => {
                // Applies to the next connection of this socket, as in Linux.
                options.most_mss = number as u16;
                return Ok(());
            }
            libc::TCP_NOTSENT_LOWAT => {
                options.notsent_low = number as u32;
                return Ok(());
            }
            libc::TCP_INQ if matches!(number, 0 | 1) => {
                options.inq = on;
                return Ok(());
            }
            libc::TCP_QUICKACK => {
                options.quickack = on;
                SocketOption::QuickAck(on)
            }
            libc::TCP_KEEPIDLE => {
                options.probing.idle = seconds(number, 1..=32_767)?;
                options.keepalive()
            }
            libc::TCP_KEEPINTVL => {
                options.probing.interval = seconds(number, 1..=32_767)?;
                options.keepalive()
            }
            libc::TCP_KEEPCNT if (1..=127).contains(&number) => {
                options.probing.probes = number as u8;
                options.keepalive()
            }
            libc::TCP_USER_TIMEOUT if number >= 0 => {
                options.user_timeout = Duration::from_millis(number as u64);
                SocketOption::UserTimeout((number > 0).then_some(options.user_timeout))
            }
            libc::TCP_LINGER2 => {
                options.linger2 = u32::try_from(number).ok().filter(|seconds| *seconds > 0);
                SocketOption::Linger2(options.linger2.map(|seconds| Duration::from_secs(seconds.into())))
            }
            libc::TCP_KEEPCNT | libc::TCP_USER_TIMEOUT | libc::TCP_MAXSEG | libc::TCP_INQ => {
                return refuse(libc::EINVAL);
            }
            _ => return refuse(libc::ENOPROTOOPT),
        };
        if matches!(option, SocketOption::NoDelay(true) | SocketOption::Cork(false)) {
            self.let_go_held(fd);
        }
        self.tell(fd, option)
    }

    /// Sets `IP_MTU_DISCOVER`. The path MTU is followed whatever is set; `IP_PMTUDISC_DONT` allows
    /// packets to be fragmented on the way. The modes that send beyond the path MTU and leave its
    /// discovery to others are refused.
    fn set_mtu_discover(&mut self, fd: Fd, value: &[u8]) -> Answer<()> {
        let kind = int(value)?;
        if !matches!(kind, libc::IP_PMTUDISC_DONT | libc::IP_PMTUDISC_WANT | libc::IP_PMTUDISC_DO) {
            return refuse(libc::EINVAL);
        }
        let options = &mut self.table.socket_mut(fd)?.options;
        options.mtu_discover = kind;
        options.ip.fragments = kind == libc::IP_PMTUDISC_DONT;
        self.tell_ip_fields(fd)
    }

    fn tell_ip_fields(&mut self, fd: Fd) -> Answer<()> {
        let socket = self.table.socket(fd)?;
        let (ip, Some(conn)) = (socket.options.ip, socket.conn()) else { return Ok(()) };
        self.asking(|host| host.set_ip_fields(conn, ip))
    }

    /// Sets the traffic class or time to live. The option names depend on the IP version.
    fn set_ip_option(&mut self, fd: Fd, name: c_int, value: &[u8], class: c_int, ttl: c_int) -> Answer<()> {
        // A single byte is accepted for these, as in Linux.
        let number = match value {
            [byte] => c_int::from(*byte),
            _ => int(value)?,
        };
        let ip = &mut self.table.socket_mut(fd)?.options.ip;
        match number {
            // The lower two bits are for ECN, which TCP sets itself.
            0..=255 if name == class => ip.traffic_class = number as u8 & !3,
            1..=255 if name == ttl => ip.ttl = number as u8,
            -1 if name == ttl => ip.ttl = 0,
            _ if name == class || name == ttl => return refuse(libc::EINVAL),
            _ => return refuse(libc::ENOPROTOOPT),
        }
        self.tell_ip_fields(fd)
    }

    /// `getsockopt(2)`: returns the whole value, which the caller truncates to its buffer.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`, `ENOPROTOOPT`.
    pub fn option(&mut self, fd: Fd, level: c_int, name: c_int) -> Answer<Vec<u8>> {
        let (buffer, host_ttl) = (self.buffer_bytes, self.ttl);
        let socket = self.table.socket_mut(fd)?;
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_LINGER) => return Ok(linger_bytes(socket.options.linger)),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => return Ok(timeval_bytes(socket.options.receive_timeout)),
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => return Ok(timeval_bytes(socket.options.send_timeout)),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => socket.options.receive_share.bytes(buffer) as c_int,
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => socket.options.send_share.bytes(buffer) as c_int,
            (libc::SOL_SOCKET, name) => socket_number(socket, name)?,
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) if socket.v6 => socket.options.v6only.into(),
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                socket.options.ip.traffic_class.into()
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
                c_int::from(if socket.options.ip.ttl == 0 { host_ttl } else { socket.options.ip.ttl })
            }
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => socket.options.mtu_discover,
            (libc::IPPROTO_TCP, libc::TCP_INFO) => return Ok(self.tcp_info(fd)?.to_vec()),
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let mut name = self.congestion.name().as_bytes().to_vec();
                name.resize(NAME_BYTES, 0);
                return Ok(name);
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                let asked = socket.options.most_mss;
                match socket.conn().and_then(|conn| self.facts(conn)) {
                    Some(info) => info.snd_mss.into(),
                    // Before there is a connection: the size that every host accepts (RFC 9293
                    // §3.7.1).
                    None => c_int::from(if asked == 0 { 536 } else { asked }),
                }
            }
            (libc::IPPROTO_TCP, name) => tcp_number(socket, name)?,
            _ => return refuse(libc::ENOPROTOOPT),
        };
        Ok(number.to_ne_bytes().to_vec())
    }

    /// Returns the connection's `struct tcp_info`; without a connection, only the state is set.
    fn tcp_info(&mut self, fd: Fd) -> Answer<[u8; TCP_INFO_BYTES]> {
        const CLOSE: u8 = 7;
        const LISTEN: u8 = 10;
        let socket = self.table.socket(fd)?;
        let mut nothing = [0; TCP_INFO_BYTES];
        nothing[0] = if matches!(socket.state, State::Listening(_)) { LISTEN } else { CLOSE };
        let info = socket.conn().and_then(|conn| self.facts(conn));
        Ok(info.map_or(nothing, |info| tcp_info_bytes(&info)))
    }

    /// Returns what the engine knows about a connection.
    pub(super) fn facts(&mut self, conn: Conn) -> Option<Info> {
        let now = self.now;
        let engine = self.host.engine();
        let id = engine.streamer().connection(OURS, conn.0)?;
        engine.tce().info(now, id)
    }
}

fn socket_number(socket: &mut Socket, name: c_int) -> Answer<c_int> {
    Ok(match name {
        libc::SO_ERROR => socket.error.take().or_else(|| socket.soft_error.take()).map_or(0, |error| error.0),
        libc::SO_TYPE => libc::SOCK_STREAM,
        libc::SO_DOMAIN if socket.v6 => libc::AF_INET6,
        libc::SO_DOMAIN => libc::AF_INET,
        libc::SO_PROTOCOL => libc::IPPROTO_TCP,
        libc::SO_ACCEPTCONN => matches!(socket.state, State::Listening(_)).into(),
        libc::SO_REUSEADDR => socket.options.reuse_address.into(),
        libc::SO_KEEPALIVE => socket.options.keepalive.into(),
        _ => return refuse(libc::ENOPROTOOPT),
    })
}

fn tcp_number(socket: &Socket, name: c_int) -> Answer<c_int> {
    let options = &socket.options;
    let seconds = |span: Duration| (span.as_millis() / 1000) as c_int;
    Ok(match name {
        libc::TCP_NODELAY => options.nodelay.into(),
        libc::TCP_CORK => options.cork.into(),
        libc::TCP_NOTSENT_LOWAT => options.notsent_low as c_int,
        libc::TCP_INQ => options.inq.into(),
        libc::TCP_QUICKACK => options.quickack.into(),
        libc::TCP_KEEPIDLE => seconds(options.probing.idle),
        libc::TCP_KEEPINTVL => seconds(options.probing.interval),
        libc::TCP_KEEPCNT => options.probing.probes.into(),
        libc::TCP_USER_TIMEOUT => options.user_timeout.as_millis() as c_int,
        libc::TCP_LINGER2 => options.linger2.map_or(60, |seconds| seconds as c_int),
        _ => return refuse(libc::ENOPROTOOPT),
    })
}

fn int(value: &[u8]) -> Answer<c_int> {
    match value.first_chunk() {
        Some(bytes) => Ok(c_int::from_ne_bytes(*bytes)),
        None => refuse(libc::EINVAL),
    }
}

fn seconds(number: c_int, range: std::ops::RangeInclusive<c_int>) -> Answer<Duration> {
    if range.contains(&number) { Ok(Duration::from_secs(number as u64)) } else { refuse(libc::EINVAL) }
}

/// Parses a `struct timeval`: two 64-bit words.
fn timeval(value: &[u8]) -> Answer<Duration> {
    let word = |at: usize| value.get(at..)?.first_chunk().map(|bytes| i64::from_ne_bytes(*bytes));
    match (word(0), word(8)) {
        (Some(seconds), Some(micros @ 0..1_000_000)) => {
            // A negative time has passed already, so it becomes the shortest time that does not
            // mean "none".
            let Ok(seconds) = u64::try_from(seconds) else { return Ok(Duration(1)) };
            Ok(Duration::from_secs(1).saturating_mul(seconds) + Duration::from_micros(micros as u64))
        }
        (Some(_), Some(_)) => refuse(libc::EDOM),
        _ => refuse(libc::EINVAL),
    }
}

fn timeval_bytes(span: Duration) -> Vec<u8> {
    let (seconds, micros) = (span.0 / 1_000_000_000, span.0 % 1_000_000_000 / 1000);
    [seconds.to_ne_bytes(), micros.to_ne_bytes()].concat()
}

fn linger_bytes(linger: Option<u32>) -> Vec<u8> {
    let words = [c_int::from(linger.is_some()), linger.unwrap_or(0) as c_int];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
