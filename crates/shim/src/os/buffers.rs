//! The program's buffers as slices.
//!
//! What is upheld: a slice is as long as the program says, and is not used after the call.

use libc::{c_int, c_void, iovec};
use std::io::{IoSlice, IoSliceMut};

/// Pieces at most (`IOV_MAX`).
pub(crate) const IOV_MAX: usize = 1024;

/// Bytes that a call moves at most (Linux, include/linux/fs.h, `MAX_RW_COUNT`).
pub(crate) const MAX_RW_COUNT: usize = 0x7fff_f000;

/// Room to read into.
///
/// # Safety
/// `buf` leads to `len` writable bytes, if any.
pub(crate) unsafe fn read_buffer<'a>(buf: *mut c_void, len: usize) -> Result<IoSliceMut<'a>, i32> {
    if len == 0 {
        return Ok(IoSliceMut::new(&mut []));
    }
    if buf.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's promise. Of what is not initialized only the address is used: it
    // is written before anything is read.
    Ok(IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(buf.cast(), len.min(MAX_RW_COUNT)) }))
}

/// Bytes to write.
///
/// # Safety
/// `buf` leads to `len` readable bytes, if any.
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

/// The pieces of a scattered read or write, cut where a call ends (lib/iov_iter.c,
/// `__import_iovec`).
///
/// # Safety
/// `iov` leads to `count` readable pieces, if any.
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
    // The upper half of all addresses is the kernel's.
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

/// Room in pieces.
///
/// # Safety
/// As for each of the pieces.
pub(crate) unsafe fn read_buffers<'a>(iov: *const iovec, count: usize) -> Result<Vec<IoSliceMut<'a>>, i32> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { pieces(iov, count)? };
    // SAFETY: likewise.
    pieces.map(|piece| unsafe { read_buffer(piece.iov_base, piece.iov_len) }).collect()
}

/// Bytes in pieces.
///
/// # Safety
/// As for each of the pieces.
pub(crate) unsafe fn write_buffers<'a>(iov: *const iovec, count: usize) -> Result<Vec<IoSlice<'a>>, i32> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { pieces(iov, count)? };
    // SAFETY: likewise.
    pieces.map(|piece| unsafe { write_buffer(piece.iov_base, piece.iov_len) }).collect()
}

/// A number of pieces as C has it.
pub(crate) fn number(count: c_int) -> Result<usize, i32> {
    usize::try_from(count).map_err(|_| libc::EINVAL)
}
