//! The processor's time stamp counter, and the clock that it is compared with.

use rustix::time::{ClockId, clock_gettime};

/// Reads the counter.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn read() -> u64 {
    // SAFETY: every x86-64 has the instruction; a system that forbids it (`prctl(PR_SET_TSC)`) kills the
    // process, as it does at its own `clock_gettime(2)`, which reads the counter too.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Reads nothing: this processor's counter is not used.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn read() -> u64 {
    0
}

/// True if the counter runs at one rate, also while a core sleeps, and the kernel trusts it enough to keep
/// time by it: cores that do not agree, or a counter that stops, make it choose another source.
pub(crate) fn is_reliable() -> bool {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let trusted = std::fs::read_to_string(source).is_ok_and(|name| matches!(name.trim(), "tsc" | "kvm-clock"));
    is_invariant() && trusted
}

/// CPUID's bit for an invariant counter: one rate in all power states (AMD64 Architecture Programmer's
/// Manual, volume 3, function 8000_0007h, EDX bit 8; Intel's SDM, volume 3, "Invariant TSC").
#[cfg(target_arch = "x86_64")]
fn is_invariant() -> bool {
    use core::arch::x86_64::__cpuid;
    const LARGEST: u32 = 0x8000_0000;
    const POWER: u32 = 0x8000_0007;
    __cpuid(LARGEST).eax >= POWER && __cpuid(POWER).edx & 1 << 8 != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn is_invariant() -> bool {
    false
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn clock() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
