#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::engine::consumer::fuzz_consumer(data));
