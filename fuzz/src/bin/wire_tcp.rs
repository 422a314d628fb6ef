//! Fuzz target: TCP segments.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::wire::tcp(data));
