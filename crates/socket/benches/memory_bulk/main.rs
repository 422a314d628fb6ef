//! In-memory bulk transfer at MTU 1500 with both ends on one CPU: CPU time per data packet,
//! compared with smoltcp doing the same.
//!
//! `cargo bench -p baton-socket --bench memory_bulk`. Both have 256 KiB of stream buffer per
//! direction, 64 frames of wire, checksums in software on both sides, and a program that reads and
//! writes its own memory. Baton's program uses the registered memory itself (in place) or a
//! separate buffer (copied), as smoltcp's always does.

mod baton;
mod smol;

use baton_port::memory::MemoryOptions;
use baton_testkit::rounds::{Effort, Rounds};
use std::cell::RefCell;

/// Payload bytes of a full segment with timestamps (Baton) and without (smoltcp).
const BATON_MSS: usize = 1448;
const SMOL_MSS: usize = 1460;

const OPTIONS: MemoryOptions = MemoryOptions::new().frames(64);

/// Data packets per turn.
const PACKETS: usize = 2048;

fn main() {
    let rounds = Effort::asked().rounds(301);
    let smol = RefCell::new(smol::Pair::connected());
    let in_place = RefCell::new(baton::Pair::connected(OPTIONS, false));
    let copied = RefCell::new(baton::Pair::connected(OPTIONS, true));
    let vouched = RefCell::new(baton::Pair::connected(OPTIONS.checksum_offload(true), false));
    let (from, mut to) = (vec![5u8; 256 << 10], vec![0u8; 256 << 10]);
    let mut set = Rounds::new("a data packet, both ends", PACKETS);
    set.add("smoltcp", || smol.borrow_mut().transfer(PACKETS * SMOL_MSS));
    set.add("Baton, in place", || in_place.borrow_mut().transfer((PACKETS * BATON_MSS) as u64));
    set.add("Baton, copied to and fro", || copied.borrow_mut().transfer((PACKETS * BATON_MSS) as u64));
    set.add("Baton, in place, no checksums", || vouched.borrow_mut().transfer((PACKETS * BATON_MSS) as u64));
    set.add("two copies with checksum alone", || {
        for packet in 0..2 * PACKETS {
            let at = packet * BATON_MSS % ((256 << 10) - BATON_MSS);
            let sum = baton_wire::checksum::copy_and_sum(&mut to[at..at + BATON_MSS], &from[at..at + BATON_MSS]);
            std::hint::black_box(sum);
        }
    });
    set.run(rounds);
    set.report();
}
