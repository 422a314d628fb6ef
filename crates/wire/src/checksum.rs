//! The Internet checksum (RFC 1071): reference loop, fast kernels, arithmetic.
//!
//! A **partial sum** here is a `u32` congruent, modulo 0xffff, to the sum of the
//! big-endian 16-bit words of some bytes; what this module returns is folded, so
//! at most 0xffff, and partial sums may be added with `+` freely (65,537 of them
//! before a `u32` could overflow). A sum is 0 only if every byte is 0; all
//! kernels agree on that and so return equal values, not just congruent ones.
//!
//! ```text
//!   segment is right     fold(pseudo + sum(header) + sum(payload)) == 0xffff
//!   field to be stored   finish(pseudo + sum(header, field 0) + sum(payload))
//!   odd first part       combine(sum(a), a.len(), sum(b)) == sum(a ++ b)
//! ```
//!
//! Copying and summing in one pass costs little more than copying, since both
//! wait for the same cache lines (LA §4). Which kernel does it is decided once,
//! by what the CPU has ([`Kernel`]).

mod kernel;
mod safe;
mod sys;

use crate::addr::Addr;
pub use kernel::{Kernel, KernelKind, kernel, set_kernel};
pub use safe::{copy_and_sum, sum};
pub use sys::{copy_and_sum_raw, sum_raw};

/// The loop of RFC 1071 §4.1, one 16-bit word at a time: what every kernel is
/// compared with. Returns the folded sum, not its complement.
pub fn rfc1071(data: &[u8]) -> u16 {
    let (pairs, odd) = data.as_chunks::<2>();
    let mut sum = 0;
    for pair in pairs {
        sum += u64::from(u16::from_be_bytes(*pair));
    }
    if let [last] = odd {
        sum += u64::from(*last) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Folds a partial sum to 16 bits by end-around carry.
#[inline(always)]
pub const fn fold(sum: u32) -> u16 {
    // The halves are added twice, side by side; the lower addition's carry is what
    // the upper one has to take in.
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Folds a 64-bit partial sum to 16 bits by end-around carry.
#[inline(always)]
pub const fn fold64(sum: u64) -> u16 {
    fold((sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32)
}

/// The value of a checksum field for data that sums to `sum` with the field
/// taken as 0: the complement of the folded sum.
#[inline(always)]
pub const fn finish(sum: u32) -> u16 {
    !fold(sum)
}

/// The sum of two adjacent parts, the first one `first_len` bytes long. After an
/// odd first part the second's bytes lie in the other halves of their words.
#[inline]
pub const fn combine(first: u32, first_len: usize, second: u32) -> u32 {
    let second = fold(second);
    let second = if first_len % 2 == 1 { second.swap_bytes() } else { second };
    fold(fold(first) as u32 + second as u32) as u32
}

/// The checksum field after a 16-bit word that it covers went from `old` to
/// `new`: equation 3 of RFC 1624 §3.
#[inline]
pub const fn update(field: u16, old: u16, new: u16) -> u16 {
    !fold(!field as u32 + !old as u32 + new as u32)
}

/// [`update`] for an aligned 32-bit word, such as a sequence number.
#[inline]
pub const fn update32(field: u16, old: u32, new: u32) -> u16 {
    !fold64(!field as u64 + !old as u64 + new as u64)
}

/// The sum of the pseudo header (RFC 9293 §3.1, RFC 8200 §8.1): addresses,
/// protocol and the length in bytes of transport header and payload.
#[inline]
pub const fn pseudo(src: Addr, dst: Addr, protocol: u8, len: u32) -> u32 {
    fold64(pseudo_addrs(src, dst) + protocol as u64 + len as u64) as u32
}

/// The addresses' share of the pseudo header. An IPv4 address needs no case of
/// its own: the 0xffff of its mapped form is the zero of this arithmetic.
#[inline(always)]
pub(crate) const fn pseudo_addrs(src: Addr, dst: Addr) -> u64 {
    addr_sum(src) + addr_sum(dst)
}

#[inline(always)]
const fn addr_sum(addr: Addr) -> u64 {
    let (low, high) = (addr.0 as u64, (addr.0 >> 64) as u64);
    (low & 0xffff_ffff) + (low >> 32) + (high & 0xffff_ffff) + (high >> 32)
}

/// The sum of a whole header, a multiple of 4 bytes and at most 60: no kernel is
/// worth a call. Not folded.
#[inline(always)]
pub(crate) fn header_sum(header: &[u8]) -> u64 {
    // A header without options, and a TCP header with timestamps only, are summed
    // without a loop: this is on the path of every data segment.
    let native = match header.len() {
        20 => sum_words(&header[..20]),
        32 => sum_words(&header[..32]),
        _ => sum_words(header),
    };
    // The carries, a few bits above 32, are one more word.
    u64::from((native as u32).to_be()) + u64::from(((native >> 32) as u16).to_be())
}

#[inline(always)]
fn sum_words(header: &[u8]) -> u64 {
    header.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum()
}
