//! Fuzz target: IPv6 packets.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::wire::ipv6(data));
