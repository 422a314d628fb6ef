//! Sums and copies of slices, by a given kernel or by the process's own.

use super::kernel::{Kernel, kernel};
use super::sys;

impl Kernel {
    /// The partial sum of `data`.
    #[inline]
    pub fn sum(self, data: &[u8]) -> u32 {
        sys::sum(self, data)
    }

    /// Copies `src` to `dst` and returns the partial sum of what it copied.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub fn copy_and_sum(self, dst: &mut [u8], src: &[u8]) -> u32 {
        assert_eq!(dst.len(), src.len(), "copy_and_sum between slices of different length");
        sys::copy_and_sum(self, dst, src)
    }
}

/// The partial sum of `data`.
#[inline]
pub fn sum(data: &[u8]) -> u32 {
    kernel().sum(data)
}

/// Copies `src` to `dst` and returns the partial sum of what it copied.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> u32 {
    kernel().copy_and_sum(dst, src)
}
