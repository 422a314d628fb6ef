//! A consumer that writes anything anywhere, while the engine polls its region.
//!
//! [`fuzz_region`] takes its steps from arbitrary bytes; a fuzz target and the
//! property test below call it. The unsafe code here does what a hostile process
//! could do through its mapping: it stores to any word of a region's memory, as
//! atomics, so that this process stays within Rust's rules. It also guards the
//! memory before and after the region.

use baton_engine::region::{
    Completion, ConsumerRegion, EngineRegion, Events, ExtentCursor, Layout, Queue, Region, Request,
};
use proptest::prelude::*;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const LAYOUT: Layout = Layout { qps: 3, queue_depth: 2, requests: 4, data_bytes: 512 };
const GUARD: u64 = 0x6a72_6475_6172_6421;

/// A cache line pair, as aligned as a region has to be.
#[repr(C, align(128))]
struct Lines([AtomicU64; 16]);

/// A region in memory of our own, with a guard on either side.
struct Hostage {
    lines: Arc<Vec<Lines>>,
    region: Arc<Region>,
    words: usize,
}

impl Hostage {
    fn new() -> Hostage {
        let bytes = LAYOUT.bytes().expect("a layout that can be");
        let inside = bytes.div_ceil(size_of::<Lines>());
        let line = |at: usize| {
            let guard = if at == 0 || at > inside { GUARD } else { 0 };
            Lines(std::array::from_fn(|_| AtomicU64::new(guard)))
        };
        let lines: Arc<Vec<Lines>> = Arc::new((0..inside + 2).map(line).collect());
        // Exposed through UnsafeCells, so that it may be written from a shared reference.
        let base = NonNull::from(&lines[..]).cast::<Lines>();
        // SAFETY: the first of `inside + 2` lines is followed by another.
        let base = unsafe { base.add(1) }.cast::<u8>();
        let len = inside * size_of::<Lines>();
        // SAFETY: `len` bytes from the second line on are all but the last line;
        // the vector is never resized and lives as long as the owner given here;
        // all accesses elsewhere in this file are atomic.
        let region = unsafe { Region::from_raw_parts(base, len, LAYOUT, Box::new(Arc::clone(&lines))) };
        Hostage { region: region.expect("memory of the right size"), lines, words: len / 8 }
    }

    /// What the consumer's process could do: a store of `value` at any word.
    fn scribble(&self, word: usize, wide: bool, value: u64) {
        let word = word % self.words;
        let target = &self.lines[1 + word / 16].0[word % 16];
        if wide {
            target.store(value, Ordering::Relaxed);
        } else {
            // SAFETY: the first half of an atomic that is only accessed as one.
            let half = unsafe { AtomicU32::from_ptr(target.as_ptr().cast()) };
            half.store(value as u32, Ordering::Relaxed);
        }
    }

    fn guards_hold(&self) -> bool {
        let guards = [&self.lines[0], &self.lines[self.lines.len() - 1]];
        guards.iter().all(|line| line.0.iter().all(|word| word.load(Ordering::Relaxed) == GUARD))
    }
}

/// Steps out of arbitrary bytes.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number that is likelier than chance to be of interest.
    fn number(&mut self) -> Option<u64> {
        let [kind] = self.take()?;
        Some(match kind % 8 {
            0 => u64::MAX - u64::from(kind >> 3),
            1 => u64::from(kind >> 3),
            2 => LAYOUT.data_bytes - u64::from(kind >> 3),
            3 => 1 << (kind >> 3),
            4 => (1 << 31) + u64::from(kind >> 3),
            5 => u64::from(u16::from_le_bytes(self.take()?)),
            6 => u64::from(u32::from_le_bytes(self.take()?)),
            _ => u64::from_le_bytes(self.take()?),
        })
    }
}

/// Everything that the Streamer does to a queue pair when its doorbell rings.
fn serve(engine: &EngineRegion, qp: u32, at: u64, cursor: &mut ExtentCursor) {
    let pair = engine.qp(qp);
    let (tail, limit) = (pair.snd_tail(), pair.rcv_limit());
    let mut bytes = [0; 64];
    for queue in [Queue::Send, Queue::Receive] {
        for position in [at, tail.wrapping_sub(1), limit.wrapping_sub(1), cursor.start] {
            let Some((next, extent)) = pair.find(queue, *cursor, position, 64) else { continue };
            assert!(extent.len() <= 64 && extent.offset() + u64::from(extent.len()) <= LAYOUT.data_bytes);
            let bytes = &mut bytes[..extent.len() as usize];
            engine.copy_out_sum(extent, bytes);
            engine.copy_in_sum(extent, bytes);
            engine.sum(extent);
            assert_eq!(engine.part(extent).len, bytes.len());
            *cursor = next;
        }
    }
    for index in [pair.sq_tail(), pair.rq_tail(), at as u32] {
        let _ = (pair.sq_extent(index), pair.rq_extent(index));
    }
    pair.set_snd_done(tail);
    pair.set_rcv_done(limit);
    pair.raise(Events::RECV | Events::SEND);
}

