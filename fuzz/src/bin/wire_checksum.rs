//! Fuzz target: the checksum kernels.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::wire::checksum(data));
