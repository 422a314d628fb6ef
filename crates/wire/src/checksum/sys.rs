//! The room of the checksum kernels' `unsafe`.
//!
//! This module upholds:
//!
//! * a kernel touches exactly `len` bytes at `src` (reads) and at `dst` (writes),
//!   with unaligned or masked accesses, so no alignment is asked for;
//! * no reference is made to that memory, only raw accesses: another process may
//!   be writing to `src`. Each byte is loaded once into a register, and the sum
//!   is taken of what was loaded, so it always fits the bytes at `dst`, whatever
//!   the other process does meanwhile;
//! * code for an instruction set runs only through a [`Kernel`], which cannot be
//!   had on a CPU without it.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(all(target_arch = "x86_64", baton_avx512))]
mod avx512;
mod portable;

use super::fold64;
use super::kernel::{Kernel, KernelKind, kernel};

/// How far ahead of the loop lines are fetched, in bytes: all of a segment.
const AHEAD: usize = 2048;

/// Asks for the lines of the first [`AHEAD`] bytes at `src`, before a kernel's
/// loop comes to them: a loop of small steps fills the CPU's window with the work
/// of a few lines and so waits for few lines at a time.
#[inline(always)]
fn prefetch_start(src: *const u8, len: usize) {
    let mut at = 0;
    while at < len.min(AHEAD) {
        prefetch(src.wrapping_add(at));
        at += 64;
    }
}

/// Asks for the line at `address`, which need not be valid.
#[inline(always)]
fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint that reads nothing and cannot fault; SSE is in every x86-64.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// A sum over native-order words as a partial sum in network order.
#[inline(always)]
fn partial(native: u64) -> u32 {
    u32::from(fold64(native).to_be())
}

/// Runs a kernel: sums `len` bytes at `src`, and if `COPY` writes them to `dst`.
///
/// # Safety
/// `src` is valid for reads of `len` bytes and, if `COPY`, `dst` for writes of
/// `len` bytes that do not overlap them.
#[inline]
unsafe fn run<const COPY: bool>(kernel: Kernel, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    let native = match kernel.kind() {
        // SAFETY: the caller's promise is the kernel's; AVX2 is there, or there would be no such Kernel.
        #[cfg(target_arch = "x86_64")]
        KernelKind::Avx2 => unsafe { avx2::run::<COPY>(dst, src, len) },
        // SAFETY: as above, for AVX-512 F and BW.
        #[cfg(all(target_arch = "x86_64", baton_avx512))]
        KernelKind::Avx512 => unsafe { avx512::run::<COPY>(dst, src, len) },
        // SAFETY: the caller's promise is the kernel's.
        _ => unsafe { portable::run::<COPY>(dst, src, len) },
    };
    partial(native)
}

#[inline]
pub(super) fn sum(kernel: Kernel, data: &[u8]) -> u32 {
    // SAFETY: a slice is valid for reads of its length; nothing is written without COPY.
    unsafe { run::<false>(kernel, core::ptr::null_mut(), data.as_ptr(), data.len()) }
}

/// The caller has made sure that the lengths are equal.
#[inline]
pub(super) fn copy_and_sum(kernel: Kernel, dst: &mut [u8], src: &[u8]) -> u32 {
    let len = src.len().min(dst.len());
    // SAFETY: both slices hold `len` bytes, and a `&mut` overlaps nothing.
    unsafe { run::<true>(kernel, dst.as_mut_ptr(), src.as_ptr(), len) }
}

/// The partial sum of `len` bytes at `src`, which another process may be writing.
///
/// # Safety
/// `src` is valid for reads of `len` bytes.
#[inline]
pub unsafe fn sum_raw(src: *const u8, len: usize) -> u32 {
    // SAFETY: the caller's promise; nothing is written without COPY.
    unsafe { run::<false>(kernel(), core::ptr::null_mut(), src, len) }
}

/// Copies `len` bytes from `src`, which another process may be writing, to `dst`
/// and returns the partial sum of what it wrote there.
///
/// # Safety
/// `src` is valid for reads and `dst` for writes of `len` bytes, and the two do
/// not overlap.
#[inline]
pub unsafe fn copy_and_sum_raw(dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { run::<true>(kernel(), dst, src, len) }
}

#[cfg(test)]
mod tests {
    use super::{copy_and_sum_raw, sum_raw};
    use crate::checksum::rfc1071;

    #[test]
    fn raw_memory_is_summed_and_copied_like_slices() {
        let src: Vec<u8> = (0..200u8).collect();
        for len in 0..=src.len() {
            let mut dst = vec![0xee; src.len()];
            let reference = u32::from(rfc1071(&src[..len]));
            // SAFETY: both vectors hold 200 bytes, and `len` is at most that.
            let sums = unsafe { (sum_raw(src.as_ptr(), len), copy_and_sum_raw(dst.as_mut_ptr(), src.as_ptr(), len)) };
            assert_eq!(sums, (reference, reference));
            assert_eq!(dst[..len], src[..len]);
            assert!(dst[len..].iter().all(|byte| *byte == 0xee));
        }
    }
}