/// Runs one script; panics if the engine's side does what it must not.
pub fn fuzz_region(data: &[u8]) {
    let hostage = Hostage::new();
    let engine = EngineRegion::new(hostage.region.clone());
    let consumer = ConsumerRegion::new(hostage.region.clone());
    let mut script = Script(data);
    let mut cursors = [ExtentCursor::default(); LAYOUT.qps as usize];
    while run_step(&hostage, &engine, &consumer, &mut script, &mut cursors).is_some() {}
    assert!(hostage.guards_hold(), "something was written outside the region");
}

fn run_step(
    hostage: &Hostage,
    engine: &EngineRegion,
    consumer: &ConsumerRegion,
    script: &mut Script<'_>,
    cursors: &mut [ExtentCursor],
) -> Option<()> {
    let [step] = script.take()?;
    let qp = u32::from(step >> 4) % LAYOUT.qps;
    match step % 12 {
        0..=3 => {
            let word = u16::from_le_bytes(script.take()?);
            hostage.scribble(word.into(), step & 0x10 != 0, script.number()?);
        }
        4 => {
            let mut out = [0; 8];
            let taken = engine.pop_doorbells(&mut out);
            for &qp in &out[..taken] {
                serve(engine, qp, 0, &mut cursors[qp as usize]);
            }
        }
        5 => {
            if let Some(request) = engine.pop_request() {
                let qp = match request {
                    Request::Unlisten { qp } | Request::Shutdown { qp } | Request::Close { qp } => qp,
                    Request::Abort { qp } | Request::SetOption { qp, .. } | Request::Info { qp, .. } => qp,
                    Request::Connect { .. } | Request::Listen { .. } => 0,
                };
                engine.qp(qp).reset();
            }
        }
        6 => serve(engine, qp, script.number()?, &mut cursors[qp as usize]),
        7 => {
            let free = engine.completion_free();
            assert_eq!(engine.complete(Completion::Opened { qp, token: 1 }), free > 0);
        }
        8 => {
            let _ = (engine.prepare_sleep(), engine.must_wake_consumer(), engine.has_work());
            engine.awake();
        }
        9 => {
            let _ = (consumer.poll_completion(), consumer.qp(qp).take_events(), consumer.qp(qp).identity());
        }
        10 => {
            consumer.ring_doorbell(qp);
            let _ = consumer.request(&Request::Shutdown { qp });
        }
        _ => {
            let extent = consumer.extent(script.number()? % LAYOUT.data_bytes, 1)?;
            let _ = consumer.qp(qp).post(Queue::Send, script.number()? as u32, 0, extent);
            consumer.qp(qp).set_snd_tail(script.number()?);
        }
    }
    Some(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 20 } else { 3000 }))]

    #[test]
    fn nothing_that_memory_holds_harms_the_engine(data in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz_region(&data);
    }
}

#[test]
fn what_makes_no_sense_is_counted_and_skipped() {
    let hostage = Hostage::new();
    let engine = EngineRegion::new(hostage.region.clone());
    // Doorbell ring of 4 entries after the header, two a word; its tail is the
    // first word of the header's second line pair.
    let (ring, tail) = (1152 / 8, 128 / 8);
    hostage.scribble(ring, true, 1 << 32 | 77);
    hostage.scribble(ring + 1, true, u64::from(u32::MAX) << 32 | 2);
    hostage.scribble(tail, false, 4);
    let mut out = [0; 8];
    assert_eq!(engine.pop_doorbells(&mut out), 2);
    assert_eq!((out[0], out[1], engine.bad_input().doorbells), (1, 2, 2));
    hostage.scribble(tail, false, 9);
    assert_eq!(engine.pop_doorbell(), None);
    assert_eq!(engine.bad_input().positions, 1);
    hostage.scribble(tail, false, 10);
    hostage.scribble(ring, true, 2 << 32);
    assert_eq!(engine.pop_doorbell(), Some(2), "it goes on from the position that made no sense");
}

#[test]
fn a_region_is_opened_by_what_its_header_says() {
    let hostage = Hostage::new();
    let open = |len: usize| {
        let base = NonNull::from(&hostage.lines[1..]).cast::<u8>();
        let owner = Box::new(Arc::clone(&hostage.lines));
        // SAFETY: as in `Hostage::new`; `len` is at most that of the region.
        unsafe { Region::open_raw_parts(base, len, owner) }.map(|region| region.layout())
    };
    let whole = hostage.words * 8;
    assert_eq!(open(whole), Ok(LAYOUT));
    assert!(open(whole - 4096).is_err() && open(8).is_err());
    hostage.scribble(2, true, u64::MAX);
    assert!(open(whole).is_err(), "another version");
    hostage.scribble(0, true, 0);
    assert!(open(whole).is_err(), "no magic");
}

#[test]
fn a_region_larger_than_its_memory_is_not_opened() {
    let hostage = Hostage::new();
    hostage.scribble(1, true, LAYOUT.data_bytes + (1 << 20));
    let base = NonNull::from(&hostage.lines[1..]).cast::<u8>();
    // SAFETY: as in `Hostage::new`.
    let opened = unsafe { Region::open_raw_parts(base, hostage.words * 8, Box::new(Arc::clone(&hostage.lines))) };
    assert!(opened.is_err());
    // The region that is open already does not look at its header again.
    assert_eq!(hostage.region.layout(), LAYOUT);
}
