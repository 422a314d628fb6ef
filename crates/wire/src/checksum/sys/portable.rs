//! The kernel for every CPU: 64-bit words, four at a time.

/// Words a round.
const UNROLL: usize = 4;

/// Sums `len` bytes at `src` as native-order words, not folded, and if `COPY`
/// writes them to `dst`.
///
/// # Safety
/// As for [`super::run`].
#[inline]
pub(super) unsafe fn run<const COPY: bool>(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    // The halves of a word go to two sums, 2^32 words before one could overflow.
    let mut low = [0u64; UNROLL];
    let mut high = [0u64; UNROLL];
    let mut at = 0;
    if COPY {
        super::prefetch_start(src, len);
    }
    while len - at >= 8 * UNROLL {
        let mut words = [0u64; UNROLL];
        for (i, word) in words.iter_mut().enumerate() {
            // SAFETY: at + 8 * i + 8 <= len.
            *word = unsafe { src.add(at + 8 * i).cast::<u64>().read_unaligned() };
        }
        for (i, word) in words.into_iter().enumerate() {
            if COPY {
                // SAFETY: as for the read, and `dst` is writable with COPY.
                unsafe { dst.add(at + 8 * i).cast::<u64>().write_unaligned(word) };
            }
            low[i] += word & 0xffff_ffff;
            high[i] += word >> 32;
        }
        at += 8 * UNROLL;
    }
    let head = low.iter().sum::<u64>() + high.iter().sum::<u64>();
    // SAFETY: the rest, len - at bytes, lies within what the caller promised.
    head + unsafe { tail::<COPY>(dst.wrapping_add(at), src.add(at), len - at) }
}

/// The same for what is left over of a wider kernel's loop.
///
/// # Safety
/// As for [`super::run`].
#[inline]
pub(super) unsafe fn tail<const COPY: bool>(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    let mut sum = 0;
    let mut at = 0;
    while len - at >= 8 {
        // SAFETY: at + 8 <= len.
        let word = unsafe { src.add(at).cast::<u64>().read_unaligned() };
        if COPY {
            // SAFETY: as for the read, and `dst` is writable with COPY.
            unsafe { dst.add(at).cast::<u64>().write_unaligned(word) };
        }
        sum += (word & 0xffff_ffff) + (word >> 32);
        at += 8;
    }
    // Up to seven bytes, padded with zeros at the end as RFC 1071 §1 has it.
    let mut last = [0u8; 8];
    for slot in last.iter_mut().take(len - at) {
        // SAFETY: `at` is below len: the loop takes len - at turns.
        *slot = unsafe { src.add(at).read() };
        if COPY {
            // SAFETY: as for the read, and `dst` is writable with COPY.
            unsafe { dst.add(at).write(*slot) };
        }
        at += 1;
    }
    let word = u64::from_ne_bytes(last);
    sum + (word & 0xffff_ffff) + (word >> 32)
}
