//! A consumer that writes anything anywhere, while the engine polls its region.
//!
//! [`fuzz_region`] takes its steps from arbitrary bytes; the fuzz target and
//! the engine's property test call it. The unsafe code here does what a
//! hostile process could do through its mapping: it stores to any word of a
//! region's memory, as atomics, so that this process stays within Rust's rules.
//! It also guards the memory before and after the region.

use baton_engine::region::{
    Completion, ConsumerRegion, EngineRegion, Events, Layout, LayoutError, Queue, Region, Request,
};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The region's sizes: small, so that random steps meet.
pub const LAYOUT: Layout = Layout { qps: 3, queue_depth: 2, requests: 4, data_bytes: 512 };
const GUARD: u64 = 0x6a72_6475_6172_6421;

/// A cache line pair, as aligned as a region has to be.
#[repr(C, align(128))]
struct Lines([AtomicU64; 16]);

/// A region in memory of our own, with a guard on either side.
pub struct Hostage {
    lines: Arc<Vec<Lines>>,
    /// The region that the lines make up.
    pub region: Arc<Region>,
    /// Words of memory that the consumer can write.
    pub words: usize,
}

impl Hostage {
    /// A fresh region.
    pub fn fresh() -> Hostage {
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

    /// A store of `value` at any word, which the consumer's process could do.
    pub fn scribble(&self, word: usize, wide: bool, value: u64) {
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

    /// A second region over the first `len` bytes, by what the header says now.
    ///
    /// # Errors
    /// [`LayoutError`] as [`Region::open_raw_parts`] gives it.
    pub fn open(&self, len: usize) -> Result<Arc<Region>, LayoutError> {
        assert!(len <= self.words * 8);
        let base = NonNull::from(&self.lines[1..]).cast::<u8>();
        // SAFETY: as in `fresh`, and no longer than that.
        unsafe { Region::open_raw_parts(base, len, Box::new(Arc::clone(&self.lines))) }
    }

    /// True if nothing was written before or after the region.
    pub fn guards_hold(&self) -> bool {
        let guards = [&self.lines[0], &self.lines[self.lines.len() - 1]];
        guards.iter().all(|line| line.0.iter().all(|word| word.load(Ordering::Relaxed) == GUARD))
    }
}

/// Steps out of arbitrary bytes.
pub struct Script<'a>(pub &'a [u8]);

impl Script<'_> {
    /// The next bytes; `None` at the end.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number that is likelier than chance to be of interest.
    pub fn number(&mut self) -> Option<u64> {
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

/// The Streamer's work on a queue pair when its doorbell rings.
fn serve(engine: &EngineRegion, qp: u32, at: u64) {
    let pair = engine.qp(qp);
    let (tail, limit) = (pair.snd_tail(), pair.rcv_limit());
    let mut bytes = [0; 64];
    for index in [pair.sq_tail(), pair.sq_tail().wrapping_sub(1), pair.rq_tail(), at as u32] {
        for extent in [pair.sq_extent(index), pair.rq_extent(index)].into_iter().flatten() {
            assert!(extent.offset() + u64::from(extent.len()) <= LAYOUT.data_bytes);
            let piece = extent.part(at as u32, 64);
            assert!(piece.len() <= 64 && piece.offset() + u64::from(piece.len()) <= LAYOUT.data_bytes);
            let bytes = &mut bytes[..piece.len() as usize];
            engine.copy_out_sum(piece, bytes);
            engine.copy_in_sum(piece, bytes);
            engine.sum(piece);
            assert_eq!(engine.part(piece).len, bytes.len());
        }
    }
    pair.set_snd_done(tail);
    pair.set_rcv_done(limit);
    pair.raise(Events::RECV | Events::SEND);
}

/// Runs one script; panics if the engine's side does what it must not.
pub fn fuzz_region(data: &[u8]) {
    let hostage = Hostage::fresh();
    let engine = EngineRegion::new(hostage.region.clone());
    let consumer = ConsumerRegion::new(hostage.region.clone());
    let mut script = Script(data);
    while run_step(&hostage, &engine, &consumer, &mut script).is_some() {}
    assert!(hostage.guards_hold(), "something was written outside the region");
}

fn run_step(
    hostage: &Hostage,
    engine: &EngineRegion,
    consumer: &ConsumerRegion,
    script: &mut Script<'_>,
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
                serve(engine, qp, 0);
            }
        }
        5 => {
            if let Some(request) = engine.pop_request() {
                let qp = match request {
                    Request::Unlisten { qp } | Request::Shutdown { qp } | Request::Close { qp } => qp,
                    Request::Abort { qp } | Request::SetOption { qp, .. } | Request::Info { qp, .. } => qp,
                    Request::Unpost { qp, .. } => qp,
                    Request::Connect { .. } | Request::Listen { .. } => 0,
                };
                engine.qp(qp).reset();
            }
        }
        6 => serve(engine, qp, script.number()?),
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
