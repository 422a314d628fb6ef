//! Fuzz target: sockets called in any order, over a wire that does anything.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::socket::posix(data));
