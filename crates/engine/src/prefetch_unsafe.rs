//! Cache prefetch hints. They change speed and nothing else; where the target
//! has none they do nothing.
//!
//! The only unsafe operation is the prefetch instruction itself, which may be
//! given any address without a fault.

/// Starts to fetch the cache line where `target` begins, into all levels.
#[inline(always)]
pub fn prefetch<T: ?Sized>(target: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults and writes nothing; SSE is part of x86_64.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>((&raw const *target).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = target;
}

/// Starts to fetch every cache line of `target`.
#[inline(always)]
pub fn prefetch_all<T>(target: &T) {
    #[cfg(target_arch = "x86_64")]
    // The last byte too: what is not aligned ends a line further on.
    for line in (0..size_of::<T>()).step_by(64).chain([size_of::<T>().saturating_sub(1)]) {
        // SAFETY: a prefetch never faults and writes nothing; SSE is part of x86_64.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>((&raw const *target).cast::<i8>().wrapping_add(line));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = target;
}

/// Starts to fetch the line of `slice[index]`; nothing happens if it has no such
/// element.
#[inline(always)]
pub fn prefetch_index<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        prefetch(element);
    }
}
