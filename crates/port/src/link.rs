//! Interfaces and network namespaces: the few things besides frames that ports, tests and demos
//! ask of the kernel. All functions work on the calling thread's namespace.

use std::fs::File;
use std::io;

use crate::sys;

/// Brings an interface up.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, `ENODEV` if there is none of that name.
pub fn set_up(name: &str) -> io::Result<()> {
    sys::ioctl::set_link_up(name)
}

/// MTU of an interface, in bytes.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn mtu(name: &str) -> io::Result<u32> {
    sys::ioctl::link_mtu(name)
}

/// Sets the MTU of an interface, in bytes.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, `EINVAL` if the device refuses that size.
pub fn set_mtu(name: &str, mtu: u32) -> io::Result<()> {
    sys::ioctl::set_link_mtu(name, mtu)
}

/// The number of frames that may wait in an interface's queue ([`lengthen_tx_queue`]).
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn tx_queue_len(name: &str) -> io::Result<u32> {
    sys::ioctl::link_tx_queue_len(name)
}

/// Lets at least so many frames wait in an interface's queue: for a TAP device, in each of its queues, until its
/// reader takes them. A longer queue stays, which an administrator may have chosen.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, `ENODEV` if there is none of that name, `ENOMEM` if there is
/// no memory for so many.
pub fn lengthen_tx_queue(name: &str, frames: u32) -> io::Result<()> {
    if tx_queue_len(name)? < frames { sys::ioctl::set_link_tx_queue_len(name, frames) } else { Ok(()) }
}

/// Link-layer address of an interface. For a TAP device this is the kernel's
/// side; the port's side needs one of its own.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn address(name: &str) -> io::Result<[u8; 6]> {
    sys::ioctl::link_address(name)
}

/// Whether an interface has Ethernet headers: not so the loopback device.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn is_ethernet(name: &str) -> io::Result<bool> {
    sys::ioctl::link_is_ethernet(name)
}

/// Sets the link-layer address of an Ethernet interface.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, `EBUSY` if the device has to be down for it.
pub fn set_address(name: &str, address: [u8; 6]) -> io::Result<()> {
    sys::ioctl::set_link_address(name, address)
}

/// Index of an interface.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn index(name: &str) -> io::Result<u32> {
    sys::ioctl::link_index(name)
}

/// Receive queues of an interface; 1 if its driver cannot tell.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn rx_queues(name: &str) -> io::Result<u32> {
    sys::ioctl::link_rx_queues(name)
}

/// Has the kernel complete checksums before frames reach the interface (`on` is
/// false), or leaves them to the device. A veth leaves them out altogether, which
/// an AF_XDP port at its other end cannot tell from damage.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, `EOPNOTSUPP` if the driver cannot.
pub fn set_tx_checksum_offload(name: &str, on: bool) -> io::Result<()> {
    sys::ioctl::set_link_tx_checksum(name, on)
}

/// Moves the calling thread into a new, empty network namespace. Processes that
/// it starts inherit it; it ends with the last user of it, so nothing has to be
/// cleaned up.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn unshare_namespace() -> io::Result<()> {
    sys::io::unshare_net()
}

/// Moves the calling thread into the namespace that `file` stands for
/// (`/proc/PID/ns/net`, `/run/netns/NAME`).
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` if the file is no network namespace.
pub fn enter_namespace(file: &File) -> io::Result<()> {
    sys::io::set_net(file)
}
