//! Frames that leave through a packet socket.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg, sendmsg};

use crate::vnet::Vnet;
use crate::vnet_tap::PIECES;

/// Frames that one system call sends.
const BATCH: usize = 64;
/// Link headers with two VLAN tags, in bytes.
const LINK: usize = 22;

/// Frames that wait to be sent together.
pub struct Outbox {
    /// One behind the other, each with its virtio header, in slots of one length.
    bytes: Box<[u8]>,
    slot_len: usize,
    lens: ArrayVec<usize, BATCH>,
    /// How many of them have been sent.
    sent: usize,
    /// Frames lost because the interface is down.
    pub link_down: u64,
    /// Frames refused because of their contents.
    pub refused: u64,
    /// The error that ended the interface.
    pub gone: Option<io::Error>,
}

impl Outbox {
    pub fn new(mtu: u32) -> Outbox {
        let slot_len = (Vnet::LEN + LINK + mtu as usize).next_multiple_of(64).min(16 << 10);
        Outbox {
            bytes: vec![0; slot_len * BATCH].into_boxed_slice(),
            slot_len,
            lens: ArrayVec::new(),
            sent: 0,
            link_down: 0,
            refused: 0,
            gone: None,
        }
    }

    /// Sends one frame, or keeps a copy; false if the queue is full.
    pub fn send(&mut self, fd: &OwnedFd, vnet: Vnet, pieces: &[IoSlice<'_>]) -> bool {
        let len = Vnet::LEN + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if len > self.slot_len {
            self.flush(fd);
            return self.lens.is_empty() && self.send_now(fd, vnet, pieces);
        }
        if self.lens.is_full() {
            self.flush(fd);
            if self.lens.is_full() {
                return false;
            }
        }
        let mut slot = &mut self.bytes[self.lens.len() * self.slot_len..][..len];
        for piece in [&vnet.to_bytes()[..]].into_iter().chain(pieces.iter().map(|piece| &piece[..])) {
            let (to, rest) = slot.split_at_mut(piece.len());
            to.copy_from_slice(piece);
            slot = rest;
        }
        self.lens.push(len);
        true
    }

    fn send_now(&mut self, fd: &OwnedFd, vnet: Vnet, pieces: &[IoSlice<'_>]) -> bool {
        let header = vnet.to_bytes();
        let mut all = ArrayVec::<IoSlice<'_>, { PIECES + 1 }>::new();
        all.push(IoSlice::new(&header));
        if all.try_extend_from_slice(pieces).is_err() {
            self.refused += 1;
            return true;
        }
        match sendmsg(fd, &all, &mut SendAncillaryBuffer::default(), SendFlags::DONTWAIT) {
            Ok(_) => true,
            Err(error) => self.refuse(error),
        }
    }

    /// Notes why a frame was not sent; false if it may be later.
    fn refuse(&mut self, error: Errno) -> bool {
        match error {
            Errno::AGAIN | Errno::NOBUFS | Errno::INTR => return false,
            Errno::NETDOWN => self.link_down += 1,
            Errno::NXIO | Errno::NODEV => self.gone = Some(error.into()),
            _ => self.refused += 1,
        }
        true
    }

    /// Sends waiting frames, as far as the socket takes them.
    pub fn flush(&mut self, fd: &OwnedFd) {
        while self.sent < self.lens.len() && self.gone.is_none() {
            match self.send_waiting(fd) {
                Ok(count) => self.sent += count,
                Err(error) if !self.refuse(error) => return,
                // The first of them was refused.
                Err(_) => self.sent += 1,
            }
        }
        (self.sent, self.lens) = (0, ArrayVec::new());
    }

    fn send_waiting(&self, fd: &OwnedFd) -> Result<usize, Errno> {
        let slots = self.bytes.chunks(self.slot_len).zip(&self.lens).skip(self.sent);
        let slices: ArrayVec<IoSlice<'_>, BATCH> = slots.map(|(slot, len)| IoSlice::new(&slot[..*len])).collect();
        let mut none: ArrayVec<SendAncillaryBuffer<'_, '_, '_>, BATCH> =
            slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: ArrayVec<MMsgHdr<'_>, BATCH> =
            slices.iter().zip(&mut none).map(|(slice, none)| MMsgHdr::new(std::slice::from_ref(slice), none)).collect();
        sendmmsg(fd, &mut messages, SendFlags::DONTWAIT)
    }
}
