//! A socket that carries whole messages, and descriptors with them. Nothing here waits.

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

/// Descriptors that come with one message at most.
pub const MAX_FDS: usize = 64;

/// Messages that wait for a peer who does not read, at most.
const BACKLOG: usize = 4096;

/// A message that came: its bytes and its descriptors.
#[derive(Debug)]
pub struct Parcel {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its descriptors, closed with it unless they are taken.
    pub fds: Vec<OwnedFd>,
}

/// One end of a `SOCK_SEQPACKET` connection.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    waiting: VecDeque<Parcel>,
}

impl Channel {
    /// Over a connected socket.
    pub fn new(socket: OwnedFd) -> Channel {
        Channel { socket, waiting: VecDeque::new() }
    }

    /// Sends a message, or keeps it until [`Channel::flush`] while the peer does not read.
    ///
    /// # Errors
    /// `BrokenPipe` and the like once the peer has gone, `OutOfMemory` if it has not read
    /// for too long.
    pub fn send(&mut self, bytes: Vec<u8>, fds: Vec<OwnedFd>) -> io::Result<()> {
        if self.waiting.len() >= BACKLOG {
            return Err(io::Error::new(ErrorKind::OutOfMemory, "the peer does not read its messages"));
        }
        self.waiting.push_back(Parcel { bytes, fds });
        self.flush()
    }

    /// Sends what waits, as far as the peer has room.
    ///
    /// # Errors
    /// As for [`Channel::send`].
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

    /// Sends a message that the peer's process has, whatever becomes of this one, once this
    /// returns: nothing is kept here. Waits for room as long as `patience` each time.
    ///
    /// # Errors
    /// `BrokenPipe` and the like once the peer has gone, `TimedOut` if it does not read.
    pub fn send_now(&self, bytes: &[u8], fds: &[BorrowedFd<'_>], patience: Duration) -> io::Result<()> {
        let patience = Timespec::try_from(patience).expect("seconds that fit");
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

    /// True if something waits for the peer to read.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, `InvalidData` for one that is too long.
    pub fn receive(&self) -> io::Result<Option<Parcel>> {
        self.take(RecvFlags::empty())
    }

    /// The next message, which stays there until [`Channel::consume`]: whoever has this end
    /// then gets it again. Its descriptors are duplicates.
    ///
    /// # Errors
    /// As for [`Channel::receive`].
    pub fn peek(&self) -> io::Result<Option<Parcel>> {
        self.take(RecvFlags::PEEK)
    }

    /// Takes the message away that [`Channel::peek`] showed.
    pub fn consume(&self) {
        // It is there.
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
            return Err(io::Error::new(ErrorKind::InvalidData, "a message that is too long"));
        }
        bytes.truncate(got.bytes);
        Ok((got.bytes > 0).then_some(Parcel { bytes, fds }))
    }
}

fn transmit(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "there is room for MAX_FDS");
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
