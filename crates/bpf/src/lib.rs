//! The BPF programs of `programs/`, as clang compiled them when this crate was built.
//!
//! Each function returns the object file of one program, for `aya::Ebpf::load`.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(bpf_objects, allow(clippy::unnecessary_wraps, reason = "`None` in a build without clang"))]

macro_rules! objects {
    ($($name:ident)*) => {$(
        #[doc = concat!("`programs/", stringify!($name), ".c`; `None` in a build without clang.")]
        #[cfg(bpf_objects)]
        pub fn $name() -> Option<&'static [u8]> {
            Some(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".o")))
        }

        #[doc = concat!("`programs/", stringify!($name), ".c`; `None` in a build without clang.")]
        #[cfg(not(bpf_objects))]
        pub fn $name() -> Option<&'static [u8]> {
            None
        }
    )*};
}

objects! { arrive bump endpoint gap latency queue steer }
