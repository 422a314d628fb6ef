//! Gives a socket its connection's address and route even if the host lacks them: the address was
//! removed from its interface, or the route is unreachable or gone.
//!
//! The kernel keeps such a connection. Nothing leaves and nothing arrives, its timers run, and it
//! continues once address and route are back. A connection that comes home has to end up in the
//! same state. So the socket is briefly allowed to have any address (`IP_TRANSPARENT`). If IPv4
//! still has no route, the socket is also bound to the loopback device, over which the kernel then
//! considers everything reachable. If an IPsec policy forbids even the route lookup, the socket
//! briefly gets a policy of its own that allows everything (`IP_XFRM_POLICY`). Afterwards the route
//! found in this way is forgotten, and the kernel looks for another at the next segment. Without an
//! IPv6 route none of this helps: the connection cannot come home until there is one.

use crate::socket_options::IntOption;
use crate::sys;
use baton_wire::addr::Addr;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// `linux/in6.h`; sets the same flag of a socket as `IP_TRANSPARENT`.
const IPV6_TRANSPARENT: i32 = 75;
/// `linux/xfrm.h`.
const XFRM_POLICY_OUT: u8 = 1;
/// The loopback device of each network namespace.
const LOOPBACK: i32 = 1;

/// Like [`bind`], wherever the address is. A socket that is bound already stays bound.
pub(crate) fn bind_anyway(fd: BorrowedFd<'_>, local: SocketAddr) -> io::Result<()> {
    let bind = || match bind(fd, &local) {
        // The socket is bound already: the program chose its port, or it is a husk.
        Err(Errno::INVAL) => Ok(()),
        done => done,
    };
    match bind() {
        Err(Errno::ADDRNOTAVAIL) => with_any_address(fd, local, || Ok(bind()?)),
        done => Ok(done?),
    }
}

/// Like [`connect`], wherever address and route are, and whatever IPsec says.
pub(crate) fn connect_anyway(fd: BorrowedFd<'_>, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
    let connect = || match connect(fd, &remote) {
        Ok(()) => Ok(true),
        Err(error) if is_no_way(error) => Ok(false),
        Err(error) => Err(io::Error::from(error)),
    };
    if connect()? {
        return Ok(());
    }
    with_any_address(fd, local, || {
        let done = connect()? || in_the_clear(fd, local, || Ok(connect()? || on_loopback(fd, connect)?))?;
        if done { Ok(()) } else { Err(Errno::NETUNREACH.into()) }
    })?;
    forget_route(fd)
}

/// Returns true if the address is absent, if there is no usable route, or if IPsec blocks the way
/// or lacks a key.
fn is_no_way(error: Errno) -> bool {
    let no_route = [Errno::INVAL, Errno::ADDRNOTAVAIL, Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::ACCESS];
    no_route.contains(&error) || [Errno::PERM, Errno::SRCH, Errno::AGAIN].contains(&error)
}

/// Returns true if the host has this address now.
pub(crate) fn is_ours(mut addr: SocketAddr) -> io::Result<bool> {
    addr.set_port(0);
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let any = socket(family, SocketType::DGRAM, None)?;
    Ok(bind(any, &addr) != Err(Errno::ADDRNOTAVAIL))
}

fn with_any_address<T>(fd: BorrowedFd<'_>, local: SocketAddr, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let (level, name) =
        if local.is_ipv4() { (libc::IPPROTO_IP, libc::IP_TRANSPARENT) } else { (libc::IPPROTO_IPV6, IPV6_TRANSPARENT) };
    let before = sys::get_int(fd, level, name)?;
    sys::set_int(fd, level, name, 1)?;
    let done = f();
    sys::set_int(fd, level, name, before)?;
    done
}

/// Calls `f` while the socket may send without IPsec. A kernel without IPsec needs no permission.
fn in_the_clear<T>(fd: BorrowedFd<'_>, local: SocketAddr, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let (level, name) = if local.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_XFRM_POLICY)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_XFRM_POLICY)
    };
    // `struct xfrm_userpolicy_info` (`linux/xfrm.h`): a policy for everything that leaves, which
    // allows it.
    let mut policy = [0; 168];
    let family = if Addr::from(local.ip()).is_v4() { libc::AF_INET } else { libc::AF_INET6 };
    policy[40..42].copy_from_slice(&(family as u16).to_ne_bytes());
    policy[160] = XFRM_POLICY_OUT;
    let allowed = sys::set(fd, level, name, &policy).is_ok();
    let done = f();
    if allowed {
        sys::unset(fd, level, name)?;
    }
    done
}

fn on_loopback<T>(fd: BorrowedFd<'_>, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = sys::get_int(fd, libc::SOL_SOCKET, sys::SO_BINDTOIFINDEX)?;
    sys::set_int(fd, libc::SOL_SOCKET, sys::SO_BINDTOIFINDEX, LOOPBACK)?;
    let done = f();
    sys::set_int(fd, libc::SOL_SOCKET, sys::SO_BINDTOIFINDEX, before)?;
    done
}

/// A change of its mark makes a socket look up its route again.
fn forget_route(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mark = IntOption::Mark.read(fd)?;
    let other = IntOption::Mark.write(fd, mark ^ 1);
    IntOption::Mark.write(fd, mark).and(other)
}
