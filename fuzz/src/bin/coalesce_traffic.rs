//! Fuzz target: the coalescer beside a slow one.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::coalesce::traffic(data));
