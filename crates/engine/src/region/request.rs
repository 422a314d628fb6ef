//! Messages between consumer and engine: requests, completions, events,
//! extents; and how they are written into words.
//!
//! Decoding takes words by value, so that the checked value is the one used, and never panics:
//! invalid input is `None`, and its reader counts it.

use baton_wire::addr::Addr;
use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// Bits that say what happened to a queue pair since the consumer last looked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Events(pub u32);

impl Events {
    /// Nothing.
    pub const NONE: Events = Events(0);
    /// The connection reached ESTABLISHED.
    pub const ESTABLISHED: Events = Events(1);
    /// The listener completed a connection (told by [`Completion::Accepted`] too).
    pub const ACCEPTED: Events = Events(1 << 1);
    /// `rcv_done` moved on.
    pub const RECV: Events = Events(1 << 2);
    /// `snd_done` moved on: there is space to send.
    pub const SEND: Events = Events(1 << 3);
    /// The peer's FIN was reached: the receive stream ends at `rcv_done`.
    pub const PEER_FIN: Events = Events(1 << 4);
    /// The connection is gone; `error` says whether it failed.
    pub const CLOSED: Events = Events(1 << 5);
    /// `error` was set.
    pub const ERROR: Events = Events(1 << 6);
    /// `urgent` was set.
    pub const URGENT: Events = Events(1 << 7);
    /// Data waits for which no receive buffer is posted.
    pub const WANT_BUFFER: Events = Events(1 << 8);
    /// The queue pair belongs to the engine again: the consumer, which closed it, must no
    /// longer touch it or the memory that was posted on it.
    pub const RELEASED: Events = Events(1 << 9);
    /// The connection moved to another stack, with the send stream up to `snd_sent`; close the
    /// queue pair.
    pub const MOVED: Events = Events(1 << 10);

    /// A Ready completion for this queue pair is in the completion ring.
    pub(super) const QUEUED: u32 = 1 << 31;
    /// Bits that mean something to a consumer.
    pub(super) const ALL: u32 = (1 << 11) - 1;

    /// True if every bit of `other` is set.
    #[inline]
    pub const fn contains(self, other: Events) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if any bit of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Events) -> bool {
        self.0 & other.0 != 0
    }

    /// These bits without those of `other`.
    #[inline]
    pub const fn without(self, other: Events) -> Events {
        Events(self.0 & !other.0)
    }

    /// True if no bit is set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Events {
    type Output = Events;
    #[inline]
    fn bitor(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }
}

impl BitOrAssign for Events {
    #[inline]
    fn bitor_assign(&mut self, other: Events) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 11] = [
            "ESTABLISHED",
            "ACCEPTED",
            "RECV",
            "SEND",
            "PEER_FIN",
            "CLOSED",
            "ERROR",
            "URGENT",
            "WANT_BUFFER",
            "RELEASED",
            "MOVED",
        ];
        let mut names = NAMES.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0).map(|(_, name)| *name);
        f.write_str(names.next().unwrap_or("-"))?;
        names.try_for_each(|name| write!(f, "|{name}"))
    }
}

/// A stretch of the data area. Made only by checking it against the area, so it
/// lies within the data area of the region that made it.
///
/// Without padding: connections keep several, each together with a place in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(Rust, packed(4))]
pub struct Extent {
    offset: u64,
    len: u32,
}

impl Extent {
    /// `[offset, offset + len)` if it lies within `data_bytes`.
    #[inline]
    pub(super) const fn checked(offset: u64, len: u32, data_bytes: u64) -> Option<Extent> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= data_bytes => Some(Extent { offset, len }),
            _ => None,
        }
    }

    /// First byte, counted from the start of the data area.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Length in bytes.
    #[inline]
    pub const fn len(self) -> u32 {
        self.len
    }

    /// True if it has no bytes.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Up to `len` bytes of it from byte `at` on: shorter, or empty, where it ends.
    #[inline]
    pub const fn part(self, at: u32, len: u32) -> Extent {
        let at = if at < self.len { at } else { self.len };
        let rest = self.len - at;
        Extent { offset: self.offset + at as u64, len: if len < rest { len } else { rest } }
    }
}

/// Which of a queue pair's two queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Buffers to send from.
    Send,
    /// Buffers to receive into.
    Receive,
}

/// The two ends of a queue pair's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// The address of our end.
    pub local: Addr,
    /// The peer's address; unspecified on a listener.
    pub remote: Addr,
    /// The port of our end.
    pub local_port: u16,
    /// The peer's port; 0 on a listener.
    pub remote_port: u16,
    /// Token of the request that opened the pair; 0 for an accepted connection.
    pub token: u64,
    /// Queue pair of the listener that accepted it; `u32::MAX` for others.
    pub listener: u32,
}

