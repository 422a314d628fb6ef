//! Services that only `sock_diag` offers (`ss` uses it too): whether a connection has TCP-MD5
//! keys, its control group, and aborting a socket that another process holds. Keys and aborts need
//! CAP_NET_ADMIN.

use crate::netlink::attributes;
use baton_wire::addr::Addr;
use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// `linux/netlink.h`, `linux/sock_diag.h`, `linux/inet_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLMSG_ERROR: u16 = 2;
const INET_DIAG_MD5SIG: u16 = 18;
const INET_DIAG_CGROUP_ID: u16 = 21;
/// Requests `TCP_INFO`: without it the kernel omits the keys (observed on 6.18).
const WITH_INFO: u8 = 1 << 1;
const HEADER_LEN: usize = 16;
/// `struct inet_diag_msg`.
const MESSAGE_LEN: usize = 72;

/// The report of `sock_diag` on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Diagnosis {
    /// TCP-MD5 signs its segments.
    pub md5: bool,
    /// The number of its control group (version 2); 0 if the kernel reports none.
    pub cgroup: u64,
}

/// Queries a connection.
pub(crate) fn diagnose(fd: BorrowedFd<'_>, local: SocketAddr, remote: SocketAddr) -> io::Result<Diagnosis> {
    let interface = crate::sys::get_int(fd, libc::SOL_SOCKET, crate::sys::SO_BINDTOIFINDEX).unwrap_or(0);
    let netlink = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    // An unconnected netlink socket sends to the kernel.
    let question = request(SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, local, remote, interface as u32);
    send(&netlink, &question, SendFlags::empty())?;
    let mut reply = [0; 8192];
    let (_, len) = recv(&netlink, reply.as_mut_slice(), RecvFlags::empty())?;
    answer(&reply[..len.min(reply.len())])
}

/// Aborts a socket in the thread's network namespace, whichever process holds it. `interface` is
/// the index of the device that the socket is bound to, or 0. Later calls on the socket fail with
/// `ECONNABORTED` (`tcp_abort()`, `net/ipv4/tcp.c`).
///
/// # Errors
/// `NotFound` if there is no such socket; `Unsupported` where the kernel has no
/// `CONFIG_INET_DIAG_DESTROY`.
pub(crate) fn destroy(local: SocketAddr, remote: SocketAddr, interface: u32) -> io::Result<()> {
    let netlink = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    send(&netlink, &request(SOCK_DESTROY, NLM_F_REQUEST | NLM_F_ACK, local, remote, interface), SendFlags::empty())?;
    let mut reply = [0; 512];
    let (_, len) = recv(&netlink, reply.as_mut_slice(), RecvFlags::empty())?;
    acknowledged(&reply[..len.min(reply.len())])
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(kind: u16, flags: u16, local: SocketAddr, remote: SocketAddr, interface: u32) -> Vec<u8> {
    let [local_ip, remote_ip] = [local, remote].map(|end| Addr::from(end.ip()));
    let v4 = local_ip.is_v4();
    let family = if v4 { libc::AF_INET } else { libc::AF_INET6 } as u8;
    let address = |addr: Addr| {
        let mut bytes = [0; 16];
        if v4 {
            bytes[..4].copy_from_slice(&addr.octets_v4())
        } else {
            bytes = addr.octets()
        }
        bytes
    };
    let mut out = Vec::with_capacity(HEADER_LEN + 56);
    out.extend(72u32.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend([0; 8]);
    out.extend([family, libc::IPPROTO_TCP as u8, WITH_INFO, 0]);
    // All states.
    out.extend(u32::MAX.to_ne_bytes());
    out.extend(local.port().to_be_bytes());
    out.extend(remote.port().to_be_bytes());
    out.extend(address(local_ip));
    out.extend(address(remote_ip));
    out.extend(interface.to_ne_bytes());
    // Any socket cookie.
    out.extend([0xff; 8]);
    out
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Reads the number in an `NLMSG_ERROR`, which is 0 if the kernel did what was asked.
fn acknowledged(reply: &[u8]) -> io::Result<()> {
    let code = reply.get(HEADER_LEN..HEADER_LEN + 4).ok_or(io::ErrorKind::UnexpectedEof)?;
    match i32::from_ne_bytes([code[0], code[1], code[2], code[3]]) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

/// Reads the attributes of the kernel's answer.
fn answer(reply: &[u8]) -> io::Result<Diagnosis> {
    let kind = half(reply, 4).ok_or(io::ErrorKind::UnexpectedEof)?;
    if kind == NLMSG_ERROR {
        return acknowledged(reply).map(|()| Diagnosis::default());
    }
    let mut found = Diagnosis::default();
    for (kind, value) in attributes(reply.get(HEADER_LEN + MESSAGE_LEN..).unwrap_or_default()) {
        match kind {
            INET_DIAG_MD5SIG => found.md5 = !value.is_empty(),
            INET_DIAG_CGROUP_ID => found.cgroup = value.try_into().map_or(0, u64::from_ne_bytes),
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(attributes: &[(u16, u16)]) -> Vec<u8> {
        let mut reply = vec![0; HEADER_LEN + MESSAGE_LEN];
        reply[4] = SOCK_DIAG_BY_FAMILY as u8;
        for (len, kind) in attributes {
            reply.extend(len.to_ne_bytes());
            reply.extend(kind.to_ne_bytes());
            reply.resize(reply.len() + usize::from(*len).saturating_sub(4).next_multiple_of(4), 0);
        }
        reply
    }

    #[test]
    fn keys_are_found_behind_other_attributes() {
        assert!(answer(&reply(&[(5, 8), (100, INET_DIAG_MD5SIG)])).unwrap().md5);
        assert!(!answer(&reply(&[(5, 8), (4, INET_DIAG_MD5SIG)])).unwrap().md5, "a list without keys");
        assert!(!answer(&reply(&[(5, 8)])).unwrap().md5);
    }

    #[test]
    fn a_control_group_is_eight_bytes() {
        let mut whole = reply(&[(5, 8), (12, INET_DIAG_CGROUP_ID)]);
        let at = whole.len() - 8;
        whole[at..].copy_from_slice(&77u64.to_ne_bytes());
        assert_eq!(answer(&whole).unwrap().cgroup, 77);
        assert_eq!(answer(&reply(&[(8, INET_DIAG_CGROUP_ID)])).unwrap().cgroup, 0);
    }

    #[test]
    fn a_broken_answer_ends() {
        assert!(answer(&[]).is_err());
        assert_eq!(answer(&reply(&[(0, 0), (0, 0)])).unwrap(), Diagnosis::default());
        let mut refused = vec![0; HEADER_LEN + 4];
        refused[4] = NLMSG_ERROR as u8;
        refused[HEADER_LEN..].copy_from_slice(&(-libc::ENOENT).to_ne_bytes());
        assert_eq!(answer(&refused).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
}
