//! Reading and writing a connection that is not in the kernel, as the kernel would do it.

use crate::account;
use crate::bell::Sleep;
use crate::connection::{Held, KernelCall, Moved, Place, bring_home_named, place, place_to_send};
use crate::patience;
use crate::sys::signals::broken_pipe;
use crate::sys::socket::timeout;
use baton_consumer::held::interrupted;
use libc::{
    MSG_DONTWAIT, MSG_ERRQUEUE, MSG_FASTOPEN, MSG_MORE, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, c_int,
};
use rustix::io::pread;
use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::Ordering;

/// Bytes that are taken from a file at once: a second-level cache still has them when they
/// are sent.
const PIECE: usize = 64 << 10;

thread_local! {
    /// Where they are meanwhile, if they have to be copied; a handler that interrupts a copy has
    /// its own.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What came of a call.
pub enum Done<T> {
    /// It was carried.
    Carried(T),
    /// It failed so (`errno`).
    Failed(i32),
    /// It is the kernel's: to be made while this lives.
    Kernel(KernelCall),
}

/// As the kernel says it.
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        ErrorKind::WouldBlock => libc::EAGAIN,
        ErrorKind::BrokenPipe => libc::EPIPE,
        ErrorKind::NotConnected => libc::ENOTCONN,
        ErrorKind::ConnectionReset => libc::ECONNRESET,
        ErrorKind::ConnectionAborted => libc::ECONNABORTED,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::OutOfMemory => libc::ENOBUFS,
        ErrorKind::InvalidInput => libc::EINVAL,
        _ => libc::EIO,
    })
}

/// Whether a call that finds nothing to do waits: that is settled when it begins.
fn may_wait(held: &Held, flags: c_int) -> bool {
    flags & MSG_DONTWAIT == 0 && !held.slot().nonblocking.load(Ordering::Relaxed)
}

/// What came of a call whose descriptor was closed while it waited.
fn lost(count: usize) -> Done<usize> {
    if count > 0 { Done::Carried(count) } else { Done::Failed(libc::EBADF) }
}

