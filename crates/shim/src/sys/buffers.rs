//! The program's buffers as slices.
//!
//! What is upheld: a slice is as long as the program says, and is not used after the call.

use libc::{c_int, c_void, iovec};
use std::io::{IoSlice, IoSliceMut};

/// Pieces at most (`IOV_MAX`).
const PIECES: usize = 1024;

/// Room to read into.
///
/// # Safety
/// `buf` leads to `len` writable bytes, if any.
pub(super) unsafe fn room<'a>(buf: *mut c_void, len: usize) -> Result<IoSliceMut<'a>, i32> {
    if len == 0 {
        return Ok(IoSliceMut::new(&mut []));
    }
    if buf.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's promise. Of what is not initialized only the address is used: it
    // is written before anything is read.
    Ok(IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(buf.cast(), len.min(isize::MAX as usize)) }))
}

/// Bytes to write.
///
/// # Safety
/// `buf` leads to `len` readable bytes, if any.
pub(super) unsafe fn bytes<'a>(buf: *const c_void, len: usize) -> Result<IoSlice<'a>, i32> {
    if len == 0 {
        return Ok(IoSlice::new(&[]));
    }
    if buf.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    Ok(IoSlice::new(unsafe { std::slice::from_raw_parts(buf.cast(), len.min(isize::MAX as usize)) }))
}

/// The pieces of a scattered read or write.
///
/// # Safety
/// `iov` leads to `count` readable pieces, if any.
unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> Result<&'a [iovec], i32> {
    if count > PIECES {
        return Err(libc::EINVAL);
    }
    if count == 0 {
        return Ok(&[]);
    }
    if iov.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(iov, count) })
}

/// Room in pieces.
///
/// # Safety
/// As for each of the pieces.
pub(super) unsafe fn rooms<'a>(iov: *const iovec, count: usize) -> Result<Vec<IoSliceMut<'a>>, i32> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { pieces(iov, count)? };
    // SAFETY: likewise.
    pieces.iter().map(|piece| unsafe { room(piece.iov_base, piece.iov_len) }).collect()
}

/// Bytes in pieces.
///
/// # Safety
/// As for each of the pieces.
pub(super) unsafe fn all_bytes<'a>(iov: *const iovec, count: usize) -> Result<Vec<IoSlice<'a>>, i32> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { pieces(iov, count)? };
    // SAFETY: likewise.
    pieces.iter().map(|piece| unsafe { bytes(piece.iov_base, piece.iov_len) }).collect()
}

/// A number of pieces as C has it.
pub(super) fn number(count: c_int) -> Result<usize, i32> {
    usize::try_from(count).map_err(|_| libc::EINVAL)
}
