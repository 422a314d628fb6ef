//! Netlink for families for which no crate has typed messages: netfilter and IPsec.
//!
//! ```text
//!   Body::new(fixed header).attr(kind, bytes).nest(kind, |inner| ..)  --Socket::ask, dump--> kernel
//!   kernel --Socket::drain--> (message type, body)       attributes(body) -> (kind, bytes)
//! ```
//!
//! The caller supplies a message's type and flags. Numbers in attributes have the byte order of the
//! family. Every length from the kernel is checked: a message that is cut short ends its iteration
//! and is never read past its end.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `linux/netlink.h`.
pub(crate) const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_ACK: u16 = 4;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Flags of an attribute's kind: nested, and in network byte order.
pub(crate) const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;
const HEADER_LEN: usize = 16;
/// Twice the size of the kernel's largest message.
const BUFFER: usize = 64 << 10;
/// The most datagrams that one call of [`Socket::drain`] reads. The next call reads the rest.
const PER_DRAIN: usize = 256;

/// The body of a request: a fixed header, followed by attributes.
pub(crate) struct Body(Vec<u8>);

impl Body {
    /// A body with the family's fixed header.
    pub fn new(fixed: &[u8]) -> Body {
        let mut bytes = fixed.to_vec();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Body(bytes)
    }

    /// Adds an attribute.
    pub fn attr(mut self, kind: u16, value: &[u8]) -> Body {
        self.begin(kind, value.len());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds an attribute that contains others.
    pub fn nest(mut self, kind: u16, inner: impl FnOnce(Body) -> Body) -> Body {
        let inner = inner(Body(Vec::new())).0;
        self.begin(kind | NLA_F_NESTED, inner.len());
        self.0.extend(inner);
        self
    }

    /// The whole body, beginning with the fixed header.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn begin(&mut self, kind: u16, len: usize) {
        self.0.extend((len as u16 + 4).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
    }
}

/// The attributes in a body after its fixed header, or in a nested attribute: the kind without its
/// flags, and the value.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (len, kind) = (half(rest, 0)?, half(rest, 2)?);
        let value = rest.get(4..usize::from(len))?;
        rest = rest.get(usize::from(len).next_multiple_of(4)..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, value))
    })
}

/// The value of the first attribute of a kind.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// One of several messages in a datagram.
struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let len = word(rest, 0)? as usize;
        let body = rest.get(HEADER_LEN..len)?;
        let message = Message { kind: half(rest, 4)?, flags: half(rest, 6)?, sequence: word(rest, 8)?, body };
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The result at the start of `NLMSG_ERROR` and `NLMSG_DONE`: 0, or a negative error number.
fn outcome(body: &[u8]) -> io::Result<()> {
    match word(body, 0).map(|code| code as i32) {
        Some(code) if code < 0 => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        _ => Ok(()),
    }
}

/// A netlink socket of one family, for requests or for notifications.
pub(crate) struct Socket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket for requests, in the thread's network namespace.
    pub fn open(protocol: impl Into<Option<Protocol>>) -> io::Result<Socket> {
        Socket::bound(protocol.into(), 0, SocketFlags::CLOEXEC)
    }

    /// Opens a non-blocking socket that receives the notifications of these multicast groups (1 to
    /// 32).
    pub fn listen(protocol: impl Into<Option<Protocol>>, groups: &[u32]) -> io::Result<Socket> {
        let groups = groups.iter().fold(0, |bits, group| bits | 1 << (group - 1));
        Socket::bound(protocol.into(), groups, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    fn bound(protocol: Option<Protocol>, groups: u32, flags: SocketFlags) -> io::Result<Socket> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Socket { socket, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// Sends a request and returns the body of the answer, or `None` for an acknowledgment.
    ///
    /// # Errors
    /// The kernel's refusal; [`io::ErrorKind::InvalidData`] for an answer that is cut short.
    pub fn ask(&mut self, kind: u16, flags: u16, body: Body) -> io::Result<Option<Vec<u8>>> {
        self.request(kind, flags, body)?;
        loop {
            let (_, len) = recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty())?;
            let mut answers = messages(&self.buffer[..len.min(BUFFER)]);
            // A message with another number answers an earlier request, for which nobody waits.
            let Some(answer) = answers.find(|message| message.sequence == self.sequence) else { continue };
            return match answer.kind {
                NLMSG_ERROR => outcome(answer.body).map(|()| None),
                NLMSG_DONE => Ok(None),
                _ => Ok(Some(answer.body.to_vec())),
            };
        }
    }

    /// Hands over the type and the body of everything that exists. Returns false if the kernel's
    /// tables changed meanwhile, so that something may be missing; repeat the call then.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn dump(&mut self, kind: u16, body: Body, mut each: impl FnMut(u16, &[u8])) -> io::Result<bool> {
        self.request(kind, NLM_F_REQUEST | NLM_F_DUMP, body)?;
        let mut whole = true;
        loop {
            let (_, len) = recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty())?;
            for answer in messages(&self.buffer[..len.min(BUFFER)]).filter(|answer| answer.sequence == self.sequence) {
                whole &= answer.flags & NLM_F_DUMP_INTR == 0;
                match answer.kind {
                    NLMSG_ERROR | NLMSG_DONE => return outcome(answer.body).map(|()| whole),
                    kind => each(kind, answer.body),
                }
            }
        }
    }

    /// Hands over the type and the body of each notification, without waiting. Returns false if
    /// some were lost, so that anything may have changed.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn drain(&mut self, mut each: impl FnMut(u16, &[u8])) -> io::Result<bool> {
        let mut whole = true;
        for _ in 0..PER_DRAIN {
            match recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty()) {
                Ok((_, len)) => messages(&self.buffer[..len.min(BUFFER)]).for_each(|told| each(told.kind, told.body)),
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::NOBUFS) => whole = false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(whole)
    }

    fn request(&mut self, kind: u16, flags: u16, body: Body) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::with_capacity(HEADER_LEN + body.0.len());
        bytes.extend(((HEADER_LEN + body.0.len()) as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend(self.sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body.0);
        send(&self.socket, &bytes, SendFlags::empty())?;
        Ok(())
    }
}

impl AsFd for Socket {
    /// Readable when [`Socket::drain`] has something to hand over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let body = Body::new(&[2]).attr(1, &[1, 2, 3]).nest(2, |inner| inner.attr(7, &[9]).attr(8, &[]));
        assert_eq!(body.0.len() % 4, 0);
        let found: Vec<_> = attributes(&body.0[4..]).collect();
        assert_eq!(found[0], (1, &[1, 2, 3][..]));
        assert_eq!(attributes(found[1].1).collect::<Vec<_>>(), [(7, &[9][..]), (8, &[][..])]);
        assert_eq!(attribute(&body.0[4..], 3), None);
    }

    #[test]
    fn what_is_cut_short_ends_the_walk() {
        let body = Body::new(&[]).attr(1, &[0; 8]).attr(2, &[0; 8]).0;
        for len in 0..body.len() {
            assert!(attributes(&body[..len]).count() <= 1, "{len}");
        }
        // A length smaller than the attribute's own header would never end.
        assert_eq!(attributes(&[3, 0, 1, 0, 0, 0, 0, 0]).count(), 0);
        assert_eq!(messages(&[15, 0, 0, 0]).count(), 0);
    }
}
