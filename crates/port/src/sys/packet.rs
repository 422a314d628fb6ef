//! Packet sockets: the system calls beneath `packet`.
//!
//! This module upholds: addresses and structures that the kernel reads or fills are its own,
//! live during the call, are passed with their true length, and are integers only, for which any
//! bits are a value; descriptors are owned at once.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::io::own;
use super::xsk::{Map, get_option, set_option};

/// A new packet socket, which receives nothing until it is bound.
///
/// # Errors
/// As `socket(2)`'s.
pub fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes no pointer.
    own(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })
}

/// Sets an option that is a number.
///
/// # Errors
/// As `setsockopt(2)`'s.
pub fn set_number(fd: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    set_option(fd, level, option, &value)
}

/// Makes the receive ring, of `slots` slots in blocks of `block` bytes, and maps it.
///
/// # Errors
/// As the system calls'.
pub fn make_ring(fd: &OwnedFd, block: u32, blocks: u32, slot: u32, slots: u32) -> io::Result<Map> {
    let request =
        libc::tpacket_req { tp_block_size: block, tp_block_nr: blocks, tp_frame_size: slot, tp_frame_nr: slots };
    set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
    Map::ring(fd.as_fd(), block as usize * blocks as usize, 0)
}

/// Makes the interface promiscuous as long as the socket is open.
///
/// # Errors
/// As `setsockopt(2)`'s.
pub fn hear_all(fd: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: interface as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// Binds the socket to all protocols of an interface.
///
/// # Errors
/// As `bind(2)`'s.
pub fn bind(fd: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is valid for reads of `len` bytes during the call.
    let n = unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Frames dropped since the last call because the ring was full.
///
/// # Errors
/// As `getsockopt(2)`'s.
pub fn take_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: integers only.
    let statistics: libc::tpacket_stats = unsafe { get_option(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS)? };
    Ok(statistics.tp_drops)
}
