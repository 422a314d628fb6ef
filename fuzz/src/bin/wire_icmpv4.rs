//! Fuzz target: ICMP messages.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::wire::icmpv4(data));
