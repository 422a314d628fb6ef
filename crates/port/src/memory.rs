//! In-memory wire: two ports, each receiving what the other sends.
//!
//! Frames are built in the slot that the other end reads them from, so a frame
//! costs no copy and no allocation beyond what the Streamer does to write it. The
//! two ends may live on one thread or two.
//!
//! ```text
//!   slot()+commit()  -> slots of A to B ->  flush() publishes -> receive() at B
//!                                                                releases the burst
//! ```
//!
//! A full wire gives no slot; nothing is lost. [`MemoryOptions`] says whether the
//! ends vouch for checksums (the bytes never leave this memory) and whether
//! super-frames pass whole.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrayvec::ArrayVec;
use baton_engine::frame_io::{
    Arrival, BURST, Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta,
};
use baton_engine::region::wake::{announce_sleep, claim_wake};

use crate::slab_unsafe::{Consumer, Producer, slab};
use crate::sys::{copy_parts, io as sys_io};
use crate::wait::{WaitSet, Waitable};

/// Ethernet header with a VLAN tag, in bytes.
const LINK_HEADER: usize = 18;
/// Largest IP packet, in bytes.
const PACKET_MAX: usize = 65_535;

/// Configuration of an in-memory wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemoryOptions {
    /// Largest IP packet of one segment, in bytes.
    pub mtu: u16,
    /// Frames that fit on the wire in each direction; rounded up to a power of two.
    pub frames: usize,
    /// Checksums are left out by the sender and vouched for to the receiver.
    pub checksum_offload: bool,
    /// Super-frames of up to 64 KB pass whole, as between two network cards that
    /// cut and join them. Implies `checksum_offload`, as it does there.
    pub gso: bool,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryOptions {
    /// The defaults: an MTU of 1,500, room for 256 frames, no offloads.
    pub const fn new() -> Self {
        Self { mtu: 1500, frames: 256, checksum_offload: false, gso: false }
    }

    /// Sets the largest IP packet of one segment, in bytes.
    pub const fn mtu(self, mtu: u16) -> Self {
        Self { mtu, ..self }
    }

    /// Sets how many frames fit on the wire in each direction.
    pub const fn frames(self, frames: usize) -> Self {
        Self { frames, ..self }
    }

    /// Sets whether the sender leaves checksums out.
    pub const fn checksum_offload(self, checksum_offload: bool) -> Self {
        Self { checksum_offload, ..self }
    }

    /// Sets whether super-frames pass whole.
    pub const fn gso(self, gso: bool) -> Self {
        Self { gso, ..self }
    }
}

/// Metadata of a frame on the wire.
#[derive(Clone, Copy, Default)]
struct Note {
    len: u32,
    gso_size: u16,
    checksum_verified: bool,
}

/// How an end that sleeps is woken.
struct Wake {
    asleep: AtomicU32,
    doorbell: OwnedFd,
}

/// One end of an in-memory wire.
pub struct MemoryPort {
    tx: Producer<Note>,
    rx: Consumer<Note>,
    capabilities: Capabilities,
    /// Frames committed since the last flush.
    committed: usize,
    /// How the other end and this one are woken; with `None` neither sleeps.
    wake_peer: Option<Arc<Wake>>,
    wake_self: Option<Arc<Wake>>,
}

impl MemoryPort {
    /// Makes a wire whose ends are driven in turn, and returns the ends.
    pub fn pair(options: MemoryOptions) -> (Self, Self) {
        let (a_tx, b_rx) = direction(options);
        let (b_tx, a_rx) = direction(options);
        (Self::new(a_tx, a_rx, options), Self::new(b_tx, b_rx, options))
    }

    /// As [`MemoryPort::pair`], for ends on two threads that sleep when there is
    /// nothing to do: each wakes the other (see [`Waitable`]).
    ///
    /// # Errors
    /// As `eventfd(2)`'s.
    pub fn wakeable_pair(options: MemoryOptions) -> io::Result<(Self, Self)> {
        let wake = || -> io::Result<_> {
            Ok(Some(Arc::new(Wake { asleep: AtomicU32::new(0), doorbell: sys_io::eventfd()? })))
        };
        let (wake_a, wake_b) = (wake()?, wake()?);
        let (a, b) = Self::pair(options);
        let a = Self { wake_self: wake_a.clone(), wake_peer: wake_b.clone(), ..a };
        let b = Self { wake_self: wake_b, wake_peer: wake_a, ..b };
        Ok((a, b))
    }

