//! Two sets of sockets and the wire between them.

use baton_socket::host::HostConfig;
use baton_socket::posix::{Answer, Errno, Fd, Posix, PosixConfig};
use baton_tcp::time::{Duration, Instant};
use libc::c_int;
use std::net::SocketAddr;

pub const IN: u32 = libc::POLLIN as u32;
pub const OUT: u32 = libc::POLLOUT as u32;
pub const ERR: u32 = libc::POLLERR as u32;
pub const HUP: u32 = libc::POLLHUP as u32;
pub const RDHUP: u32 = libc::POLLRDHUP as u32;
pub const EVERYTHING: u32 = IN | OUT | ERR | HUP | RDHUP;

/// A clock value like CLOCK_MONOTONIC on a machine that has been up for weeks.
const START: u64 = 3_000_000_000_000_000;

pub struct Pair {
    pub a: Posix,
    pub b: Posix,
    now: u64,
    /// All frames are lost.
    pub cut: bool,
}

pub fn again<T: std::fmt::Debug + PartialEq>(answer: Answer<T>) {
    assert_eq!(answer, Err(Errno(libc::EAGAIN)));
}

pub fn number(posix: &mut Posix, fd: Fd, level: c_int, name: c_int) -> c_int {
    let bytes = posix.option(fd, level, name).expect("the option exists");
    c_int::from_ne_bytes(*bytes.first_chunk().expect("the value is a number"))
}

pub fn set(posix: &mut Posix, fd: Fd, level: c_int, name: c_int, value: c_int) -> Answer<()> {
    posix.set_option(fd, level, name, &value.to_ne_bytes())
}

impl Pair {
    pub fn new() -> Pair {
        Pair::with(|_| ())
    }

    /// Applies `change` to both configurations.
    pub fn with(change: impl Fn(&mut PosixConfig)) -> Pair {
        let posix = |v4: &str, v6: &str| {
            let mut host = HostConfig::new(v4.parse().unwrap());
            host.engine.interface.addresses.push(v6.parse().unwrap());
            host.engine.interface.mtu = 1500;
            host.engine.tcp.time_wait = Duration::from_millis(100);
            host.consumer.stream_buffer = 64 << 10;
            host.consumer.connections = 64;
            let mut config = PosixConfig { host, queue_frames: 256, descriptors: 64, now: Instant(START) };
            change(&mut config);
            Posix::new(&config).unwrap()
        };
        let (a, b) = (posix("10.0.0.1/24", "fd00::1/64"), posix("10.0.0.2/24", "fd00::2/64"));
        Pair { a, b, now: START, cut: false }
    }

    /// Advances both sides by a tenth of a millisecond.
    pub fn step(&mut self) {
        self.now += 100_000;
        let mut frame = vec![0; 2000];
        self.a.drive(Instant(self.now)).unwrap();
        while let Some(len) = self.a.output(&mut frame).unwrap() {
            if !self.cut {
                self.b.input(&frame[..len]).unwrap();
            }
        }
        self.b.drive(Instant(self.now)).unwrap();
        while let Some(len) = self.b.output(&mut frame).unwrap() {
            if !self.cut {
                self.a.input(&frame[..len]).unwrap();
            }
        }
    }

    /// Takes the next frame of `a` without delivering it to `b`.
    pub fn lose(&mut self) -> Vec<u8> {
        self.a.drive(Instant(self.now)).unwrap();
        let mut frame = vec![0; 2000];
        let len = self.a.output(&mut frame).unwrap().expect("a frame was sent");
        frame.truncate(len);
        frame
    }

    pub fn steps(&mut self, count: usize) {
        (0..count).for_each(|_| self.step());
    }

    /// Makes a listener of `b` at `addr`.
    pub fn listen(&mut self, addr: &str) -> Fd {
        let addr: SocketAddr = addr.parse().unwrap();
        let fd = self.b.socket(domain(addr), libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap();
        self.b.bind(fd, addr).unwrap();
        self.b.listen(fd, 16).unwrap();
        fd
    }

    /// Makes a socket of `a` that is connecting to `addr`.
    pub fn begin(&mut self, addr: &str) -> Fd {
        let addr: SocketAddr = addr.parse().unwrap();
        let fd = self.a.socket(domain(addr), libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap();
        assert_eq!(self.a.connect(fd, addr), Err(Errno(libc::EINPROGRESS)));
        fd
    }

    /// Makes a connection from `a` to `b` over IPv4.
    pub fn connect(&mut self) -> (Fd, Fd) {
        let listener = self.listen("10.0.0.2:7");
        let client = self.begin("10.0.0.2:7");
        self.steps(20);
        assert_eq!(number(&mut self.a, client, libc::SOL_SOCKET, libc::SO_ERROR), 0);
        let (server, peer) = self.b.accept(listener, libc::SOCK_NONBLOCK).unwrap();
        assert_eq!(peer, self.a.local_name(client).unwrap());
        (client, server)
    }
}

fn domain(addr: SocketAddr) -> c_int {
    if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}