/// `recv(2)` and its like.
pub fn receive(fd: RawFd, bufs: &mut [IoSliceMut<'_>], flags: c_int) -> Done<usize> {
    if interrupted() {
        return Done::Failed(libc::EAGAIN);
    }
    let want: usize = bufs.iter().map(|buf| buf.len()).sum();
    let mut sleep = Sleep::new(fd);
    let (mut got, mut waits) = (0, None);
    loop {
        if sleep.has_lost_it() {
            return lost(got);
        }
        let held = match place(fd) {
            Place::Carried(held) => held,
            Place::Kernel(_) if got > 0 => return Done::Carried(got),
            Place::Kernel(call) => return Done::Kernel(call),
        };
        if flags & MSG_OOB != 0 {
            // There is none: what has urgent data does not move.
            return Done::Failed(libc::EINVAL);
        }
        if flags & MSG_ERRQUEUE != 0 {
            return Done::Failed(libc::EAGAIN);
        }
        let may_wait = *waits.get_or_insert_with(|| may_wait(&held, flags));
        // A peek that is to be whole waits until all is there at once.
        let peeks_whole = flags & MSG_PEEK != 0 && flags & MSG_WAITALL != 0 && may_wait;
        let moved = if want == 0 {
            // Whoever has no room waits for something to come all the same (`sock_rcvlowat`).
            held.receive_piece(&mut [0], MSG_PEEK).map(|_| 0)
        } else {
            held.receive(bufs, got, flags)
        };
        let error = match moved {
            Ok(0) => return Done::Carried(got),
            Ok(count) if peeks_whole && count < want && !held.is_at_end() => libc::EAGAIN,
            Ok(count) => {
                got += count;
                if flags & MSG_PEEK == 0 {
                    held.count(count);
                }
                if got == want || flags & MSG_WAITALL == 0 || flags & MSG_PEEK != 0 || !may_wait {
                    return Done::Carried(got);
                }
                continue;
            }
            Err(error) => error,
        };
        let error = match error {
            libc::EAGAIN if may_wait => match sleep.on(held, || timeout(fd, false)) {
                Ok(()) => continue,
                Err(error) => error,
            },
            libc::EAGAIN => libc::EAGAIN,
            _ if got > 0 => return Done::Carried(got),
            error if held.tells() => error,
            _ => return Done::Carried(0),
        };
        return if got > 0 { Done::Carried(got) } else { Done::Failed(error) };
    }
}

/// `send(2)` and its like.
pub fn send(fd: RawFd, bufs: &[IoSlice<'_>], flags: c_int) -> Done<usize> {
    let want = bufs.iter().map(|buf| buf.len()).sum();
    send_by(fd, want, flags, |held, put| held.send(bufs, put, flags & MSG_MORE != 0))
}

/// `sendfile(2)`: so many bytes of a file, from byte `at` on.
pub fn send_file(fd: RawFd, file: BorrowedFd<'_>, at: u64, count: usize) -> Done<usize> {
    send_by(fd, count, 0, |held, put| held.send_file(file, at + put as u64, count - put))
}

/// Sends `want` bytes, by what sends those from a number on that there is room for, or none at
/// their end.
fn send_by(fd: RawFd, want: usize, flags: c_int, step: impl Fn(&Held, usize) -> Result<usize, i32>) -> Done<usize> {
    if interrupted() {
        return Done::Failed(libc::EAGAIN);
    }
    let mut sleep = Sleep::new(fd);
    let (mut put, mut waits) = (0, None);
    let mut first = true;
    loop {
        if sleep.has_lost_it() {
            return lost(put);
        }
        let whose = if std::mem::take(&mut first) { place_to_send(fd) } else { place(fd) };
        let held = match whose {
            Place::Carried(held) => held,
            Place::Kernel(_) if put > 0 => return Done::Carried(put),
            Place::Kernel(call) => return Done::Kernel(call),
        };
        if flags & MSG_FASTOPEN != 0 {
            return Done::Failed(libc::EISCONN);
        }
        if flags & MSG_OOB != 0 {
            let named = held.named;
            drop(held);
            bring_home_named(&named, "urgent-data");
            continue;
        }
        let may_wait = *waits.get_or_insert_with(|| may_wait(&held, flags));
        let error = match step(&held, put) {
            Ok(0) => return Done::Carried(put),
            Ok(count) => {
                put += count;
                if put < want {
                    held.slot().full.fetch_add(1, Ordering::Relaxed);
                }
                held.count(count);
                if put == want {
                    return Done::Carried(put);
                }
                if !may_wait {
                    return Done::Carried(put);
                }
                continue;
            }
            Err(libc::ENOBUFS) => {
                let named = held.named;
                drop(held);
                bring_home_named(&named, "no-buffers");
                continue;
            }
            Err(error) => error,
        };
        let error = match error {
            // Nothing needs no room.
            libc::EAGAIN if want == 0 => return Done::Carried(0),
            libc::EAGAIN => {
                held.slot().full.fetch_add(1, Ordering::Relaxed);
                match if may_wait { sleep.on(held, || timeout(fd, true)) } else { Err(libc::EAGAIN) } {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            libc::EPIPE => libc::EPIPE,
            _ if put > 0 => return Done::Carried(put),
            error if held.tells() => error,
            _ => libc::EPIPE,
        };
        if put > 0 {
            return Done::Carried(put);
        }
        if error == libc::EPIPE && flags & MSG_NOSIGNAL == 0 {
            broken_pipe();
        }
        return Done::Failed(error);
    }
}

impl Held {
    /// Nothing more will come.
    pub fn is_at_end(&self) -> bool {
        self.stream().is_none_or(|stream| stream.readiness().peer_finished)
    }

    /// True if a call is to fail with what it found: not if that is what ended the connection, and
    /// another call was told. A call that has moved something is not told, but the next.
    fn tells(&self) -> bool {
        let has_failed = self.moved().is_some_and(|moved| moved.stream.readiness().failed);
        !has_failed || !self.slot().told.swap(true, Ordering::Relaxed)
    }

    /// Moves what there is into `bufs`, beyond their first `skip` bytes.
    fn receive(&self, bufs: &mut [IoSliceMut<'_>], mut skip: usize, flags: c_int) -> Result<usize, i32> {
        let mut total = 0;
        for buf in bufs {
            if skip >= buf.len() {
                skip -= buf.len();
                continue;
            }
            let room = &mut buf[std::mem::take(&mut skip)..];
            if total > 0 && flags & MSG_PEEK != 0 {
                // A peek of several pieces gives the first.
                break;
            }
            let len = room.len();
            match self.receive_piece(room, flags) {
                Ok(count) => {
                    total += count;
                    if count < len {
                        break;
                    }
                }
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    fn receive_piece(&self, buf: &mut [u8], flags: c_int) -> Result<usize, i32> {
        let peek = flags & MSG_PEEK != 0;
        let Some(moved) = self.moved() else {
            return Ok(self.over().map_or(0, |over| over.read(buf, peek)));
        };
        // What is only counted away is read into nothing (tcp(7), MSG_TRUNC).
        let mut nowhere = if flags & MSG_TRUNC != 0 { vec![0; buf.len().min(1 << 20)] } else { Vec::new() };
        let into = if flags & MSG_TRUNC != 0 { &mut nowhere[..] } else { buf };
        let read = |into: &mut [u8]| if peek { moved.stream.peek(into) } else { (&moved.stream).read(into) };
        let read = read(into).or_else(|error| {
            if error.kind() != ErrorKind::WouldBlock {
                return Err(error);
            }
            // What an engine has said since is here only when it is looked for.
            if moved.stream.readiness().readable { read(into) } else { Err(error) }
        });
        match read {
            Ok(count) => {
                if !peek {
                    account::add_bytes(false, count);
                    patience::carried(count);
                }
                Ok(count)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(libc::EAGAIN),
            // An error is told once; then there is the end.
            Err(_) if self.slot().told.load(Ordering::Relaxed) => Ok(0),
            Err(error) => Err(errno(&error)),
        }
    }

    /// Moves what there is room for out of `bufs`, beyond their first `skip` bytes.
    fn send(&self, bufs: &[IoSlice<'_>], skip: usize, more: bool) -> Result<usize, i32> {
        let Some(moved) = self.moved() else { return Err(libc::EPIPE) };
        self.sent(moved.stream.send_pieces(bufs, skip, more))
    }

    /// Moves what there is room for of a file, from byte `at` on, piece by piece.
    fn send_file(&self, file: BorrowedFd<'_>, at: u64, count: usize) -> Result<usize, i32> {
        let Some(moved) = self.moved() else { return Err(libc::EPIPE) };
        let mut put = 0;
        while put < count {
            let len = (count - put).min(PIECE);
            let more = put + len < count;
            let sent = match moved.stream.send_file(file, at + put as u64, len, more) {
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    self.send_copied(moved, file, at + put as u64, len, more)
                }
                sent => self.sent(sent),
            };
            match sent {
                Ok(0) => break,
                Ok(count) => put += count,
                Err(_) if put > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(put)
    }

    /// The same of one piece, by a copy that this thread reads first.
    fn send_copied(&self, moved: &Moved, file: BorrowedFd<'_>, at: u64, len: usize, more: bool) -> Result<usize, i32> {
        let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
        buffer.resize(PIECE, 0);
        let sent = match pread(file, &mut buffer[..len], at) {
            Ok(0) => Ok(0),
            Ok(len) => self.sent(moved.stream.send_pieces(&[IoSlice::new(&buffer[..len])], 0, more)),
            Err(error) => Err(error.raw_os_error()),
        };
        // A thread that is about to end has none.
        let _ = BUFFER.try_with(|place| place.set(buffer));
        sent
    }

    /// What came of sending.
    fn sent(&self, sent: io::Result<usize>) -> Result<usize, i32> {
        match sent {
            Ok(count) => {
                account::add_bytes(true, count);
                patience::carried(count);
                Ok(count)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(libc::EAGAIN),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(libc::EPIPE),
            Err(_) if self.slot().told.load(Ordering::Relaxed) => Err(libc::EPIPE),
            Err(error) => Err(errno(&error)),
        }
    }
}
