//! A port that loses, repeats, swaps and damages frames, both ways: a test aid.
//!
//! The kernel's own `netem` is not on every machine, and does not see frames that stay within
//! this process. This port handles both, and a seed repeats its faults.
//!
//! ```text
//!   frame --> lost? --> damaged? --> repeated? --> held back? --> on
//!                                                     |
//!                        behind one to eight others --+--> on
//! ```
//!
//! A frame held back goes on at the latest when the port has nothing more to
//! receive, so no quiet connection waits for it. A super-frame counts as one frame.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use baton_engine::frame_io::{Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta};

use crate::sys::copy_parts;
use crate::wait::{WaitSet, Waitable};

/// The most frames that overtake one that is held back.
const OVERTAKEN_MAX: u32 = 8;
/// The most frames held back at once in one direction.
const HELD_MAX: usize = 64;

/// Shares of frames to which something happens, from 0 to 1, in each direction.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// Lost.
    pub loss: f64,
    /// Held back, so that others overtake it.
    pub reorder: f64,
    /// Repeated.
    pub dup: f64,
    /// One bit changed. A frame whose checksum the port is to fill in is left
    /// alone: the checksum would vouch for the damage.
    pub corrupt: f64,
    /// Seed of the choice of frames.
    pub seed: u64,
}

/// Why a description of faults is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no fault: write loss=P, reorder=P, dup=P, corrupt=P (P from 0 to 1) or seed=N, with commas between")]
pub struct FaultsError(String);

impl FromStr for Faults {
    type Err = FaultsError;

    /// Reads `loss=0.01,reorder=0.01,dup=0.01,corrupt=0.001,seed=7`, each by choice.
    fn from_str(text: &str) -> Result<Self, FaultsError> {
        let mut faults = Self::default();
        for word in text.split(',') {
            let bad = || FaultsError(word.to_owned());
            let (name, value) = word.split_once('=').ok_or_else(bad)?;
            let place = match name {
                "loss" => &mut faults.loss,
                "reorder" => &mut faults.reorder,
                "dup" => &mut faults.dup,
                "corrupt" => &mut faults.corrupt,
                "seed" => {
                    faults.seed = value.parse().map_err(|_| bad())?;
                    continue;
                }
                _ => return Err(bad()),
            };
            *place = value.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(bad)?;
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loss, reorder, dup, corrupt, seed } = self;
        write!(f, "loss={loss},reorder={reorder},dup={dup},corrupt={corrupt},seed={seed}")
    }
}

/// Faults done to the frames of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounters {
    /// Frames that came to the wrapper.
    pub frames: u64,
    /// Of those, lost.
    pub lost: u64,
    /// Held back.
    pub reordered: u64,
    /// Repeated.
    pub repeated: u64,
    /// Damaged.
    pub damaged: u64,
}

/// The faults of one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Fate {
    lost: bool,
    damaged: bool,
    repeated: bool,
    held: bool,
}

/// A frame held back, with its metadata for the port.
struct Held<M> {
    data: Vec<u8>,
    meta: M,
    /// Frames that have still to overtake it.
    left: u32,
}

/// One direction: its random numbers, its counters, the frames held back.
struct Way<M> {
    faults: Faults,
    dice: fastrand::Rng,
    counters: FaultCounters,
    held: VecDeque<Held<M>>,
}

impl<M> Way<M> {
    fn new(faults: Faults, salt: u64) -> Self {
        let dice = fastrand::Rng::with_seed(faults.seed.wrapping_mul(2).wrapping_add(salt));
        Self { faults, dice, counters: FaultCounters::default(), held: VecDeque::new() }
    }

    fn fate(&mut self, may_damage: bool) -> Fate {
        // All random numbers are drawn for each frame, so that one share does not change which
        // frames the others hit.
        let [loss, reorder, dup, corrupt] = std::array::from_fn(|_| self.dice.f64());
        self.counters.frames += 1;
        let lost = loss < self.faults.loss;
        let fate = Fate {
            lost,
            damaged: !lost && may_damage && corrupt < self.faults.corrupt,
            repeated: !lost && dup < self.faults.dup,
            held: !lost && reorder < self.faults.reorder && self.held.len() < HELD_MAX,
        };
        self.counters.lost += u64::from(fate.lost);
        self.counters.damaged += u64::from(fate.damaged);
        self.counters.repeated += u64::from(fate.repeated);
        self.counters.reordered += u64::from(fate.held);
        fate
    }

