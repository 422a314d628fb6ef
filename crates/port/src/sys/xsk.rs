//! AF_XDP sockets: the system calls and memory mappings beneath `xdp`.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use super::io::own;

const WRITABLE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// A mapping of memory, unmapped when dropped.
pub struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; what is done with
// its bytes is up to its holder.
unsafe impl Send for Map {}

impl Map {
    /// Fresh zeroed memory of `len` bytes, at a page boundary.
    ///
    /// # Errors
    /// As `mmap(2)`'s.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        Self::new(len, WRITABLE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// A ring of the AF_XDP socket `fd`: `len` bytes at `offset` (`XDP_PGOFF_…`).
    ///
    /// # Errors
    /// As `mmap(2)`'s.
    pub fn ring(fd: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<Self> {
        Self::new(len, WRITABLE, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset as libc::off_t)
    }

    /// The first `len` bytes of a file that others write. Writing to them is a fault.
    ///
    /// # Errors
    /// As `mmap(2)`'s.
    pub fn read_only(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::new(len, libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd(), 0)
    }

    fn new(len: usize, access: i32, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<Self> {
        // SAFETY: without MAP_FIXED this takes no memory that is in use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Its first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this start and length, and unmapped only here.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A new AF_XDP socket.
///
/// # Errors
/// As `socket(2)`'s.
pub fn socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    own(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })
}

pub(super) fn set_option<T>(fd: BorrowedFd<'_>, level: i32, option: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is valid for reads of its size during the call.
    let n = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option into a `T`, which must be plain old data.
///
/// # Safety
/// All zeroes, and whatever the kernel writes for `option`, must be values of `T`.
pub(super) unsafe fn get_option<T>(fd: BorrowedFd<'_>, level: i32, option: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is valid for writes of `len` bytes during the call.
    let n = unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut len) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed above and partly written by the kernel; the caller vouches for both.
    Ok(unsafe { value.assume_init() })
}

/// `XDP_UMEM_REG`: makes `map` the socket's packet memory, in chunks of `chunk` bytes.
///
/// The kernel writes into chunks that are handed to it through the fill ring for as
/// long as the socket is open, so `map` must outlive the socket.
///
/// # Errors
/// As `setsockopt(2)`'s; `ENOBUFS` if the process may not lock that much memory.
pub fn register_memory(fd: BorrowedFd<'_>, map: &Map, chunk: u32) -> io::Result<()> {
    let registration = libc::xdp_umem_reg {
        addr: map.start().as_ptr() as u64,
        len: map.len() as u64,
        chunk_size: chunk,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
}

/// Sets the number of entries of a ring (`XDP_RX_RING`, …), a power of two.
///
/// # Errors
/// As `setsockopt(2)`'s.
pub fn set_ring_len(fd: BorrowedFd<'_>, ring: i32, len: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_XDP, ring, &len)
}

/// Where the fields of the rings lie in their mappings.
///
/// # Errors
/// As `getsockopt(2)`'s.
pub fn ring_offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: integers only.
    unsafe { get_option(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS) }
}

/// Binds the socket to a queue of an interface; `flags` are `XDP_COPY`, ….
///
/// # Errors
/// As `bind(2)`'s.
pub fn bind(fd: BorrowedFd<'_>, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: `address` is valid for reads of `len` bytes during the call.
    let n = unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the bound socket got zero-copy mode.
///
/// # Errors
/// As `getsockopt(2)`'s.
pub fn is_zero_copy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: integers only.
    let options: libc::xdp_options = unsafe { get_option(fd, libc::SOL_XDP, libc::XDP_OPTIONS)? };
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Frames that the kernel dropped at this socket, by reason.
///
/// # Errors
/// As `getsockopt(2)`'s.
pub fn statistics(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_statistics> {
    // SAFETY: integers only.
    unsafe { get_option(fd, libc::SOL_XDP, libc::XDP_STATISTICS) }
}

/// Takes the error that the kernel has noted on a socket.
///
/// # Errors
/// That error, or `getsockopt(2)`'s.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an integer.
    let error: i32 = unsafe { get_option(fd, libc::SOL_SOCKET, libc::SO_ERROR)? };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Tells the kernel to go on with the transmit ring.
///
/// # Errors
/// As `sendto(2)`'s; `EAGAIN`, `EBUSY` and `ENOBUFS` mean that some is left.
pub fn kick_transmit(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no bytes and no address are passed.
    let n = unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Tells the driver that the fill ring has chunks again.
///
/// # Errors
/// As `recvfrom(2)`'s.
pub fn kick_receive(fd: BorrowedFd<'_>) -> io::Result<()> {
    let null = std::ptr::null_mut();
    // SAFETY: no room for bytes or an address is passed.
    let n = unsafe { libc::recvfrom(fd.as_raw_fd(), null, 0, libc::MSG_DONTWAIT, null.cast(), std::ptr::null_mut()) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