    fn new(tx: Producer<Note>, rx: Consumer<Note>, options: MemoryOptions) -> Self {
        let mut capabilities = Capabilities::new(options.mtu);
        capabilities.tx_checksum = options.checksum_offload || options.gso;
        capabilities.tx_gso_max = if options.gso { tx.slot_len() as u32 } else { 0 };
        Self { tx, rx, capabilities, committed: 0, wake_peer: None, wake_self: None }
    }
}

/// The slots of one direction.
fn direction(options: MemoryOptions) -> (Producer<Note>, Consumer<Note>) {
    let packet = if options.gso { PACKET_MAX } else { options.mtu.into() };
    // An odd number of cache lines, so that headers do not all fall into one set
    // of the first-level cache.
    let lines = (packet + LINK_HEADER).div_ceil(64) | 1;
    slab(options.frames, lines * 64)
}

impl FrameIo for MemoryPort {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let mut total = 0;
        while total < limit {
            let wanted = BURST.min(limit - total);
            let count = self.rx.waiting(wanted).min(wanted);
            if count == 0 {
                break;
            }
            let frames: ArrayVec<RxFrame<'_>, BURST> = (0..count)
                .map(|i| {
                    let (bytes, note) = self.rx.slot(i);
                    let Note { len, gso_size, checksum_verified } = note;
                    let meta = RxMeta { checksum_verified, gso_size, arrived: Arrival::default() };
                    RxFrame { data: &bytes[..len as usize], meta }
                })
                .collect();
            sink.burst(&frames);
            drop(frames);
            self.rx.release(count);
            total += count;
        }
        Ok(total)
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        self.tx.slot(self.committed).map(|slot| &mut slot[..len])
    }

    fn commit(&mut self, len: usize, meta: TxMeta) {
        assert!(len <= self.tx.slot_len(), "a frame longer than its slot");
        let checksum_verified = self.capabilities.tx_checksum && meta.checksum_start != 0;
        self.tx.set_note(self.committed, Note { len: len as u32, gso_size: meta.gso_size, checksum_verified });
        self.committed += 1;
    }

    fn gather(&mut self, header: &[u8], payload: &[PayloadPart], meta: TxMeta) -> bool {
        let len = header.len() + payload.iter().map(|p| p.len).sum::<usize>();
        let Some(slot) = self.slot(len) else { return false };
        copy_parts(slot, header, payload);
        self.commit(len, meta);
        true
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if self.committed == 0 {
            return Ok(());
        }
        self.tx.publish(std::mem::take(&mut self.committed));
        if let Some(peer) = self.wake_peer.as_ref().filter(|peer| claim_wake(&peer.asleep)) {
            rustix::io::write(&peer.doorbell, &1u64.to_ne_bytes())
                .map_err(io::Error::from)
                .map_err(|source| PortError::new("memory: waking the other end", source))?;
        }
        Ok(())
    }
}

impl Waitable for MemoryPort {
    fn poll_fds(&self, set: &mut WaitSet) {
        if let Some(wake) = &self.wake_self {
            set.add(&wake.doorbell);
        }
    }

    fn prepare_wait(&mut self) -> bool {
        match &self.wake_self {
            Some(wake) => announce_sleep(&wake.asleep, || self.rx.waiting(1) != 0),
            None => self.rx.waiting(1) == 0,
        }
    }