/// A request of a consumer to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Open a connection. Answered by `Opened` (with a queue pair, at once: the
    /// ESTABLISHED or ERROR event follows) or `Failed`.
    Connect {
        /// Comes back in the answer.
        token: u64,
        /// Our address; unspecified lets the engine choose.
        local: Addr,
        /// Our port; 0 lets the engine choose.
        local_port: u16,
        /// The peer's address.
        remote: Addr,
        /// The peer's port.
        remote_port: u16,
        /// Option bits, in the engine's terms.
        options: u64,
    },
    /// Accept connections. Answered by `Opened` or `Failed`.
    Listen {
        /// Comes back in the answer.
        token: u64,
        /// Our address; unspecified means any.
        local: Addr,
        /// Our port; 0 lets the engine choose.
        local_port: u16,
        /// Most connections that wait to be accepted.
        backlog: u32,
        /// Option bits that accepted connections inherit.
        options: u64,
    },
    /// Stop listening and give the queue pair back (RELEASED follows).
    Unlisten {
        /// The listener's queue pair.
        qp: u32,
    },
    /// Send a FIN after the posted bytes.
    Shutdown {
        /// The connection's queue pair.
        qp: u32,
    },
    /// Close in form and give the queue pair back: RELEASED follows once what
    /// was posted to send is acknowledged, or given up.
    Close {
        /// The connection's queue pair.
        qp: u32,
    },
    /// Reset the connection and give the queue pair back (RELEASED follows).
    Abort {
        /// The connection's queue pair.
        qp: u32,
    },
    /// Set an option. Answered by `Done` or `Failed`.
    SetOption {
        /// Comes back in the answer.
        token: u64,
        /// The connection or listener.
        qp: u32,
        /// Which option, in the engine's terms.
        option: u32,
        /// The option's new value.
        value: u64,
    },
    /// Write what is known of a connection into the data area. Answered by
    /// `Done` (the bytes written) or `Failed`.
    Info {
        /// Comes back in the answer.
        token: u64,
        /// The connection's queue pair.
        qp: u32,
        /// Where to, counted from the start of the data area.
        offset: u64,
        /// Space there, in bytes.
        len: u32,
    },
    /// Take back the buffers of an idle connection: all that was received is
    /// delivered, all that was posted to send is acknowledged, and the peer sees an
    /// open window. Answered by `Done`:
    /// no extent posted so far is used any more, and the next one of each queue
    /// begins at `rcv_done`, or at `snd_tail`; or by `Failed`, and nothing changed.
    /// Before it asks, the consumer sets `rcv_limit` back to what it has read;
    /// until the answer it moves no cursor.
    Unpost {
        /// Comes back in the answer.
        token: u64,
        /// The connection's queue pair.
        qp: u32,
    },
}

const CONNECT: u32 = 1;
const LISTEN: u32 = 2;
const UNLISTEN: u32 = 3;
const SHUTDOWN: u32 = 4;
const CLOSE: u32 = 5;
const ABORT: u32 = 6;
const SET_OPTION: u32 = 7;
const INFO: u32 = 8;
const UNPOST: u32 = 9;

/// ```text
///  word 0    kind (low half), queue pair (high half)
///       1    token
///       2 3  local address, high half first
///       4 5  remote address
///       6    local port, remote port (16 bits each), then 32 bits: backlog,
///            option or length
///       7    options, value or offset
/// ```
impl Request {
    /// True if a completion answers it; such requests count against the
    /// completion ring's room until their answer is taken out.
    pub const fn answered(&self) -> bool {
        matches!(
            self,
            Request::Connect { .. }
                | Request::Listen { .. }
                | Request::SetOption { .. }
                | Request::Info { .. }
                | Request::Unpost { .. }
        )
    }

    pub(super) fn encode(&self) -> [u64; 8] {
        let mut words = [0; 8];
        let head = |kind: u32, qp: u32| u64::from(kind) | u64::from(qp) << 32;
        let (hi, lo) = (|addr: Addr| (addr.0 >> 64) as u64, |addr: Addr| addr.0 as u64);
        match *self {
            Request::Connect { token, local, local_port, remote, remote_port, options } => {
                words = [head(CONNECT, 0), token, hi(local), lo(local), hi(remote), lo(remote), 0, options];
                words[6] = u64::from(local_port) | u64::from(remote_port) << 16;
            }
            Request::Listen { token, local, local_port, backlog, options } => {
                words = [head(LISTEN, 0), token, hi(local), lo(local), 0, 0, 0, options];
                words[6] = u64::from(local_port) | u64::from(backlog) << 32;
            }
            Request::Unlisten { qp } => words[0] = head(UNLISTEN, qp),
            Request::Shutdown { qp } => words[0] = head(SHUTDOWN, qp),
            Request::Close { qp } => words[0] = head(CLOSE, qp),
            Request::Abort { qp } => words[0] = head(ABORT, qp),
            Request::SetOption { token, qp, option, value } => {
                words = [head(SET_OPTION, qp), token, 0, 0, 0, 0, u64::from(option) << 32, value];
            }
            Request::Info { token, qp, offset, len } => {
                words = [head(INFO, qp), token, 0, 0, 0, 0, u64::from(len) << 32, offset];
            }
            Request::Unpost { token, qp } => words = [head(UNPOST, qp), token, 0, 0, 0, 0, 0, 0],
        }
        words
    }

