//! Fuzz target: ICMPv6 messages.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::wire::icmpv6(data));
