//! Sends packets made here through a raw socket: to our own address over the loopback device, for
//! what the kernel must receive to believe; or to the peer.

use crate::sys;
use baton_wire::addr::Addr;
use baton_wire::{ipv4, ipv6};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, ipproto, sendto, socket_with};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The time to live, or the hop limit.
const TTL: u8 = 64;

/// Sends a packet by the route that `fd` would use: bound to the same device, if `fd` is bound to
/// one.
///
/// # Errors
/// Errors from the kernel; `EPERM` without CAP_NET_RAW.
pub(crate) fn send(fd: BorrowedFd<'_>, packet: &[u8], to: SocketAddr) -> io::Result<()> {
    let to = address(to);
    sendto(socket_like(fd, &to)?, packet, SendFlags::DONTWAIT, &to)?;
    Ok(())
}

/// Sends a packet of a connection that no longer has a socket.
///
/// # Errors
/// Errors from [`send`].
pub(crate) fn send_unbound(packet: &[u8], to: SocketAddr) -> io::Result<()> {
    let to = address(to);
    sendto(raw_socket(&to)?, packet, SendFlags::DONTWAIT, &to)?;
    Ok(())
}

/// Sends a packet with any source address to our own address. It goes over the loopback device,
/// even if routing rules send other packets to this address elsewhere.
///
/// # Errors
/// Errors from [`send`].
pub(crate) fn send_to_ourselves(fd: BorrowedFd<'_>, packet: &[u8], own: SocketAddr) -> io::Result<()> {
    let own = address(own);
    let raw = socket_like(fd, &own)?;
    // The route is looked up for the bound source address. If the address cannot be bound, it needs
    // no special route.
    let _ = bind(&raw, &own);
    sendto(raw, packet, SendFlags::DONTWAIT, &own)?;
    Ok(())
}

/// The address as a raw socket takes it: with 0 for the port, and IPv4 instead of a mapped address.
fn address(mut of: SocketAddr) -> SocketAddr {
    of.set_ip(Addr::from(of.ip()).ip());
    of.set_port(0);
    of
}

fn socket_like(fd: BorrowedFd<'_>, to: &SocketAddr) -> io::Result<OwnedFd> {
    let raw = raw_socket(to)?;
    let device = sys::get_int(fd, libc::SOL_SOCKET, sys::SO_BINDTOIFINDEX).unwrap_or(0);
    if device != 0 {
        sys::set_int(raw.as_fd(), libc::SOL_SOCKET, sys::SO_BINDTOIFINDEX, device)?;
    }
    Ok(raw)
}

fn raw_socket(to: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::RAW))?)
}

/// An IP packet that contains `payload`, which must fit into an Ethernet frame.
///
/// # Panics
/// If the addresses have different IP versions.
pub(crate) fn packet(protocol: u8, payload: &[u8], src: Addr, dst: Addr) -> Vec<u8> {
    let mut ip = [0; ipv6::HEADER_LEN];
    let ip_len = match (src.ip(), dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            ipv4::Header::atomic(TTL, protocol, src, dst).write(&[], payload.len(), &mut ip)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            ipv6::Header { traffic_class: 0, flow_label: 0, next_header: protocol, hop_limit: TTL, src, dst }
                .write(payload.len(), &mut ip)
        }
        _ => unreachable!("a captured connection has one IP version"),
    }
    .expect("there is room for the IP header");
    [&ip[..ip_len], payload].concat()
}
