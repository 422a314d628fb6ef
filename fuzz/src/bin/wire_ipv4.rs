//! Fuzz target: IPv4 packets.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::wire::ipv4(data));