    /// Decodes a request from its words; `None` if the kind is unknown or the queue pair is not
    /// below `qps`. The engine checks ports, addresses, options and offsets.
    pub(super) fn decode(words: [u64; 8], qps: u32) -> Option<Request> {
        let [head, token, local_hi, local_lo, remote_hi, remote_lo, mixed, value] = words;
        let qp = (head >> 32) as u32;
        if qp >= qps {
            return None;
        }
        let addr = |hi: u64, lo: u64| Addr(u128::from(hi) << 64 | u128::from(lo));
        let (local, remote) = (addr(local_hi, local_lo), addr(remote_hi, remote_lo));
        let (local_port, remote_port, extra) = (mixed as u16, (mixed >> 16) as u16, (mixed >> 32) as u32);
        Some(match head as u32 {
            CONNECT => Request::Connect { token, local, local_port, remote, remote_port, options: value },
            LISTEN => Request::Listen { token, local, local_port, backlog: extra, options: value },
            UNLISTEN => Request::Unlisten { qp },
            SHUTDOWN => Request::Shutdown { qp },
            CLOSE => Request::Close { qp },
            ABORT => Request::Abort { qp },
            SET_OPTION => Request::SetOption { token, qp, option: extra, value },
            INFO => Request::Info { token, qp, offset: value, len: extra },
            UNPOST => Request::Unpost { token, qp },
            _ => return None,
        })
    }
}

/// A message of the engine to a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// Something happened to a queue pair.
    Ready {
        /// The queue pair.
        qp: u32,
        /// The events; taken out of the queue pair together with the completion.
        events: Events,
    },
    /// A queue pair was given to a connection or listener.
    Opened {
        /// The queue pair.
        qp: u32,
        /// The request's token.
        token: u64,
    },
    /// A listener completed a connection and gave it a queue pair.
    Accepted {
        /// The new connection.
        qp: u32,
        /// The listener's queue pair.
        listener: u32,
    },
    /// A queue pair was given to a connection that comes from another stack. The consumer has
    /// to post what it brings along: the unread bytes at the start of the receive stream, the
    /// unacknowledged and unsent ones at the start of the send stream. `rcv_done` and
    /// `snd_done` count from there once all of it is.
    Adopted {
        /// The queue pair.
        qp: u32,
        /// The token given with the adoption.
        token: u64,
    },
    /// A request could not be served.
    Failed {
        /// The request's token.
        token: u64,
        /// Why: an errno.
        errno: u32,
    },
    /// A request was served.
    Done {
        /// The request's token.
        token: u64,
        /// The result: bytes written by `Info`, else 0.
        value: u32,
    },
}

const READY: u32 = 1;
const OPENED: u32 = 2;
const ACCEPTED: u32 = 3;
const FAILED: u32 = 4;
const DONE: u32 = 5;
const ADOPTED: u32 = 6;

/// ```text
///  word 0    kind (low half); queue pair, errno or value (high half)
///       1    token or listener
/// ```
impl Completion {
    /// True if it is the answer to an answered request ([`Request::answered`]).
    pub const fn answers(&self) -> bool {
        matches!(self, Completion::Opened { .. } | Completion::Failed { .. } | Completion::Done { .. })
    }

    pub(super) fn encode(&self) -> [u64; 2] {
        let head = |kind: u32, high: u32| u64::from(kind) | u64::from(high) << 32;
        match *self {
            Completion::Ready { qp, .. } => [head(READY, qp), 0],
            Completion::Opened { qp, token } => [head(OPENED, qp), token],
            Completion::Accepted { qp, listener } => [head(ACCEPTED, qp), u64::from(listener)],
            Completion::Adopted { qp, token } => [head(ADOPTED, qp), token],
            Completion::Failed { token, errno } => [head(FAILED, errno), token],
            Completion::Done { token, value } => [head(DONE, value), token],
        }
    }

    /// Decodes a completion from its words; `None` if it is invalid. The events of a `Ready`
    /// are filled in from the queue pair.
    pub(super) fn decode(words: [u64; 2], qps: u32) -> Option<Completion> {
        let (kind, high, value) = (words[0] as u32, (words[0] >> 32) as u32, words[1]);
        let qp = Some(high).filter(|&qp| qp < qps);
        Some(match kind {
            READY => Completion::Ready { qp: qp?, events: Events::NONE },
            OPENED => Completion::Opened { qp: qp?, token: value },
            ACCEPTED => Completion::Accepted { qp: qp?, listener: value as u32 },
            ADOPTED => Completion::Adopted { qp: qp?, token: value },
            FAILED => Completion::Failed { token: value, errno: high },
            DONE => Completion::Done { token: value, value: high },
            _ => return None,
        })
    }
}
