//! Fuzz target: capture files, pcap and pcapng.

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::port::pcap_file(data));
