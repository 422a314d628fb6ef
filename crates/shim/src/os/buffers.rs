//! The program's buffers as slices.
//!
//! Safety rules: a slice is at most as long as the program says, and is not used after the call. The program may let
//! buffers of a call overlap, and may change them in other threads meanwhile: their bytes are copied, and nothing else
//! depends on them.

use libc::{c_int, c_void, iovec};
use std::io::{IoSlice, IoSliceMut};

/// The largest number of buffers in one call.
pub(crate) const IOV_MAX: usize = 1024;

/// The largest number of bytes that one call moves (Linux, include/linux/fs.h).
pub(crate) const MAX_RW_COUNT: usize = 0x7fff_f000;

/// The program's buffer to read into.
///
/// # Safety
/// `buf` points to `len` writable bytes, unless `len` is 0.
pub(crate) unsafe fn read_buffer<'a>(buf: *mut c_void, len: usize) -> Result<IoSliceMut<'a>, i32> {
    if len == 0 {
        return Ok(IoSliceMut::new(&mut []));
    }
    if buf.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's promise. Uninitialized bytes are written before they are read.
    Ok(IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(buf.cast(), len.min(MAX_RW_COUNT)) }))
}

/// The program's buffer to write from.
///
/// # Safety
/// `buf` points to `len` readable bytes, unless `len` is 0.
pub(crate) unsafe fn write_buffer<'a>(buf: *const c_void, len: usize) -> Result<IoSlice<'a>, i32> {
    if len == 0 {
        return Ok(IoSlice::new(&[]));
    }
    if buf.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    Ok(IoSlice::new(unsafe { std::slice::from_raw_parts(buf.cast(), len.min(MAX_RW_COUNT)) }))
}

/// The buffers of a scattered read or write, truncated to [`MAX_RW_COUNT`] bytes in total
/// (lib/iov_iter.c, `__import_iovec`).
///
/// # Safety
/// `iov` points to `count` entries, unless `count` is 0.
unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> Result<impl Iterator<Item = iovec> + 'a, i32> {
    let all: &[iovec] = match count {
        0 => &[],
        1..=IOV_MAX if iov.is_null() => return Err(libc::EFAULT),
        // SAFETY: the caller's promise.
        1..=IOV_MAX => unsafe { std::slice::from_raw_parts(iov, count) },
        _ => return Err(libc::EINVAL),
    };
    if all.iter().any(|piece| piece.iov_len > isize::MAX as usize) {
        return Err(libc::EINVAL);
    }
    // The upper half of the address space belongs to the kernel.
    let end = |piece: &iovec| (piece.iov_base as usize).saturating_add(piece.iov_len);
    if all.iter().any(|piece| end(piece) > isize::MAX as usize) {
        return Err(libc::EFAULT);
    }
    let mut left = MAX_RW_COUNT;
    Ok(all.iter().map(move |piece| {
        let iov_len = piece.iov_len.min(left);
        left -= iov_len;
        iovec { iov_len, ..*piece }
    }))
}

/// The program's buffers to read into.
///
/// # Safety
/// `iov` points to `count` entries, each of which points to as many bytes as it says.
pub(crate) unsafe fn read_buffers<'a>(iov: *const iovec, count: usize) -> Result<Vec<IoSliceMut<'a>>, i32> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { pieces(iov, count)? };
    // SAFETY: as above.
    pieces.map(|piece| unsafe { read_buffer(piece.iov_base, piece.iov_len) }).collect()
}

/// The program's buffers to write from.
///
/// # Safety
/// `iov` points to `count` entries, each of which points to as many bytes as it says.
pub(crate) unsafe fn write_buffers<'a>(iov: *const iovec, count: usize) -> Result<Vec<IoSlice<'a>>, i32> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { pieces(iov, count)? };
    // SAFETY: as above.
    pieces.map(|piece| unsafe { write_buffer(piece.iov_base, piece.iov_len) }).collect()
}

/// Converts a number of buffers from C.
pub(crate) fn buffer_count(count: c_int) -> Result<usize, i32> {
    usize::try_from(count).map_err(|_| libc::EINVAL)
}
