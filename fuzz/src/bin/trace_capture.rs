//! Fuzz target: captures, and what is counted of them.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::trace::capture(data));
