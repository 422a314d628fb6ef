//! The choice of a checksum kernel.
//!
//! A [`Kernel`] can only be had for what the CPU supports, so that calling it is
//! safe. The free functions use one for the whole process: the best there is,
//! found at the first call, unless [`set_kernel`] chose another (the off switch
//! is [`KernelKind::Portable`]).

use core::sync::atomic::{AtomicU8, Ordering};

/// The kernels that there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum KernelKind {
    /// 64-bit words, unrolled; on every CPU.
    Portable,
    /// 256-bit vectors (x86-64 with AVX2).
    Avx2,
    /// 512-bit vectors, tails by mask (x86-64 with AVX-512 F and BW).
    Avx512,
}

impl KernelKind {
    /// All kinds, the slowest first.
    pub const ALL: [KernelKind; 3] = [KernelKind::Portable, KernelKind::Avx2, KernelKind::Avx512];
}

/// A kernel that this CPU can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Kernel(KernelKind);

impl Kernel {
    /// The kernel that runs everywhere.
    pub const PORTABLE: Kernel = Kernel(KernelKind::Portable);

    /// The kernel of this kind, or `None` if the CPU (or a compiler too old for
    /// it: AVX-512 needs Rust 1.89) does not have it.
    pub fn new(kind: KernelKind) -> Option<Kernel> {
        let available = match kind {
            KernelKind::Portable => true,
            KernelKind::Avx2 => has_avx2(),
            KernelKind::Avx512 => has_avx512(),
        };
        available.then_some(Kernel(kind))
    }

    /// The fastest kernel of this CPU.
    pub fn best() -> Kernel {
        KernelKind::ALL.into_iter().rev().find_map(Kernel::new).unwrap_or(Kernel::PORTABLE)
    }

    /// Which one it is.
    pub const fn kind(self) -> KernelKind {
        self.0
    }
}

/// 0 before the first use, else 1 + the index in [`KernelKind::ALL`].
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// The kernel that the free functions of this module use.
#[inline]
pub fn kernel() -> Kernel {
    // Relaxed: the value alone says everything, and any thread may write it.
    match CHOSEN.load(Ordering::Relaxed) {
        0 => choose(),
        1 => Kernel(KernelKind::Portable),
        2 => Kernel(KernelKind::Avx2),
        _ => Kernel(KernelKind::Avx512),
    }
}

#[cold]
fn choose() -> Kernel {
    let best = Kernel::best();
    set_kernel(best);
    best
}

/// Makes the free functions of this module use `kernel` from now on.
pub fn set_kernel(kernel: Kernel) {
    let code = match kernel.0 {
        KernelKind::Portable => 1,
        KernelKind::Avx2 => 2,
        KernelKind::Avx512 => 3,
    };
    CHOSEN.store(code, Ordering::Relaxed);
}

/// True if the AVX2 kernel may run.
fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// True if the AVX-512 kernel may run.
fn has_avx512() -> bool {
    #[cfg(all(target_arch = "x86_64", baton_avx512))]
    return std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512bw");
    #[cfg(not(all(target_arch = "x86_64", baton_avx512)))]
    return false;
}