    fn hold(&mut self, data: Vec<u8>, meta: M) {
        let left = self.dice.u32(1..=OVERTAKEN_MAX);
        self.held.push_back(Held { data, meta, left });
    }

    /// Changes one bit behind the link addresses.
    fn damage(&mut self, data: &mut [u8]) {
        if data.len() > 12 {
            let at = self.dice.usize(12..data.len());
            data[at] ^= 1 << self.dice.u32(0..8);
        }
    }

    /// Tells those held back that a frame passed; returns the ones whose turn it is.
    fn overtake(&mut self) -> Vec<Held<M>> {
        let mut due = Vec::new();
        for mut held in std::mem::take(&mut self.held) {
            held.left -= 1;
            if held.left == 0 { due.push(held) } else { self.held.push_back(held) }
        }
        due
    }
}

/// A port with faults; without any it behaves as the port itself.
pub struct Faulty<P> {
    port: P,
    ways: Option<Box<Ways>>,
    /// The slot while there are faults: outgoing frames may have to be kept.
    slot: Vec<u8>,
}

struct Ways {
    rx: Way<RxMeta>,
    tx: Way<TxMeta>,
}

impl<P: FrameIo> Faulty<P> {
    /// Wraps `port`.
    pub fn new(port: P, faults: Option<Faults>) -> Self {
        let mut faulty = Self { port, ways: None, slot: Vec::new() };
        faulty.set_faults(faults);
        faulty
    }

    /// Sets other faults from now on, or none. Frames that are held back are lost.
    pub fn set_faults(&mut self, faults: Option<Faults>) {
        self.ways = faults.map(|faults| Box::new(Ways { rx: Way::new(faults, 0), tx: Way::new(faults, 1) }));
    }

    /// The port inside.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Counts of faults so far, of frames received and sent, if there can be any.
    pub fn counters(&self) -> Option<(FaultCounters, FaultCounters)> {
        self.ways.as_ref().map(|ways| (ways.rx.counters, ways.tx.counters))
    }

    /// Sends what was held back, if the port has space; otherwise it is lost.
    fn release_tx(&mut self) {
        if let Some(ways) = &mut self.ways {
            ways.tx.held.drain(..).for_each(|held| send(&mut self.port, &held.data, held.meta));
        }
    }
}

/// Sends a copy of a frame; a full port loses it.
fn send<P: FrameIo>(port: &mut P, data: &[u8], meta: TxMeta) {
    if let Some(slot) = port.slot(data.len()) {
        slot.copy_from_slice(data);
        port.commit(data.len(), meta);
    }
}

/// Treats bursts on their way to the sink behind.
struct Treat<'a, S> {
    way: &'a mut Way<RxMeta>,
    sink: &'a mut S,
}

impl<S: FrameSink> Treat<'_, S> {
    /// Hands one frame on, then those that waited for it to pass.
    fn pass(&mut self, data: &[u8], meta: RxMeta) {
        self.sink.burst(&[RxFrame { data, meta }]);
        for held in self.way.overtake() {
            self.sink.burst(&[RxFrame { data: &held.data, meta: held.meta }]);
        }
    }
}

impl<S: FrameSink> FrameSink for Treat<'_, S> {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        // Runs of frames to which nothing happens stay bursts.
        let mut untouched = 0;
        for (at, frame) in frames.iter().enumerate() {
            let fate = self.way.fate(true);
            if fate == Fate::default() && self.way.held.is_empty() {
                continue;
            }
            if at > untouched {
                self.sink.burst(&frames[untouched..at]);
            }
            untouched = at + 1;
            if fate.lost {
                continue;
            }
            let (mut data, mut meta) = (frame.data.to_vec(), frame.meta);
            if fate.damaged {
                self.way.damage(&mut data);
                // The port no longer vouches for it.
                meta.checksum_verified = false;
            }
            if fate.repeated {
                self.pass(&data, meta);
            }
            if fate.held {
                self.way.hold(data, meta);
            } else {
                self.pass(&data, meta);
            }
        }
        if frames.len() > untouched {
            self.sink.burst(&frames[untouched..]);
        }
    }
}

