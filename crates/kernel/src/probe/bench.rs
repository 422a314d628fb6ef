//! A loopback connection on which beliefs are tested.

use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// The longest wait for something that should happen at once.
const SOON: Duration = Duration::from_secs(2);

/// Both ends of a non-blocking connection.
pub(crate) struct Bench {
    pub ours: TcpStream,
    pub peer: TcpStream,
}

impl Bench {
    pub fn new() -> io::Result<Bench> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let ours = TcpStream::connect(listener.local_addr()?)?;
        let (peer, _) = listener.accept()?;
        ours.set_nonblocking(true)?;
        peer.set_nonblocking(true)?;
        Ok(Bench { ours, peer })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    /// Waits until a socket has `bytes` to read, without reading them.
    pub fn wait_unread(socket: &TcpStream, bytes: u32) -> io::Result<()> {
        wait("bytes to read", || Ok(sys::length(socket.as_fd(), sys::Length::Unread)? >= bytes))
    }

    /// Reads exactly `len` bytes.
    pub fn read(mut socket: &TcpStream, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut got = 0;
        wait("all bytes", || {
            match socket.read(&mut bytes[got..]) {
                Ok(0) if got < len => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => got += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            Ok(got == len)
        })?;
        Ok(bytes)
    }

    /// Exchanges a few bytes in each direction.
    pub fn exchange(&self) -> io::Result<()> {
        (&self.ours).write_all(b"there")?;
        (&self.peer).write_all(b"and back")?;
        let (there, back) = (Bench::read(&self.peer, 5)?, Bench::read(&self.ours, 8)?);
        if there == b"there" && back == b"and back" { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
    }

    /// Sends bytes that the peer never acknowledges, and waits until they have left.
    pub fn leave_unacked(&self, len: usize) -> io::Result<()> {
        sys::set_deaf(self.peer.as_fd(), true)?;
        (&self.ours).write_all(&vec![7; len])?;
        wait("bytes that have left", || Ok(sys::length(self.fd(), sys::Length::Unsent)? == 0))
    }

    /// Events that `poll` reports for our end, after at most `patience`.
    pub fn poll(&self, patience: Duration) -> io::Result<PollFlags> {
        let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN | PollFlags::RDHUP)];
        let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        poll(&mut fds, Some(&timeout))?;
        Ok(fds[0].revents())
    }
}

/// Waits until `done` returns true.
pub(crate) fn wait(what: &str, mut done: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let deadline = Instant::now() + SOON;
    while !done()? {
        if Instant::now() > deadline {
            return Err(io::Error::new(ErrorKind::TimedOut, format!("waited in vain for {what}")));
        }
        thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// The number of TCP segments that this thread's namespace has sent, including retransmissions and
/// resets (`/proc/net/snmp`).
pub(crate) fn segments_sent() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/snmp")?;
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let counted = ["OutSegs", "RetransSegs", "OutRsts"];
    let sum = names.split(' ').zip(values.split(' ')).filter(|(name, _)| counted.contains(name));
    Ok(sum.filter_map(|(_, value)| value.parse::<u64>().ok()).sum())
}

/// Waits until this thread's namespace has sent nothing for longer than an acknowledgment may be
/// delayed (40 ms, `TCP_DELACK_MIN`), so that later counts do not include earlier segments.
pub(crate) fn settle() -> io::Result<()> {
    let (mut sent, mut since) = (segments_sent()?, Instant::now());
    wait("silence", || {
        let now = segments_sent()?;
        if now != sent {
            (sent, since) = (now, Instant::now());
        }
        Ok(since.elapsed() >= Duration::from_millis(60))
    })
}

/// Brings the namespace's loopback device up (`RTM_NEWLINK` of rtnetlink(7)).
pub(crate) fn set_loopback_up() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST: u16 = 1;
    const IFF_UP: u32 = 1;
    let mut request = Vec::with_capacity(32);
    request.extend(32u32.to_ne_bytes());
    request.extend(RTM_NEWLINK.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    // `struct ifinfomsg`: family, type, index (1 for loopback), flags, mask of the flags.
    request.extend([0; 4]);
    request.extend(1i32.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    // Protocol 0 is NETLINK_ROUTE.
    let netlink = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&netlink, &request, SendFlags::empty())?;
    Ok(())
}
