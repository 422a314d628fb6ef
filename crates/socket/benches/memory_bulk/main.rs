//! In-memory bulk transfer at MTU 1500, both ends on one CPU: CPU time a data
//! packet, against smoltcp doing the same.

mod baton;

use baton_port::memory::MemoryOptions;
use std::time::Instant;

fn total() -> u64 {
    std::env::var("MB").map_or(1 << 30, |mb| mb.parse::<u64>().unwrap() << 20)
}

fn main() {
    let (mut client, mut server) = baton::connected(MemoryOptions::default());
    let mut now = 1_000_000_000;
    baton::transfer(&mut client, &mut server, total() / 8, &mut now);
    for _ in 0..5 {
        let start = Instant::now();
        let segments = baton::transfer(&mut client, &mut server, total(), &mut now);
        let elapsed = start.elapsed();
        println!("baton   {:6.1} ns a packet ({segments} packets)", elapsed.as_nanos() as f64 / segments as f64);
    }
    client.print_counters();
    println!();
    server.print_counters();
}