impl<P: FrameIo> FrameIo for Faulty<P> {
    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let Some(ways) = &mut self.ways else { return self.port.receive(limit, sink) };
        let received = self.port.receive(limit, &mut Treat { way: &mut ways.rx, sink })?;
        if received > 0 {
            return Ok(received);
        }
        let late = std::mem::take(&mut ways.rx.held);
        for held in &late {
            sink.burst(&[RxFrame { data: &held.data, meta: held.meta }]);
        }
        if !ways.tx.held.is_empty() {
            self.release_tx();
            self.port.flush()?;
        }
        Ok(late.len())
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        let room = self.port.slot(len)?;
        if self.ways.is_none() {
            return Some(room);
        }
        self.slot.resize(self.slot.len().max(len), 0);
        Some(&mut self.slot[..len])
    }

    fn commit(&mut self, len: usize, meta: TxMeta) {
        let Some(ways) = &mut self.ways else { return self.port.commit(len, meta) };
        let fate = ways.tx.fate(meta.checksum_start == 0);
        if fate.lost {
            return;
        }
        let frame = &mut self.slot[..len];
        if fate.damaged {
            ways.tx.damage(frame);
        }
        if fate.repeated {
            send(&mut self.port, frame, meta);
        }
        if fate.held {
            ways.tx.hold(frame.to_vec(), meta);
            return;
        }
        send(&mut self.port, frame, meta);
        ways.tx.overtake().iter().for_each(|held| send(&mut self.port, &held.data, held.meta));
    }

    fn gather(&mut self, header: &[u8], payload: &[PayloadPart], meta: TxMeta) -> bool {
        let Some(ways) = &mut self.ways else { return self.port.gather(header, payload, meta) };
        let fate = ways.tx.fate(false);
        if fate.lost {
            return true;
        }
        if fate.repeated && !self.port.gather(header, payload, meta) {
            return false;
        }
        if fate.held {
            let mut data = vec![0; header.len() + payload.iter().map(|part| part.len).sum::<usize>()];
            copy_parts(&mut data, header, payload);
            ways.tx.hold(data, meta);
            return true;
        }
        let sent = self.port.gather(header, payload, meta);
        if sent {
            ways.tx.overtake().iter().for_each(|held| send(&mut self.port, &held.data, held.meta));
        }
        sent
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.port.flush()
    }
}

impl<P: Waitable + FrameIo> Waitable for Faulty<P> {
    fn poll_fds(&self, set: &mut WaitSet) {
        self.port.poll_fds(set);
    }

    fn prepare_wait(&mut self) -> bool {
        // Frames held back are received, or sent, before anybody sleeps.
        let holds = self.ways.as_ref().is_some_and(|ways| !ways.rx.held.is_empty() || !ways.tx.held.is_empty());
        !holds && self.port.prepare_wait()
    }

    fn finish_wait(&mut self) {
        self.port.finish_wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryOptions, MemoryPort};

    /// Keeps the frames' first bytes, a number each.
    #[derive(Default)]
    struct Seen(Vec<u32>);

    impl FrameSink for Seen {
        fn burst(&mut self, frames: &[RxFrame<'_>]) {
            self.0.extend(frames.iter().map(|f| u32::from_be_bytes(f.data[..4].try_into().unwrap())));
        }
    }

    /// Sends numbered frames through `tx` and returns which of them `rx` has, in order.
    fn carry<A: FrameIo, B: FrameIo>(tx: &mut A, rx: &mut B, frames: u32) -> Vec<u32> {
        let mut seen = Seen::default();
        for n in 0..frames {
            let slot = tx.slot(64).expect("the other end keeps up");
            slot.fill(0);
            slot[..4].copy_from_slice(&n.to_be_bytes());
            tx.commit(64, TxMeta::default());
            tx.flush().unwrap();
            // In bursts of some.
            if n % 5 == 0 {
                rx.receive(64, &mut seen).unwrap();
            }
        }
        // Frames that were held back follow when nothing else does.
        while tx.receive(64, &mut Seen::default()).unwrap() > 0 {}
        while rx.receive(64, &mut seen).unwrap() > 0 {}
        seen.0
    }

