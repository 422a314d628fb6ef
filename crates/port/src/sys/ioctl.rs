//! `ioctl`s on TAP devices and network interfaces.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::io::own;

/// Longest interface name, in bytes.
pub const NAME_MAX: usize = libc::IFNAMSIZ - 1;

/// An `ifreq` with `name` in it.
///
/// # Errors
/// `InvalidInput` if the name is empty, too long or holds a zero byte or `/`.
fn request(name: &str) -> io::Result<libc::ifreq> {
    if name.is_empty() || name.len() > NAME_MAX || name.bytes().any(|b| b == 0 || b == b'/') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: `ifreq` is plain old data, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Runs an `ioctl` that takes an `ifreq`.
fn call(fd: BorrowedFd<'_>, op: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `request` is a whole `ifreq`, valid for reads and writes in the call,
    // which is what each `op` used in this file takes.
    if unsafe { libc::ioctl(fd.as_raw_fd(), op as _, std::ptr::from_mut(request)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A socket to ask the kernel about interfaces through.
fn control() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    own(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })
}

/// Opens a character device for reading and writing, non-blocking.
///
/// # Errors
/// As `open(2)`'s.
pub fn open_device(path: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: `path` is a C string that outlives the call.
    own(unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC) })
}

/// `TUNSETIFF`: attaches `fd` to the device called `name` (made if it is not
/// there; `%d` in it is replaced by a number), and returns the device's name.
///
/// # Errors
/// As the `ioctl`'s.
pub fn tun_set_iff(fd: BorrowedFd<'_>, name: &str, flags: libc::c_int) -> io::Result<String> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    call(fd, libc::TUNSETIFF as libc::c_ulong, &mut request)?;
    let bytes: Vec<u8> = request.ifr_name.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `TUNSETOFFLOAD`: what the kernel may leave to the reader of a TAP device.
///
/// # Errors
/// As the `ioctl`'s.
pub fn tun_set_offload(fd: BorrowedFd<'_>, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: this `ioctl` takes its argument by value.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(flags)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `TUNSETVNETHDRSZ`: length of the virtio header, in bytes.
///
/// # Errors
/// As the `ioctl`'s.
pub fn tun_set_vnet_header_len(fd: BorrowedFd<'_>, len: libc::c_int) -> io::Result<()> {
    // SAFETY: this `ioctl` reads one int through the pointer.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, std::ptr::from_ref(&len)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `TUNSETSTEERINGEBPF`: a BPF program that chooses the queue that a frame is read from.
///
/// # Errors
/// As the `ioctl`'s.
pub fn tun_set_steering(fd: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program: libc::c_int = program.as_raw_fd();
    // SAFETY: this `ioctl` reads one int through the pointer.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETSTEERINGEBPF as _, std::ptr::from_ref(&program)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Index of an interface.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn link_index(name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    call(control()?.as_fd(), libc::SIOCGIFINDEX as libc::c_ulong, &mut request)?;
    // SAFETY: the call above filled this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
}

/// MTU of an interface, in bytes.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn link_mtu(name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    call(control()?.as_fd(), libc::SIOCGIFMTU as libc::c_ulong, &mut request)?;
    // SAFETY: the call above filled this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

/// Sets the MTU of an interface, in bytes.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, `EINVAL` if the device refuses that size.
pub fn set_link_mtu(name: &str, mtu: u32) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu = mtu as libc::c_int;
    call(control()?.as_fd(), libc::SIOCSIFMTU as libc::c_ulong, &mut request)
}

/// The number of frames that may wait for an interface to send them.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn link_tx_queue_len(name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    call(control()?.as_fd(), libc::SIOCGIFTXQLEN as libc::c_ulong, &mut request)?;
    // SAFETY: the call above filled `ifr_qlen`, of the same type and place.
    Ok(unsafe { request.ifr_ifru.ifru_metric } as u32)
}

/// Sets the number of frames that may wait for an interface to send them.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, `ENOMEM` if there is no memory for so many.
pub fn set_link_tx_queue_len(name: &str, frames: u32) -> io::Result<()> {
    let mut request = request(name)?;
    // `ifr_qlen`, of the same type and place.
    request.ifr_ifru.ifru_metric = frames as libc::c_int;
    call(control()?.as_fd(), libc::SIOCSIFTXQLEN as libc::c_ulong, &mut request)
}

/// Link-layer address of an interface.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn link_address(name: &str) -> io::Result<[u8; 6]> {
    let mut request = request(name)?;
    call(control()?.as_fd(), libc::SIOCGIFHWADDR as libc::c_ulong, &mut request)?;
    // SAFETY: the call above filled this member of the union.
    let data = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    Ok(std::array::from_fn(|i| data[i] as u8))
}

/// Whether an interface has Ethernet headers.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn link_is_ethernet(name: &str) -> io::Result<bool> {
    let mut request = request(name)?;
    call(control()?.as_fd(), libc::SIOCGIFHWADDR as libc::c_ulong, &mut request)?;
    // SAFETY: the call above filled this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family } == libc::ARPHRD_ETHER)
}

/// Sets the link-layer address of an Ethernet interface.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, `EBUSY` if the device has to be down for it.
pub fn set_link_address(name: &str, address: [u8; 6]) -> io::Result<()> {
    let mut request = request(name)?;
    let mut data = [0; 14];
    for (to, from) in data.iter_mut().zip(address) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_hwaddr = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: data };
    call(control()?.as_fd(), libc::SIOCSIFHWADDR as libc::c_ulong, &mut request)
}

/// Brings an interface up.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, `ENODEV` if there is none of that name.
pub fn set_link_up(name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    let control = control()?;
    call(control.as_fd(), libc::SIOCGIFFLAGS as libc::c_ulong, &mut request)?;
    // SAFETY: the call above filled this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    call(control.as_fd(), libc::SIOCSIFFLAGS as libc::c_ulong, &mut request)
}

/// `ETHTOOL_GCHANNELS`, `ETHTOOL_STXCSUM` (include/uapi/linux/ethtool.h).
const GET_CHANNELS: u32 = 0x3c;
const SET_TX_CHECKSUM: u32 = 0x17;

/// Runs an ethtool command: `value` starts with its number.
fn ethtool<const N: usize>(name: &str, value: &mut [u32; N]) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    call(control()?.as_fd(), libc::SIOCETHTOOL as libc::c_ulong, &mut request)
}

/// Receive queues of an interface.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn link_rx_queues(name: &str) -> io::Result<u32> {
    // struct ethtool_channels: command; most of rx, tx, other, combined; the same now.
    let mut channels = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    match ethtool(name, &mut channels) {
        Ok(()) => Ok((channels[5] + channels[8]).max(1)),
        // A driver that cannot tell has one queue.
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(e) => Err(e),
    }
}

/// Switches filling in of checksums by the device on or off.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, `EOPNOTSUPP` if the driver cannot.
pub fn set_link_tx_checksum(name: &str, on: bool) -> io::Result<()> {
    // struct ethtool_value.
    ethtool(name, &mut [SET_TX_CHECKSUM, on.into()])
}
