//! A packet socket (`packet(7)`) that receives with times, lengths and VLAN tags.
//!
//! This module upholds: addresses, buffers and structures that the kernel reads or fills live
//! during the call and are passed with their true length; control messages are read only within
//! what the kernel said that it filled, by types for which any bits are a value; the descriptor is
//! owned at once.
//!
//! The bump's packet socket (`baton_port::packet`) is another tool: its ring has neither wall
//! times nor frames that were cut, it knows Ethernet alone, and it takes the frames from the
//! kernel.

use libc::{c_int, c_void};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Bytes that wait to be read at most, if the process may ask for them.
const QUEUE: c_int = 64 << 20;
/// `linux/if_packet.h`; not in libc yet.
const PACKET_IGNORE_OUTGOING: c_int = 23;
/// `linux/if_packet.h`: the status says that there is a tag, and its protocol.
const STATUS_VLAN: u32 = 1 << 4;
const STATUS_VLAN_TPID: u32 = 1 << 6;

/// The header at the start of an interface's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An Ethernet header.
    Ethernet,
    /// The IP header.
    Ip,
}

/// A received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes in the buffer.
    pub captured: usize,
    /// Length of the frame.
    pub wire_len: u32,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// A tag that the kernel took off, as it stood on the wire.
    pub vlan: Option<[u8; 4]>,
    /// The ethertype of what follows that tag.
    pub ether_type: u16,
    /// This machine sends it.
    pub outgoing: bool,
}

/// A packet socket (`packet(7)`).
pub struct PacketSocket(OwnedFd);

/// Room for control messages, aligned for their headers.
#[repr(C, align(8))]
struct Control([u8; 256]);

impl PacketSocket {
    /// Opens a socket that sees all frames that `interface` receives.
    pub fn open(interface: &str) -> io::Result<(PacketSocket, Kind)> {
        let name = CString::new(interface).map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
        // SAFETY: `name` is a C string that outlives the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = PacketSocket::make(libc::SOCK_RAW)?;
        socket.ignore_outgoing()?;
        let kind = match socket.bind(index)? {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Kind::Ethernet,
            libc::ARPHRD_NONE | libc::ARPHRD_PPP | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 | libc::ARPHRD_SIT => {
                Kind::Ip
            }
            other => {
                return Err(io::Error::new(io::ErrorKind::Unsupported, format!("frames of hardware type {other}")));
            }
        };
        Ok((socket, kind))
    }

    /// Opens a socket that sees what all interfaces receive and send, without the headers of their links.
    pub fn of_all() -> io::Result<PacketSocket> {
        let socket = PacketSocket::make(libc::SOCK_DGRAM)?;
        socket.bind(0)?;
        Ok(socket)
    }

    /// The same of what they receive.
    pub fn of_all_received() -> io::Result<PacketSocket> {
        let socket = PacketSocket::make(libc::SOCK_DGRAM)?;
        socket.ignore_outgoing()?;
        socket.bind(0)?;
        Ok(socket)
    }

    /// Leaves out what this machine sends: it is not received, and on a loopback device every frame would come twice.
    fn ignore_outgoing(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    }

    fn make(kind: c_int) -> io::Result<PacketSocket> {
        // SAFETY: no pointer is passed. Protocol 0: nothing is received before `bind`.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the descriptor was just made, and is nobody else's.
        let socket = PacketSocket(unsafe { OwnedFd::from_raw_fd(fd) });
        socket.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // Without CAP_NET_ADMIN the queue stays within net.core.rmem_max.
        if socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, QUEUE).is_err() {
            socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, QUEUE)?;
        }
        Ok(socket)
    }

    /// Begins to receive from an interface, or from all (0). Returns the interface's hardware type.
    fn bind(&self, index: u32) -> io::Result<u16> {
        // SAFETY: plain data, for which zeros are a value.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let pointer = (&raw mut address).cast::<libc::sockaddr>();
        // SAFETY: `pointer` is that of `address`, whose length is `len`.
        check(unsafe { libc::bind(self.0.as_raw_fd(), pointer, len) })?;
        // SAFETY: the same, and the kernel writes at most `len` bytes.
        check(unsafe { libc::getsockname(self.0.as_raw_fd(), pointer, &raw mut len) })?;
        Ok(address.sll_hatype)
    }

    fn set(&self, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
        let len = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: the pointer is that of `value`, whose length is `len`.
        let set =
            unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, (&raw const value).cast::<c_void>(), len) };
        check(set).map(drop)
    }

    /// Waits until there is a frame; false on timeout or signal.
    pub fn wait(&self, time: Duration) -> io::Result<bool> {
        let time =
            Timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&time)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives a frame, if there is one, into `buffer`, truncated if it does not fit.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let mut control = Control([0; 256]);
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: plain data, for which zeros are a value.
        let mut message: libc::msghdr = unsafe { zeroed() };
        // SAFETY: the same.
        let mut from: libc::sockaddr_ll = unsafe { zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: `message` names `buffer`, `from` and `control` with their true lengths; all
        // four outlive the call.
        let len = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) };
        if len < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        let mut received = Received {
            captured: (len as usize).min(buffer.len()),
            wire_len: u32::try_from(len).unwrap_or(u32::MAX),
            time_ns: 0,
            vlan: None,
            ether_type: u16::from_be(from.sll_protocol),
            outgoing: from.sll_pkttype == libc::PACKET_OUTGOING,
        };
        // SAFETY: `recvmsg` has filled `control` with whole messages, and said how long
        // they are together; `message` and `control` are still there.
        let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        // SAFETY: what CMSG_FIRSTHDR and CMSG_NXTHDR give is null or a whole header
        // within `control`.
        while let Some(head) = unsafe { header.as_ref() } {
            // SAFETY: the data of a message of this kind follows its header.
            let data = unsafe { libc::CMSG_DATA(head) };
            match (head.cmsg_level, head.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    // SAFETY: of this type the data is a timespec, perhaps unaligned.
                    let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                    received.time_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
                }
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                    // SAFETY: of this type the data is a tpacket_auxdata, perhaps unaligned.
                    let facts = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                    received.wire_len = facts.tp_len.max(received.captured as u32);
                    received.vlan = tag(&facts);
                }
                _ => {}
            }
            // SAFETY: as above.
            header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
        }
        Ok(Some(received))
    }

    /// Frames dropped since the last call because the queue was full.
    pub fn dropped(&self) -> u64 {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        let pointer = (&raw mut stats).cast::<c_void>();
        // SAFETY: `pointer` is that of `stats`, whose length is `len`.
        let got = unsafe {
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, pointer, &raw mut len)
        };
        if got == 0 { stats.tp_drops.into() } else { 0 }
    }
}

/// The tag that the kernel took off a frame, as it stood on the wire.
fn tag(facts: &libc::tpacket_auxdata) -> Option<[u8; 4]> {
    if facts.tp_status & STATUS_VLAN == 0 && facts.tp_vlan_tci == 0 {
        return None;
    }
    let known = facts.tp_status & STATUS_VLAN_TPID != 0;
    let [a, b] = if known { facts.tp_vlan_tpid } else { 0x8100 }.to_be_bytes();
    let [c, d] = facts.tp_vlan_tci.to_be_bytes();
    Some([a, b, c, d])
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
