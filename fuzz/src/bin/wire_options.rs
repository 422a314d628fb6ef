//! Fuzz target: lists of TCP options.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::wire::options(data));
