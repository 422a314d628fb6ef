//! The caller's memory: checks pointers and turns them into slices, strings and addresses.

use baton_socket::posix::{Answer, Errno};
use libc::{c_char, c_int, iovec, sockaddr, socklen_t};
use std::ffi::CStr;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The largest number of parts of a `readv` or `writev`: Linux's `UIO_MAXIOV`.
const PARTS_MAX: usize = 1024;

const FAULT: Errno = Errno(libc::EFAULT);

/// Sizes of `struct sockaddr_in` and of `struct sockaddr_in6` in bytes.
const IN_BYTES: usize = 16;
const IN6_BYTES: usize = 28;

fn checked_len(len: usize) -> Answer<usize> {
    if isize::try_from(len).is_ok() { Ok(len) } else { Err(Errno(libc::EINVAL)) }
}

/// The caller's `len` bytes, to read.
///
/// # Safety
/// `ptr` is null, or points to `len` readable bytes that are not written during the call.
pub(super) unsafe fn input<'a>(ptr: *const u8, len: usize) -> Answer<&'a [u8]> {
    match checked_len(len)? {
        0 => Ok(&[]),
        _ if ptr.is_null() => Err(FAULT),
        // SAFETY: not null, and readable for `len` bytes by the caller's promise.
        len => Ok(unsafe { std::slice::from_raw_parts(ptr, len) }),
    }
}

/// The caller's `len` bytes, to write.
///
/// # Safety
/// `ptr` is null, or points to `len` bytes that nothing else uses during the call.
pub(super) unsafe fn output<'a>(ptr: *mut u8, len: usize) -> Answer<&'a mut [u8]> {
    match checked_len(len)? {
        0 => Ok(&mut []),
        _ if ptr.is_null() => Err(FAULT),
        // SAFETY: not null, and writable for `len` bytes by the caller's promise.
        len => Ok(unsafe { std::slice::from_raw_parts_mut(ptr, len) }),
    }
}

/// The parts of a `readv`, a `writev` or a message. The type of a message's count differs
/// between libcs.
///
/// # Errors
/// `too_many` if there are more than [`PARTS_MAX`], `EFAULT` for a bad pointer, `EINVAL` if the
/// lengths overflow.
///
/// # Safety
/// As for [`input`], for `count` entries.
pub(super) unsafe fn parts<'a>(ptr: *const iovec, count: impl TryInto<usize>, too_many: c_int) -> Answer<&'a [iovec]> {
    let count = count.try_into().ok().filter(|count| *count <= PARTS_MAX).ok_or(Errno(too_many))?;
    if count == 0 {
        return Ok(&[]);
    }
    if ptr.is_null() || !ptr.is_aligned() {
        return Err(FAULT);
    }
    // SAFETY: not null, aligned, and readable by the caller's promise.
    let parts = unsafe { std::slice::from_raw_parts(ptr, count) };
    parts
        .iter()
        .try_fold(0usize, |sum, part| sum.checked_add(part.iov_len))
        .map_or(Err(Errno(libc::EINVAL)), checked_len)?;
    Ok(parts)
}

/// A zero-terminated string, or `None` if the pointer is null.
///
/// # Safety
/// `ptr` is null or points to a zero-terminated string.
pub(super) unsafe fn text<'a>(ptr: *const c_char) -> Option<&'a CStr> {
    // SAFETY: not null, and zero-terminated by the caller's promise.
    (!ptr.is_null()).then(|| unsafe { CStr::from_ptr(ptr) })
}

/// Reads a value.
///
/// # Safety
/// As for [`input`], for one `T`; any bytes are a valid `T`.
pub(super) unsafe fn read<T: Copy>(ptr: *const T) -> Answer<T> {
    // SAFETY: not null, and readable by the caller's promise.
    if ptr.is_null() { Err(FAULT) } else { Ok(unsafe { ptr.read_unaligned() }) }
}

/// Writes a value.
///
/// # Safety
/// As for [`output`], for one `T`.
pub(super) unsafe fn write<T>(ptr: *mut T, value: T) -> Answer<()> {
    if ptr.is_null() {
        return Err(FAULT);
    }
    // SAFETY: not null, and writable by the caller's promise.
    unsafe { ptr.write_unaligned(value) };
    Ok(())
}

