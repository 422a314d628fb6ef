//! The BPF programs of `bpf/`, as clang made them when this crate was built.
#![cfg_attr(bpf_objects, allow(clippy::unnecessary_wraps, reason = "`None` in a build without clang"))]

macro_rules! objects {
    ($($name:ident)*) => {$(
        #[doc = concat!("`bpf/", stringify!($name), ".c`; `None` in a build without clang.")]
        #[cfg(bpf_objects)]
        pub fn $name() -> Option<&'static [u8]> {
            Some(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".o")))
        }

        #[doc = concat!("`bpf/", stringify!($name), ".c`; `None` in a build without clang.")]
        #[cfg(not(bpf_objects))]
        pub fn $name() -> Option<&'static [u8]> {
            None
        }
    )*};
}

objects! { arrive bump endpoint gap queue steer }
