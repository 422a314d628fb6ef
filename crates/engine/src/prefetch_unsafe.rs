//! Cache prefetch hints. They change speed and nothing else; on targets without them they do
//! nothing.
//!
//! The only unsafe operation is the prefetch instruction itself, which may be
//! given any address without a fault.

use core::ops::Range;

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
    // The last byte too: an unaligned value ends one line further on.
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

/// Where the values of a table lie, for code that may prefetch them but not read them.
#[derive(Clone, Copy, Debug)]
pub struct TableSpan {
    base: usize,
    stride: usize,
    count: usize,
}

impl TableSpan {
    /// The span of `count` values at `base`.
    pub const fn of<T>(base: usize, count: usize) -> TableSpan {
        TableSpan { base, stride: size_of::<T>(), count }
    }

    /// Where the value at `index` begins, if the table has room for it.
    #[inline(always)]
    pub const fn address(&self, index: u32) -> Option<usize> {
        if (index as usize) < self.count { Some(self.base + index as usize * self.stride) } else { None }
    }

    /// The addresses from the first value to past the last.
    pub const fn span(&self) -> Range<usize> {
        self.base..self.base + self.stride * self.count
    }

    /// Starts to fetch every cache line of the value at `index`.
    #[inline(always)]
    pub fn prefetch(&self, index: u32) {
        #[cfg(target_arch = "x86_64")]
        if let Some(address) = self.address(index) {
            for line in (address & !63..address + self.stride).step_by(64) {
                // SAFETY: a prefetch never faults and writes nothing, whatever is
                // at the address by now; SSE is part of x86_64.
                unsafe {
                    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                    _mm_prefetch::<_MM_HINT_T0>(core::ptr::without_provenance(line));
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = index;
    }
}
