//! The BPF programs of `bpf/`, as clang made them when this crate was built.
#![cfg_attr(bpf_objects, allow(clippy::unnecessary_wraps, reason = "`None` in a build without clang"))]

/// `bpf/endpoint.c`; `None` in a build without clang.
#[cfg(bpf_objects)]
pub fn endpoint() -> Option<&'static [u8]> {
    Some(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/endpoint.o")))
}

/// `bpf/steer.c`; `None` in a build without clang.
#[cfg(bpf_objects)]
pub fn steer() -> Option<&'static [u8]> {
    Some(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.o")))
}

/// `bpf/endpoint.c`; `None` in a build without clang.
#[cfg(not(bpf_objects))]
pub fn endpoint() -> Option<&'static [u8]> {
    None
}

/// `bpf/steer.c`; `None` in a build without clang.
#[cfg(not(bpf_objects))]
pub fn steer() -> Option<&'static [u8]> {
    None
}

/// `bpf/queue.c`; `None` in a build without clang.
#[cfg(bpf_objects)]
pub fn queue() -> Option<&'static [u8]> {
    Some(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/queue.o")))
}

/// `bpf/queue.c`; `None` in a build without clang.
#[cfg(not(bpf_objects))]
pub fn queue() -> Option<&'static [u8]> {
    None
}

/// `bpf/bump.c`; `None` in a build without clang.
#[cfg(bpf_objects)]
pub fn bump() -> Option<&'static [u8]> {
    Some(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bump.o")))
}

/// `bpf/bump.c`; `None` in a build without clang.
#[cfg(not(bpf_objects))]
pub fn bump() -> Option<&'static [u8]> {
    None
}