/// Reads a socket address.
///
/// # Safety
/// As for [`input`], for `len` bytes.
pub(super) unsafe fn address(ptr: *const sockaddr, len: socklen_t) -> Answer<SocketAddr> {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(IN6_BYTES);
    // SAFETY: `len` is no more than what the caller promised.
    let given = unsafe { input(ptr.cast(), len)? };
    let mut bytes = [0; IN6_BYTES];
    bytes[..given.len()].copy_from_slice(given);
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match c_int::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
        _ if given.len() < IN_BYTES => Err(Errno(libc::EINVAL)),
        libc::AF_INET => {
            let [_, _, _, _, a, b, c, d, ..] = bytes;
            Ok(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port))
        }
        libc::AF_INET6 if given.len() < IN6_BYTES => Err(Errno(libc::EINVAL)),
        libc::AF_INET6 => {
            let octets: [u8; 16] = std::array::from_fn(|i| bytes[8 + i]);
            Ok(SocketAddr::new(Ipv6Addr::from(octets).into(), port))
        }
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// Writes a socket address, truncated to the caller's room, and its full length. If both
/// pointers are null, the caller does not want the address.
///
/// # Safety
/// As for [`output`], for `*len` bytes and for one length.
pub(super) unsafe fn give_address(addr: SocketAddr, ptr: *mut sockaddr, len: *mut socklen_t) -> Answer<()> {
    if ptr.is_null() && len.is_null() {
        return Ok(());
    }
    let mut bytes = [0; IN6_BYTES];
    bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
    let (family, size) = match addr {
        SocketAddr::V4(addr) => {
            bytes[4..8].copy_from_slice(&addr.ip().octets());
            (libc::AF_INET, IN_BYTES)
        }
        SocketAddr::V6(addr) => {
            bytes[8..24].copy_from_slice(&addr.ip().octets());
            (libc::AF_INET6, IN6_BYTES)
        }
    };
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    // SAFETY: the same promises as this function's.
    unsafe { give_bytes(&bytes[..size], ptr.cast(), len) }?;
    // SAFETY: as above. The full length is reported even if the address was truncated.
    unsafe { write(len, size as socklen_t) }
}

/// Writes one control message of level IPPROTO_TCP that carries a number. Returns how many of
/// the `room` bytes it used, or 0 if they are too few.
///
/// # Safety
/// As for [`output`], for `room` bytes.
pub(super) unsafe fn give_control(ptr: *mut u8, room: usize, kind: c_int, number: c_int) -> Answer<usize> {
    const LEN: usize = size_of::<usize>() + 3 * size_of::<c_int>();
    if room < LEN {
        return Ok(0);
    }
    // `struct cmsghdr` and the number, padded as CMSG_SPACE does.
    let mut bytes = [0; LEN.next_multiple_of(size_of::<usize>())];
    bytes[..size_of::<usize>()].copy_from_slice(&LEN.to_ne_bytes());
    let words = [libc::IPPROTO_TCP, kind, number];
    for (place, word) in bytes[size_of::<usize>()..].chunks_exact_mut(size_of::<c_int>()).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    let count = room.min(bytes.len());
    // SAFETY: `count` is no more than the caller's `room`.
    unsafe { output(ptr, count)? }.copy_from_slice(&bytes[..count]);
    Ok(count)
}

/// Writes bytes, truncated to `*len`, and sets `*len` to the number written.
///
/// # Safety
/// As for [`output`], for `*len` bytes and for one length.
pub(super) unsafe fn give_bytes(bytes: &[u8], ptr: *mut u8, len: *mut socklen_t) -> Answer<()> {
    // SAFETY: the caller's promise.
    let room = usize::try_from(unsafe { read(len)? }).unwrap_or(usize::MAX);
    let count = room.min(bytes.len());
    // SAFETY: `count` is no more than the caller's `*len`.
    unsafe { output(ptr, count)? }.copy_from_slice(&bytes[..count]);
    // SAFETY: the caller's promise.
    unsafe { write(len, count as socklen_t) }
}
