//! Reading and writing a connection in an engine, with the kernel's semantics.

use crate::account;
use crate::busy_poll;
use crate::connection::{CallTarget, Held, KernelCall, bring_slot_home, target, target_to_send};
use crate::os::signals::broken_pipe;
use crate::service;
use crate::state::Moved;
use crate::stream_wait::StreamWait;
use baton_consumer::held::interrupted;
use baton_policy::Reason;
use libc::{
    MSG_DONTWAIT, MSG_ERRQUEUE, MSG_FASTOPEN, MSG_MORE, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, c_int,
};
use rustix::io::pread;
use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::Ordering;

/// The number of bytes that are read from a file at once: small enough that they are still in the
/// second-level cache when they are sent.
const PIECE: usize = 64 << 10;

thread_local! {
    /// The buffer for bytes of a file that must be copied. A signal handler that interrupts a copy
    /// gets its own.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The result of a call.
pub enum Done<T> {
    /// The library has served the call.
    Carried(T),
    /// The call fails with this error number.
    Failed(i32),
    /// The kernel serves the call, which must be made while this value exists.
    Kernel(KernelCall),
}

/// The kernel's number for an error.
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

/// Whether a call waits if it would block. This is decided when the call begins.
fn may_wait(held: &Held, flags: c_int) -> bool {
    flags & MSG_DONTWAIT == 0 && !held.slot().nonblocking.load(Ordering::Relaxed)
}

/// The result of a call whose descriptor was closed while it waited.
fn closed_during_wait(count: usize) -> Done<usize> {
    if count > 0 { Done::Carried(count) } else { Done::Failed(libc::EBADF) }
}

/// `recv(2)` and similar calls.
pub fn receive(fd: RawFd, bufs: &mut [IoSliceMut<'_>], flags: c_int) -> Done<usize> {
    if interrupted() {
        return Done::Failed(libc::EAGAIN);
    }
    let want: usize = bufs.iter().map(|buf| buf.len()).sum();
    let mut sleep = StreamWait::new(fd);
    let (mut got, mut waits) = (0, None);
    loop {
        if sleep.descriptor_was_closed() {
            return closed_during_wait(got);
        }
        let held = match target(fd) {
            CallTarget::Carried(held) => held,
            CallTarget::Kernel(_) if got > 0 => return Done::Carried(got),
            CallTarget::Kernel(call) => return Done::Kernel(call),
        };
        if flags & MSG_OOB != 0 {
            // Only the kernel has urgent data: a connection that receives some comes home.
            let is_there = held.stream().is_some_and(|stream| stream.readiness().urgent);
            return if is_there { Done::Kernel(KernelCall::none()) } else { Done::Failed(libc::EINVAL) };
        }
        if flags & MSG_ERRQUEUE != 0 {
            return Done::Failed(libc::EAGAIN);
        }
        let may_wait = *waits.get_or_insert_with(|| may_wait(&held, flags));
        // A peek with MSG_WAITALL waits until all bytes are there at once.
        let peeks_whole = flags & MSG_PEEK != 0 && flags & MSG_WAITALL != 0 && may_wait;
        let moved = if want == 0 {
            // A call without room still waits until a byte has arrived (`sock_rcvlowat`).
            held.receive_piece(&mut [0], MSG_PEEK, sleep.take_arrival()).map(|_| 0)
        } else {
            held.receive(bufs, got, flags, sleep.take_arrival())
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
            libc::EAGAIN if may_wait => match sleep.wait_on(held, false) {
                Ok(()) => continue,
                Err(error) => error,
            },
            libc::EAGAIN => libc::EAGAIN,
            _ if got > 0 => return Done::Carried(got),
            error if held.reports_error() => error,
            _ => return Done::Carried(0),
        };
        return if got > 0 { Done::Carried(got) } else { Done::Failed(error) };
    }
}

/// `send(2)` and similar calls.
pub fn send(fd: RawFd, bufs: &[IoSlice<'_>], flags: c_int) -> Done<usize> {
    let want = bufs.iter().map(|buf| buf.len()).sum();
    send_by(fd, want, flags, |held, put| held.send(bufs, put, flags & MSG_MORE != 0))
}

/// `sendfile(2)`: sends `count` bytes of a file, from byte `at` on.
pub fn send_file(fd: RawFd, file: BorrowedFd<'_>, at: u64, count: usize) -> Done<usize> {
    send_by(fd, count, 0, |held, put| held.send_file(file, at + put as u64, count - put))
}

/// Sends `want` bytes by calling `step(held, offset)` until it is done. `step` sends as many bytes from
/// that offset on as fit, and returns their number, or 0 at the end of its source.
fn send_by(fd: RawFd, want: usize, flags: c_int, step: impl Fn(&Held, usize) -> Result<usize, i32>) -> Done<usize> {
    if interrupted() {
        return Done::Failed(libc::EAGAIN);
    }
    let mut sleep = StreamWait::new(fd);
    let (mut put, mut waits) = (0, None);
    let mut first = true;
    loop {
        if sleep.descriptor_was_closed() {
            return closed_during_wait(put);
        }
        let found = if std::mem::take(&mut first) { target_to_send(fd) } else { target(fd) };
        let held = match found {
            CallTarget::Carried(held) => held,
            CallTarget::Kernel(_) if put > 0 => return Done::Carried(put),
            CallTarget::Kernel(call) => return Done::Kernel(call),
        };
        if flags & MSG_FASTOPEN != 0 {
            return Done::Failed(libc::EISCONN);
        }
        if flags & MSG_OOB != 0 {
            let slot_ref = held.slot_ref;
            drop(held);
            bring_slot_home(&slot_ref, Reason::UrgentData);
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
                let slot_ref = held.slot_ref;
                drop(held);
                bring_slot_home(&slot_ref, Reason::NoBuffers);
                continue;
            }
            Err(error) => error,
        };
        let error = match error {
            // Sending zero bytes cannot block.
            libc::EAGAIN if want == 0 => return Done::Carried(0),
            libc::EAGAIN => {
                held.slot().full.fetch_add(1, Ordering::Relaxed);
                match if may_wait { sleep.wait_on(held, true) } else { Err(libc::EAGAIN) } {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            libc::EPIPE => libc::EPIPE,
            _ if put > 0 => return Done::Carried(put),
            error if held.reports_error() => error,
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
    /// True if no more data will arrive.
    pub fn is_at_end(&self) -> bool {
        self.stream().is_none_or(|stream| stream.readiness().peer_finished)
    }

    /// True if a call must fail with the error it found. False if the error is the one that ended the
    /// connection and another call has reported it. A call that has moved bytes does not report it; the
    /// next call does.
    fn reports_error(&self) -> bool {
        let has_failed = self.moved().is_some_and(|moved| moved.stream.readiness().failed);
        !has_failed || !self.slot().error_reported.swap(true, Ordering::Relaxed)
    }

    /// Receives what is available into `bufs`, after their first `skip` bytes. After an `arrival`, it drives the
    /// engines first.
    fn receive(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        mut skip: usize,
        flags: c_int,
        mut arrival: bool,
    ) -> Result<usize, i32> {
        let mut total = 0;
        for buf in bufs {
            if skip >= buf.len() {
                skip -= buf.len();
                continue;
            }
            let room = &mut buf[std::mem::take(&mut skip)..];
            if total > 0 && flags & MSG_PEEK != 0 {
                // A peek into several buffers fills only the first: a second would see the same bytes.
                break;
            }
            let len = room.len();
            match self.receive_piece(room, flags, std::mem::take(&mut arrival)) {
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

    fn receive_piece(&self, buf: &mut [u8], flags: c_int, arrival: bool) -> Result<usize, i32> {
        let peek = flags & MSG_PEEK != 0;
        if arrival && (peek || self.moved().is_none()) {
            service::look();
        }
        let Some(moved) = self.moved() else {
            return Ok(self.ended().map_or(0, |ended| ended.read(buf, peek)));
        };
        // MSG_TRUNC discards the bytes (tcp(7)).
        let mut discarded = if flags & MSG_TRUNC != 0 { vec![0; buf.len().min(1 << 20)] } else { Vec::new() };
        let into = if flags & MSG_TRUNC != 0 { &mut discarded[..] } else { buf };
        let read = |into: &mut [u8]| if peek { moved.stream.peek(into) } else { (&moved.stream).read(into) };
        let first = |into: &mut [u8]| if arrival && !peek { moved.stream.read_arriving(into) } else { read(into) };
        let read = first(into).or_else(|error| {
            if error.kind() != ErrorKind::WouldBlock {
                return Err(error);
            }
            // `readiness` polls the engine; data may have arrived since the read.
            if moved.stream.readiness().readable { read(into) } else { Err(error) }
        });
        match read {
            Ok(count) => {
                if !peek {
                    moved.count_answer();
                    account::add_bytes(false, count);
                    busy_poll::count_bytes(count);
                }
                Ok(count)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(libc::EAGAIN),
            // An error is reported once; after that a read returns the end of the stream.
            Err(_) if self.slot().error_reported.load(Ordering::Relaxed) => Ok(0),
            Err(error) => Err(errno(&error)),
        }
    }

    /// Sends as much of `bufs` as fits, after their first `skip` bytes.
    fn send(&self, bufs: &[IoSlice<'_>], skip: usize, more: bool) -> Result<usize, i32> {
        let Some(moved) = self.moved() else { return Err(libc::EPIPE) };
        self.sent(moved.stream.send_pieces(bufs, skip, more))
    }

    /// Sends as much of a file as fits, from byte `at` on, piece by piece.
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

    /// Sends one piece of a file that this thread first reads into its buffer.
    fn send_copied(&self, moved: &Moved, file: BorrowedFd<'_>, at: u64, len: usize, more: bool) -> Result<usize, i32> {
        let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
        buffer.resize(PIECE, 0);
        let sent = match pread(file, &mut buffer[..len], at) {
            Ok(0) => Ok(0),
            Ok(len) => self.sent(moved.stream.send_pieces(&[IoSlice::new(&buffer[..len])], 0, more)),
            Err(error) => Err(error.raw_os_error()),
        };
        // While thread-local data is destroyed the buffer is not kept.
        let _ = BUFFER.try_with(|place| place.set(buffer));
        sent
    }

    /// Counts the bytes sent, or converts the error.
    fn sent(&self, sent: io::Result<usize>) -> Result<usize, i32> {
        match sent {
            Ok(count) => {
                account::add_bytes(true, count);
                busy_poll::count_bytes(count);
                Ok(count)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(libc::EAGAIN),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(libc::EPIPE),
            Err(_) if self.slot().error_reported.load(Ordering::Relaxed) => Err(libc::EPIPE),
            Err(error) => Err(errno(&error)),
        }
    }
}
