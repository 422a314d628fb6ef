//! Two netlink sockets, one for requests and one that listens. Messages come from
//! netlink-packet-route.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage as Message;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};
use std::io;
use std::os::fd::OwnedFd;

/// `linux/rtnetlink.h`: links, neighbours, and addresses, routes and rules of both IP versions.
const GROUPS: [u32; 8] = [1, 3, 5, 7, 8, 9, 11, 19];
/// Twice the size of the kernel's largest message.
const BUFFER: usize = 64 << 10;
/// The most messages that one poll reads. The next poll reads the rest.
const PER_POLL: usize = 256;

/// The purpose of a request. It determines the request's flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To query something. The answer is one message.
    Ask,
    /// To create or replace something. The answer is success or an error.
    Change,
    /// To add something in front of equal entries. The answer is success or an error.
    Add,
}

/// Sends requests and reads their answers, one request at a time.
pub struct Asker {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Asker {
    pub fn open() -> io::Result<Asker> {
        Ok(Asker { socket: open(0, SocketFlags::CLOEXEC)?, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// Everything of a kind.
    pub fn dump(&mut self, message: Message) -> io::Result<Vec<Message>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.sequence_number = self.sequence;
        request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        self.send(request)?;
        let mut answers = Vec::new();
        loop {
            let (_, len) = recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty())?;
            let mut rest = &self.buffer[..len.min(BUFFER)];
            while !rest.is_empty() {
                let reply = NetlinkMessage::<Message>::deserialize(rest).map_err(io::Error::other)?;
                let step = (reply.header.length as usize).max(1).next_multiple_of(4);
                rest = rest.get(step..).unwrap_or_default();
                if reply.header.sequence_number != self.sequence {
                    continue;
                }
                match reply.payload {
                    NetlinkPayload::InnerMessage(message) => answers.push(message),
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok(answers),
                        Some(code) => return Err(io::Error::from_raw_os_error(-code.get())),
                    },
                    _ => {}
                }
            }
        }
    }

    fn send(&self, mut request: NetlinkMessage<Message>) -> io::Result<()> {
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        send(&self.socket, &bytes, SendFlags::empty()).map(drop).map_err(io::Error::from)
    }

    /// The answer to a request; `None` if it is only an acknowledgment. A refusal of the kernel is
    /// an error.
    pub fn ask(&mut self, message: Message, purpose: Purpose) -> io::Result<Option<Message>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.sequence_number = self.sequence;
        request.header.flags = match purpose {
            Purpose::Ask => NLM_F_REQUEST,
            Purpose::Change => NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE,
            Purpose::Add => NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE,
        };
        self.send(request)?;
        loop {
            let (_, len) = recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty())?;
            let reply = NetlinkMessage::<Message>::deserialize(&self.buffer[..len]).map_err(io::Error::other)?;
            if reply.header.sequence_number != self.sequence {
                // This answers an earlier request, for which nobody waits.
                continue;
            }
            return match reply.payload {
                NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
                NetlinkPayload::Error(error) => match error.code {
                    None => Ok(None),
                    Some(code) => Err(io::Error::from_raw_os_error(-code.get())),
                },
                _ => Ok(None),
            };
        }
    }
}

/// Reads notifications.
pub struct Listener {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Listener {
    pub fn open() -> io::Result<Listener> {
        let groups = GROUPS.iter().fold(0, |bits, group| bits | 1 << (group - 1));
        let socket = open(groups, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        Ok(Listener { socket, buffer: vec![0; BUFFER] })
    }

    /// Hands over the notifications that have arrived, without waiting. Returns false if some were
    /// lost, so that anything may have changed.
    pub fn drain(&mut self, mut take: impl FnMut(Message)) -> io::Result<bool> {
        let mut whole = true;
        for _ in 0..PER_POLL {
            let len = match recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty()) {
                Ok((_, len)) => len,
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::NOBUFS) => {
                    whole = false;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut rest = &self.buffer[..len.min(BUFFER)];
            while !rest.is_empty() {
                let Ok(message) = NetlinkMessage::<Message>::deserialize(rest) else {
                    // The netlink crate does not know this kind.
                    whole = false;
                    break;
                };
                let step = (message.header.length as usize).max(1).next_multiple_of(4);
                if let NetlinkPayload::InnerMessage(message) = message.payload {
                    take(message);
                }
                rest = rest.get(step..).unwrap_or_default();
            }
        }
        Ok(whole)
    }
}

impl std::os::fd::AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open(groups: u32, flags: SocketFlags) -> io::Result<OwnedFd> {
    // NETLINK_ROUTE is protocol 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}
