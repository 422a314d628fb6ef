//! System calls, each behind a safe function.
//!
//! This room upholds: every pointer that is passed to the kernel comes from
//! a reference (or, for payload parts, from a caller who vouches for it) that
//! outlives the call, with its true length; every structure that is passed is
//! fully initialised; every returned descriptor is owned at once.
#![allow(unsafe_code)]

pub mod io;
pub mod ioctl;
pub mod netlink;
pub mod packet;
pub mod xsk;

use baton_engine::frame_io::PayloadPart;

/// Copies `header` and the payload parts, one behind the other, to the start of `to`.
///
/// # Panics
/// If they do not fit.
pub fn copy_parts(to: &mut [u8], header: &[u8], payload: &[PayloadPart]) {
    let (head, mut rest) = to.split_at_mut(header.len());
    head.copy_from_slice(header);
    for part in payload {
        let (piece, after) = rest.split_at_mut(part.len);
        // SAFETY: the caller that passes a part vouches that it is valid for reads during
        // the call; `piece` is as long and, being ours alone, does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(part.ptr, piece.as_mut_ptr(), part.len) };
        rest = after;
    }
}
