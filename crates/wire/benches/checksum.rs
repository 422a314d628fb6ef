//! Copy-and-checksum against memcpy, checksums against the RFC 1071 loop.
//!
//! `cargo bench -p baton-wire --bench checksum`. Payloads of 1448 bytes,
//! cache-hot, and from a working set of 256 MiB in order and at random; they go
//! to a ring of 64 frames, as a Streamer's do. A turn takes well under a
//! millisecond, so that most turns of most rounds are not interrupted.

use baton_testkit::rounds::{Effort, Rounds};
use baton_wire::checksum::{self, Kernel, KernelKind};
use std::cell::{Cell, RefCell};
use std::hint::black_box;

const PAYLOAD: usize = 1448;
const FRAME: usize = 2048;
const FRAMES: usize = 64;
/// Payloads a contender works on before it is the next one's turn.
const TURN: usize = 512;

fn main() {
    let effort = Effort::asked();
    let (rounds, size) = (effort.rounds(301), effort.pick(256 << 20, 1 << 20));
    let arena: Vec<u8> = (0..size).map(|i| (i ^ (i >> 11)) as u8).collect();
    let in_order: Vec<u32> = (0..size / PAYLOAD).map(|i| (i * PAYLOAD) as u32).collect();
    let hot = vec![0u32; TURN];
    let random = shuffled(&in_order);
    for (name, offsets) in [("hot", &hot), ("in order", &in_order), ("random", &random)] {
        copies(&format!("copy, {name}"), &Payloads::new(&arena, offsets), rounds);
    }
    for (name, offsets) in [("hot", &hot), ("in order", &in_order)] {
        sums(&format!("checksum, {name}"), &Payloads::new(&arena, offsets), rounds);
    }
}

fn kernels() -> impl Iterator<Item = Kernel> {
    KernelKind::ALL.into_iter().filter_map(Kernel::new)
}

fn copies(title: &str, payloads: &Payloads<'_>, rounds: usize) {
    let mut set = Rounds::new(title, TURN);
    set.add("memcpy", || {
        payloads.turn(|dst, src| {
            dst.copy_from_slice(src);
            0
        });
    });
    for kernel in kernels() {
        set.add(format!("copy and sum, {:?}", kernel.kind()), move || {
            payloads.turn(|dst, src| kernel.copy_and_sum(dst, src));
        });
    }
    set.add("memcpy, then sum the copy", || {
        let best = Kernel::best();
        payloads.turn(|dst, src| {
            dst.copy_from_slice(src);
            best.sum(dst)
        });
    });
    set.run(rounds);
    set.report();
}

fn sums(title: &str, payloads: &Payloads<'_>, rounds: usize) {
    let mut set = Rounds::new(title, TURN);
    set.add("RFC 1071 loop", || payloads.turn(|_, src| u32::from(checksum::rfc1071(src))));
    for kernel in kernels() {
        set.add(format!("sum, {:?}", kernel.kind()), move || payloads.turn(|_, src| kernel.sum(src)));
    }
    set.run(rounds);
    set.report();
}

/// Payloads that all contenders of a set take in turn, so that none finds in the
/// cache what another has just read.
struct Payloads<'a> {
    arena: &'a [u8],
    offsets: &'a [u32],
    next: Cell<usize>,
    frames: RefCell<Vec<u8>>,
}

impl<'a> Payloads<'a> {
    fn new(arena: &'a [u8], offsets: &'a [u32]) -> Payloads<'a> {
        Payloads { arena, offsets, next: Cell::new(0), frames: RefCell::new(vec![0; FRAME * FRAMES]) }
    }

    /// Works on the next payloads, into the frames in turn.
    fn turn(&self, work: impl Fn(&mut [u8], &[u8]) -> u32) {
        let start = if self.next.get() + TURN > self.offsets.len() { 0 } else { self.next.get() };
        self.next.set(start + TURN);
        let mut frames = self.frames.borrow_mut();
        for (i, &offset) in self.offsets.iter().skip(start).take(TURN).enumerate() {
            let frame = &mut frames[(i % FRAMES) * FRAME + 66..][..PAYLOAD];
            let src = &self.arena[offset as usize..][..PAYLOAD];
            black_box(work(black_box(frame), black_box(src)));
        }
    }
}

fn shuffled(offsets: &[u32]) -> Vec<u32> {
    let mut offsets = offsets.to_vec();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for i in (1..offsets.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        offsets.swap(i, (state >> 33) as usize % (i + 1));
    }
    offsets
}
