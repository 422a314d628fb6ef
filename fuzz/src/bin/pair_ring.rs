#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::pair::ring_unsafe::fuzz_ring(data));