    fn finish_wait(&mut self) {
        if let Some(wake) = &self.wake_self {
            wake.asleep.store(0, Ordering::Relaxed);
            // Empties the doorbell; it is no error if it was not rung.
            let _ = rustix::io::read(&wake.doorbell, &mut [0; 8]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[derive(Default)]
    struct Got {
        frames: Vec<(Vec<u8>, RxMeta)>,
        bursts: Vec<usize>,
    }

    impl FrameSink for Got {
        fn burst(&mut self, frames: &[RxFrame<'_>]) {
            self.bursts.push(frames.len());
            self.frames.extend(frames.iter().map(|f| (f.data.to_vec(), f.meta)));
        }
    }

    fn send(port: &mut MemoryPort, frame: &[u8], meta: TxMeta) -> bool {
        let Some(slot) = port.slot(frame.len()) else { return false };
        slot.copy_from_slice(frame);
        port.commit(frame.len(), meta);
        true
    }

    #[test]
    fn frames_arrive_in_order_once_flushed() {
        let (mut a, mut b) = MemoryPort::pair(MemoryOptions::default());
        let mut got = Got::default();
        for round in 0..5u8 {
            for i in 0..100u8 {
                assert!(send(&mut a, &[round, i, 3], TxMeta::default()));
            }
            assert_eq!(b.receive(1000, &mut got).unwrap(), 0, "not flushed");
            a.flush().unwrap();
            assert_eq!(b.receive(30, &mut got).unwrap(), 30);
            assert_eq!(b.receive(1000, &mut got).unwrap(), 70);
        }
        let expected: Vec<_> = (0..5u8).flat_map(|r| (0..100u8).map(move |i| vec![r, i, 3])).collect();
        assert_eq!(got.frames.iter().map(|f| f.0.clone()).collect::<Vec<_>>(), expected);
        assert!(got.bursts.iter().all(|&n| n <= BURST));
        assert!(got.frames.iter().all(|f| f.1 == RxMeta::default()), "nothing vouched for");
    }

    #[test]
    fn a_full_wire_gives_no_slot_and_loses_nothing() {
        let (mut a, mut b) = MemoryPort::pair(MemoryOptions { frames: 8, ..MemoryOptions::default() });
        let sent = (0..20u8).take_while(|&i| send(&mut a, &[i], TxMeta::default())).count();
        assert_eq!(sent, 8);
        a.flush().unwrap();
        assert!(a.slot(1).is_none());
        let mut got = Got::default();
        assert_eq!(b.receive(3, &mut got).unwrap(), 3);
        assert_eq!((0..20u8).take_while(|&i| send(&mut a, &[8 + i], TxMeta::default())).count(), 3);
        a.flush().unwrap();
        assert_eq!(b.receive(100, &mut got).unwrap(), 8);
        assert_eq!(got.frames.iter().map(|f| f.0[0]).collect::<Vec<_>>(), (0..11).collect::<Vec<_>>());
    }

    #[test]
    fn a_slot_not_committed_is_forgotten() {
        let (mut a, mut b) = MemoryPort::pair(MemoryOptions::default());
        a.slot(9).unwrap().fill(1);
        assert!(send(&mut a, &[2], TxMeta::default()));
        a.flush().unwrap();
        let mut got = Got::default();
        b.receive(9, &mut got).unwrap();
        assert_eq!(got.frames, [(vec![2], RxMeta::default())]);
    }

    #[test]
    fn super_frames_pass_whole_and_are_vouched_for() {
        let (mut a, mut b) = MemoryPort::pair(MemoryOptions { gso: true, frames: 4, ..MemoryOptions::default() });
        assert!(a.capabilities().tx_checksum);
        let frame = vec![7; 14 + 65_535];
        assert!(a.capabilities().tx_gso_max as usize >= frame.len());
        let (header, payload) = frame.split_at(66);
        let part = |bytes: &[u8]| PayloadPart { ptr: bytes.as_ptr(), len: bytes.len() };
        let meta = TxMeta { checksum_start: 34, gso_size: 1448, header_len: 66, ..TxMeta::default() };
        assert!(a.gather(header, &[part(&payload[..1000]), part(&payload[1000..])], meta));
        a.flush().unwrap();
        let mut got = Got::default();
        assert_eq!(b.receive(9, &mut got).unwrap(), 1);
        assert_eq!(got.frames[0].1, RxMeta { checksum_verified: true, gso_size: 1448, arrived: Arrival::default() });
        assert!(got.frames[0].0 == frame);
    }

    #[test]
    fn two_threads_that_sleep_pass_every_frame() {
        const FRAMES: u32 = if cfg!(miri) { 50 } else { 20_000 };
        let options = MemoryOptions { frames: 16, ..MemoryOptions::default() };
        let (mut a, mut b) = MemoryPort::wakeable_pair(options).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for i in 0..FRAMES {
                    while !send(&mut a, &i.to_ne_bytes(), TxMeta::default()) {
                        a.flush().unwrap();
                        std::thread::yield_now();
                    }
                    if i % 7 == 0 {
                        a.flush().unwrap();
                    }
                }
                a.flush().unwrap();
            });
            let mut set = WaitSet::new();
            b.poll_fds(&mut set);
            let mut got = Got::default();
            while got.frames.len() < FRAMES as usize {
                if b.receive(5, &mut got).unwrap() == 0 && b.prepare_wait() {
                    let ready = set.wait(Some(Duration::from_secs(20))).unwrap();
                    assert!(ready > 0, "slept through frames after {}", got.frames.len());
                    b.finish_wait();
                }
            }
            let numbers = got.frames.iter().map(|f| u32::from_ne_bytes(f.0[..].try_into().unwrap()));
            assert!(numbers.eq(0..FRAMES));
        });
    }
}
