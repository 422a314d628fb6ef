//! Reading network-order fields out of headers of known size.
//!
//! The header is an array, so with a constant `at` the bounds are decided at
//! compile time and nothing is left to check or to panic at run time.

/// The 16-bit field at byte `at`.
#[inline(always)]
pub(crate) const fn be16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// The 32-bit field at byte `at`.
#[inline(always)]
pub(crate) const fn be32<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// The four bytes at `at`.
#[inline(always)]
pub(crate) const fn bytes4<const N: usize>(header: &[u8; N], at: usize) -> [u8; 4] {
    [header[at], header[at + 1], header[at + 2], header[at + 3]]
}

/// The six bytes at `at`.
#[inline(always)]
pub(crate) const fn bytes6<const N: usize>(header: &[u8; N], at: usize) -> [u8; 6] {
    [header[at], header[at + 1], header[at + 2], header[at + 3], header[at + 4], header[at + 5]]
}

/// The sixteen bytes at `at`.
#[inline(always)]
pub(crate) fn bytes16<const N: usize>(header: &[u8; N], at: usize) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&header[at..at + 16]);
    bytes
}
