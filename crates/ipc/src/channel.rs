//! A socket that carries whole messages and descriptors. Its operations do not block, except
//! [`Channel::send_now`].

use super::codec::MAX_MESSAGE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, sendmsg,
};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Most descriptors in one message.
pub const MAX_FDS: usize = 64;

/// Most messages that are queued for a peer that does not read.
const BACKLOG: usize = 4096;

/// A received message.
#[derive(Debug)]
pub struct Parcel {
    /// The message itself.
    pub bytes: Vec<u8>,
    /// Descriptors that came with it. Those that are not taken out are closed on drop.
    pub fds: Vec<OwnedFd>,
}

/// One end of a `SOCK_SEQPACKET` connection.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    waiting: VecDeque<Parcel>,
}

impl Channel {
    /// Makes a channel from a connected socket.
    pub fn new(socket: OwnedFd) -> Channel {
        Channel { socket, waiting: VecDeque::new() }
    }

    /// Sends a message, or queues it until [`Channel::flush`] if the peer does not read.
    ///
    /// # Errors
    /// `BrokenPipe` and similar errors once the peer has gone, `OutOfMemory` if the queue is full.
    pub fn send(&mut self, bytes: Vec<u8>, fds: Vec<OwnedFd>) -> io::Result<()> {
        if self.waiting.len() >= BACKLOG {
            return Err(io::Error::new(ErrorKind::OutOfMemory, "the peer does not read its messages"));
        }
        self.waiting.push_back(Parcel { bytes, fds });
        self.flush()
    }

    /// Sends queued messages until the socket is full.
    ///
    /// # Errors
    /// Those of [`Channel::send`].
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some(parcel) = self.waiting.front() {
            let fds: Vec<BorrowedFd<'_>> = parcel.fds.iter().map(AsFd::as_fd).collect();
            match transmit(self.socket.as_fd(), &parcel.bytes, &fds) {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a message immediately. Once this returns, the peer's process receives the message even
    /// if this process dies. Each wait for space in the socket lasts at most `patience`.
    ///
    /// # Errors
    /// `BrokenPipe` and similar errors once the peer has gone, `TimedOut` if it does not read.
    pub fn send_now(&self, bytes: &[u8], fds: &[BorrowedFd<'_>], patience: Duration) -> io::Result<()> {
        let patience = Timespec::try_from(patience).expect("the timeout's seconds fit into an i64");
        loop {
            match transmit(self.socket.as_fd(), bytes, fds) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut wanted = [PollFd::new(&self.socket, PollFlags::OUT)];
                    match poll(&mut wanted, Some(&patience)) {
                        Ok(0) => return Err(ErrorKind::TimedOut.into()),
                        Ok(_) | Err(rustix::io::Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                sent => return sent,
            }
        }
    }

    /// True if messages are queued for the peer.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Receives the next message; `None` at the end of the connection.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, `InvalidData` for a message that is too long.
    pub fn receive(&self) -> io::Result<Option<Parcel>> {
        self.take(RecvFlags::empty())
    }

    /// Reads the next message without removing it: until [`Channel::consume`], any holder of this
    /// end can receive it again. The descriptors are duplicates.
    ///
    /// # Errors
    /// Those of [`Channel::receive`].
    pub fn peek(&self) -> io::Result<Option<Parcel>> {
        self.take(RecvFlags::PEEK)
    }

    /// Removes the message that [`Channel::peek`] returned.
    pub fn consume(&self) {
        // The peek has shown that a message is there.
        let _ = recv(&self.socket, &mut [0; 1], RecvFlags::DONTWAIT);
    }

    fn take(&self, flags: RecvFlags) -> io::Result<Option<Parcel>> {
        let mut bytes = vec![0; MAX_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = flags | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::new(ErrorKind::InvalidData, "the message is too long"));
        }
        bytes.truncate(got.bytes);
        Ok((got.bytes > 0).then_some(Parcel { bytes, fds }))
    }
}

fn transmit(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "the buffer holds MAX_FDS descriptors");
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
