//! Asking for memory before it is needed.
//!
//! This module upholds: a prefetch is a hint, which reads nothing that the program sees and faults
//! on no address; it is still given only the address of a byte of a slice.
#![allow(unsafe_code)]

/// Prefetches the line of `bytes[at]`, if there is one.
#[inline(always)]
pub fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = bytes.get(at) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, and the address of a byte that is there.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(byte).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}
