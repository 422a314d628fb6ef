//! Fuzz target: the fast parse of a frame.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::wire::packet(data));
