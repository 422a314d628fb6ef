//! 256-bit vectors.
//!
//! A vector's 32-bit words go to 64-bit sums, the even ones by a mask, the odd
//! ones by a shift: no carry is ever lost, so nothing is folded in the loop.

use super::portable;
use core::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_loadu_si256, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_srli_epi64, _mm256_storeu_si256,
};

/// Sums `len` bytes at `src` as native-order words, not folded, and if `COPY`
/// writes them to `dst`.
///
/// # Safety
/// As for [`super::run`], and the CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn run<const COPY: bool>(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    let mut sums = [_mm256_setzero_si256(); 4];
    let mut at = 0;
    while len - at >= 128 {
        // SAFETY: at + 128 <= len.
        unsafe {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = step::<COPY>(*sum, dst.wrapping_add(at + 32 * i), src.add(at + 32 * i));
            }
        }
        at += 128;
    }
    while len - at >= 32 {
        // SAFETY: at + 32 <= len.
        sums[0] = unsafe { step::<COPY>(sums[0], dst.wrapping_add(at), src.add(at)) };
        at += 32;
    }
    let sum = _mm256_add_epi64(_mm256_add_epi64(sums[0], sums[1]), _mm256_add_epi64(sums[2], sums[3]));
    let mut lanes = [0u64; 4];
    // SAFETY: the array holds 32 bytes, and the store asks for no alignment.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
    // SAFETY: the rest, len - at bytes, lies within what the caller promised.
    lanes.iter().sum::<u64>() + unsafe { portable::tail::<COPY>(dst.wrapping_add(at), src.add(at), len - at) }
}

/// Adds the 32 bytes at `src` to `sum`, and if `COPY` writes them to `dst`.
///
/// # Safety
/// As for [`super::run`] with 32 bytes, and the CPU has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn step<const COPY: bool>(sum: __m256i, dst: *mut u8, src: *const u8) -> __m256i {
    // SAFETY: 32 bytes are readable at `src`, and the load asks for no alignment.
    let vector = unsafe { _mm256_loadu_si256(src.cast()) };
    if COPY {
        // SAFETY: 32 bytes are writable at `dst`, and the store asks for no alignment.
        unsafe { _mm256_storeu_si256(dst.cast(), vector) };
    }
    let even = _mm256_and_si256(vector, _mm256_set1_epi64x(0xffff_ffff));
    let odd = _mm256_srli_epi64::<32>(vector);
    _mm256_add_epi64(sum, _mm256_add_epi64(even, odd))
}
