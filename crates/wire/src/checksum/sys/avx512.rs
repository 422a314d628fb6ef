//! 512-bit vectors: one a cache line, and the tail in one masked access.

// Compiled only where build.rs found a compiler that has the intrinsics.
#![allow(clippy::incompatible_msrv)]

use core::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8,
    _mm512_reduce_add_epi64, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_srli_epi64, _mm512_storeu_si512,
};

/// Sums `len` bytes at `src` as native-order words, not folded, and if `COPY`
/// writes them to `dst`.
///
/// # Safety
/// As for [`super::run`], and the CPU has AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn run<const COPY: bool>(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    let mut sums = [_mm512_setzero_si512(); 4];
    let mut at = 0;
    if !COPY {
        super::prefetch_start(src, len);
    }
    while len - at >= 256 {
        // SAFETY: at + 256 <= len.
        unsafe {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = step::<COPY>(*sum, dst.wrapping_add(at + 64 * i), src.add(at + 64 * i));
            }
        }
        at += 256;
    }
    while len - at >= 64 {
        // SAFETY: at + 64 <= len.
        sums[0] = unsafe { step::<COPY>(sums[0], dst.wrapping_add(at), src.add(at)) };
        at += 64;
    }
    if at < len {
        let mask = (1u64 << (len - at)) - 1;
        // SAFETY: the mask covers the len - at bytes that are left, fewer than 64; no other is touched.
        let vector = unsafe { _mm512_maskz_loadu_epi8(mask, src.add(at).cast()) };
        if COPY {
            // SAFETY: as for the load, and `dst` is writable with COPY.
            unsafe { _mm512_mask_storeu_epi8(dst.add(at).cast(), mask, vector) };
        }
        sums[1] = add(sums[1], vector);
    }
    let sum = _mm512_add_epi64(_mm512_add_epi64(sums[0], sums[1]), _mm512_add_epi64(sums[2], sums[3]));
    _mm512_reduce_add_epi64(sum) as u64
}

/// Adds the 64 bytes at `src` to `sum`, and if `COPY` writes them to `dst`.
///
/// # Safety
/// As for [`super::run`] with 64 bytes, and the CPU has AVX-512 F.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn step<const COPY: bool>(sum: __m512i, dst: *mut u8, src: *const u8) -> __m512i {
    // SAFETY: 64 bytes are readable at `src`, and the load asks for no alignment.
    let vector = unsafe { _mm512_loadu_si512(src.cast()) };
    if COPY {
        // SAFETY: 64 bytes are writable at `dst`, and the store asks for no alignment.
        unsafe { _mm512_storeu_si512(dst.cast(), vector) };
    }
    add(sum, vector)
}

/// Adds a vector's 32-bit words to 64-bit sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn add(sum: __m512i, vector: __m512i) -> __m512i {
    let even = _mm512_and_si512(vector, _mm512_set1_epi64(0xffff_ffff));
    let odd = _mm512_srli_epi64::<32>(vector);
    _mm512_add_epi64(sum, _mm512_add_epi64(even, odd))
}