    fn both_ways(faults: &str, frames: u32) -> [(Vec<u32>, FaultCounters); 2] {
        let faults: Faults = faults.parse().unwrap();
        let (a, b) = MemoryPort::pair(MemoryOptions::default());
        let (mut a, mut b) = (Faulty::new(a, Some(faults)), Faulty::new(b, None));
        let out = carry(&mut a, &mut b, frames);
        let back = carry(&mut b, &mut a, frames);
        let (rx, tx) = a.counters().unwrap();
        [(out, tx), (back, rx)]
    }

    #[test]
    fn without_faults_every_frame_passes_in_order() {
        for (seen, counters) in both_ways("loss=0", 500) {
            assert_eq!(seen, (0..500).collect::<Vec<_>>());
            assert_eq!(counters, FaultCounters { frames: 500, ..FaultCounters::default() });
        }
    }

    #[test]
    fn each_fault_does_what_it_says_and_is_counted() {
        for (seen, counters) in both_ways("loss=0.1,seed=1", 1000) {
            assert!((50..200).contains(&counters.lost), "{counters:?}");
            assert_eq!(seen.len() as u64, 1000 - counters.lost);
            assert!(seen.is_sorted());
        }
        for (mut seen, counters) in both_ways("dup=0.1,seed=2", 1000) {
            assert!((50..200).contains(&counters.repeated), "{counters:?}");
            assert_eq!(seen.len() as u64, 1000 + counters.repeated);
            seen.dedup();
            assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        }
        for (mut seen, counters) in both_ways("reorder=0.1,seed=3", 1000) {
            assert!((50..200).contains(&counters.reordered), "{counters:?}");
            assert!(!seen.is_sorted());
            assert!(seen.iter().enumerate().all(|(at, n)| at.abs_diff(*n as usize) <= 64), "none is held for long");
            seen.sort_unstable();
            assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_seed_repeats_what_it_did() {
        let run = |seed| both_ways(&format!("loss=0.05,reorder=0.05,dup=0.05,corrupt=0.05,seed={seed}"), 300);
        assert_eq!(run(9), run(9));
        assert_ne!(run(9)[0].1, run(10)[0].1);
    }

    #[test]
    fn damage_is_one_bit_and_never_under_a_checksum_to_be_filled_in() {
        struct Whole(Vec<Vec<u8>>);
        impl FrameSink for Whole {
            fn burst(&mut self, frames: &[RxFrame<'_>]) {
                self.0.extend(frames.iter().map(|f| f.data.to_vec()));
            }
        }
        let (a, mut b) = MemoryPort::pair(MemoryOptions::default());
        let mut a = Faulty::new(a, Some("corrupt=1".parse().unwrap()));
        for meta in [TxMeta::default(), TxMeta { checksum_start: 34, ..TxMeta::default() }] {
            a.slot(64).unwrap().fill(0);
            a.commit(64, meta);
            a.flush().unwrap();
        }
        let mut seen = Whole(Vec::new());
        b.receive(64, &mut seen).unwrap();
        let changed: Vec<u32> = seen.0.iter().map(|f| f.iter().map(|byte| byte.count_ones()).sum()).collect();
        assert_eq!(changed, [1, 0]);
    }

    #[test]
    fn faults_as_written() {
        let text = "loss=0.01,reorder=0.02,dup=0.03,corrupt=0.04,seed=7";
        assert_eq!(text.parse::<Faults>().unwrap().to_string(), text);
        for bad in ["", "loss", "loss=2", "loss=-0.1", "loss=x", "seed=-1", "delay=1"] {
            assert!(bad.parse::<Faults>().unwrap_err().to_string().contains("is no fault"), "{bad}");
        }
    }
}
