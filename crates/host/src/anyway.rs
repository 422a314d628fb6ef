//! A socket gets its connection's address and route although the host does not have them: an
//! address was taken off its interface, a route is unreachable or has gone.
//!
//! The kernel keeps such a connection: nothing of it leaves and nothing arrives, its timers run
//! on, and it goes on once address and route are back. One that comes home then has to become
//! just that. So the socket is told for a moment that it may have any address
//! (`IP_TRANSPARENT`), and, if there is no route of IPv4 still, that it belongs to the loopback
//! device, over which the kernel then takes all to be reached. Afterwards the route that was found
//! so is forgotten, and the kernel looks for one at the next segment. Without a route of IPv6
//! nothing helps: the connection cannot come home before there is one.

use crate::socket_options::IntOption;
use crate::sys;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// `linux/in6.h`; the same flag of a socket as `IP_TRANSPARENT`.
const IPV6_TRANSPARENT: i32 = 75;
/// The loopback device of each network namespace.
const LOOPBACK: i32 = 1;

/// [`bind`], wherever the address is. A socket that is bound already stays so.
pub(crate) fn bind_anyway(fd: BorrowedFd<'_>, local: SocketAddr) -> io::Result<()> {
    let bind = || match bind(fd, &local) {
        // A program that had chosen its port keeps it, and so does a husk.
        Err(Errno::INVAL) => Ok(()),
        done => done,
    };
    match bind() {
        Err(Errno::ADDRNOTAVAIL) => with_any_address(fd, local, || Ok(bind()?)),
        done => Ok(done?),
    }
}

/// [`connect`], wherever address and route are.
pub(crate) fn connect_anyway(fd: BorrowedFd<'_>, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
    match connect(fd, &remote) {
        Ok(()) => return Ok(()),
        // The address is away; there is no route, or one that says no.
        Err(Errno::INVAL | Errno::ADDRNOTAVAIL | Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS) => {}
        Err(error) => return Err(error.into()),
    }
    with_any_address(fd, local, || match connect(fd, &remote) {
        Err(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::INVAL) => {
            on_loopback(fd, || Ok(connect(fd, &remote)?))
        }
        done => Ok(done?),
    })?;
    forget_route(fd)
}

/// Whether the host has an address now.
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

fn on_loopback<T>(fd: BorrowedFd<'_>, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = sys::get_int(fd, libc::SOL_SOCKET, sys::SO_BINDTOIFINDEX)?;
    sys::set_int(fd, libc::SOL_SOCKET, sys::SO_BINDTOIFINDEX, LOOPBACK)?;
    let done = f();
    sys::set_int(fd, libc::SOL_SOCKET, sys::SO_BINDTOIFINDEX, before)?;
    done
}

/// A socket looks for its route anew when its mark changes.
fn forget_route(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mark = IntOption::Mark.read(fd)?;
    let other = IntOption::Mark.write(fd, mark ^ 1);
    IntOption::Mark.write(fd, mark).and(other)
}
