//! A model network around one `Sender`: a bottleneck with a queue, loss,
//! reordering and duplication in both directions, and a receiver with delayed
//! ACKs, SACK, D-SACK and timestamps. Virtual time; everything follows from a seed.

use baton_tcp::config::Config;
use baton_tcp::snd::{AckInput, Expired, Sender};
use baton_tcp::time::{Duration, Instant};
use baton_wire::seq::{Seq, Window};
use baton_wire::tcp::SackBlocks;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// xorshift64*.
pub struct Rng(pub u64);

impl Rng {
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }

    pub fn per_mille(&mut self, p: u64) -> bool {
        self.below(1000) < p
    }
}

/// Delay and faults of the path; probabilities in 1/1000.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub delay: Duration,
    /// Bottleneck, bytes a second.
    pub rate: u64,
    pub queue_bytes: u64,
    pub loss: u64,
    pub ack_loss: u64,
    pub reorder: u64,
    pub duplicate: u64,
}

pub const CLEAN: Path = Path {
    delay: Duration::from_millis(10),
    rate: 12_500_000,
    queue_bytes: 1 << 30,
    loss: 0,
    ack_loss: 0,
    reorder: 0,
    duplicate: 0,
};

#[derive(Clone, Copy, Debug)]
enum Event {
    Data { seq: Seq, end: Seq, tsval: u32 },
    Ack { ack: Seq, sack: SackBlocks, ecr: u32 },
    DelayedAck,
}

/// A byte stream from a `Sender` to a receiver across a [`Path`].
pub struct World {
    pub now: Instant,
    pub sender: Sender,
    pub rng: Rng,
    path: Path,
    sack: bool,
    timestamps: bool,
    events: BTreeMap<Reverse<(u64, u64)>, Event>,
    event_id: u64,
    link_free: u64,
    // State of the sending Streamer.
    first: Seq,
    stream_end: Seq,
    streamer_nxt: Seq,
    // State of the receiver at the peer.
    rcv_nxt: Seq,
    out_of_order: Vec<(Seq, Seq)>,
    ts_recent: u32,
    last_ack_sent: Seq,
    unacked_segments: u32,
    delack_at: Option<u64>,
    // Counters.
    pub rtos: u32,
    pub probes: u32,
    pub undone: u32,
    pub recoveries: u32,
    pub segments_sent: u64,
    pub segments_resent: u64,
    /// Ordinals of first transmissions to drop, whatever the chances.
    pub drop_segments: BTreeSet<u64>,
    /// Holds data back: (from, to) of time, everything sent then arrives at `to`.
    pub freeze: Option<(u64, u64)>,
    pub max_cwnd: u32,
    pub cwnd_at_rto: Option<u32>,
}

pub const RWND: u32 = 8 << 20;

impl World {
    pub fn new(config: &Config, path: Path, stream: u32, sack: bool, timestamps: bool, seed: u64) -> World {
        let iss = Seq(0xffff_f000);
        let now = Instant(1_000_000_000);
        let mut sender = Sender::new(config, iss, 1460, now);
        sender.set_sack(sack);
        sender.set_timestamps(timestamps);
        sender.on_sent(now, iss, iss + 1, false, 0);
        let now = now + path.delay + path.delay;
        sender.on_ack(now, &ack_of(iss + 1, now));
        assert_eq!(sender.snd_una(), iss + 1);
        World {
            now,
            sender,
            rng: Rng(seed | 1),
            path,
            sack,
            timestamps,
            events: BTreeMap::new(),
            event_id: 0,
            link_free: 0,
            first: iss + 1,
            stream_end: iss + 1 + stream,
            streamer_nxt: iss + 1,
            rcv_nxt: iss + 1,
            out_of_order: Vec::new(),
            ts_recent: 0,
            last_ack_sent: iss + 1,
            unacked_segments: 0,
            delack_at: None,
            rtos: 0,
            probes: 0,
            undone: 0,
            recoveries: 0,
            segments_sent: 0,
            segments_resent: 0,
            drop_segments: BTreeSet::new(),
            freeze: None,
            max_cwnd: 0,
            cwnd_at_rto: None,
        }
    }

    fn ts(&self) -> u32 {
        self.now.timestamp_ms().wrapping_add(77)
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.event_id += 1;
        self.events.insert(Reverse((at, self.event_id)), event);
    }

    fn transmit(&mut self, seq: Seq, end: Seq) {
        let len = end.since(seq) as u64 + 40;
        let start = self.link_free.max(self.now.0);
        if (start - self.now.0) * self.path.rate / 1_000_000_000 > self.path.queue_bytes {
            return;
        }
        self.link_free = start + len * 1_000_000_000 / self.path.rate;
        if self.rng.per_mille(self.path.loss) {
            return;
        }
        let mut at = self.link_free + self.path.delay.0;
        if self.rng.per_mille(self.path.reorder) {
            at += self.rng.below(self.path.delay.0);
        }
        if let Some((from, to)) = self.freeze
            && at >= from
            && at < to
        {
            at = to;
        }
        let tsval = self.ts();
        self.schedule(at, Event::Data { seq, end, tsval });
        if self.rng.per_mille(self.path.duplicate) {
            let late = self.rng.below(self.path.delay.0);
            self.schedule(at + late, Event::Data { seq, end, tsval });
        }
    }

    fn cut(&mut self, seq: Seq, end: Seq, first_time: bool) {
        let mut at = seq;
        while at != end {
            let next = (at + u32::from(self.sender.mss())).earliest(end);
            let ordinal = self.segments_sent;
            if first_time {
                self.segments_sent += 1;
            } else {
                self.segments_resent += 1;
            }
            if !(first_time && self.drop_segments.contains(&ordinal)) {
                self.transmit(at, next);
            }
            at = next;
        }
    }

    /// Sends what may be sent, as the Streamer would.
    fn pump(&mut self) {
        for _ in 0..16 {
            let Some((seq, end)) = self.sender.next_retransmit(self.now) else { break };
            assert!(seq.after_eq(self.sender.snd_una()) && end.before_eq(self.sender.snd_nxt()) && seq.before(end));
            self.cut(seq, end, false);
            let queued = self.stream_end.since(self.streamer_nxt) as u32;
            self.sender.on_sent(self.now, seq, end, true, queued);
        }
        let limit = self.sender.limit(Window(RWND)).earliest(self.stream_end);
        let mss = u32::from(self.sender.mss());
        let mut room = limit.since(self.streamer_nxt).max(0) as u32;
        if limit != self.stream_end {
            room -= room % mss;
        }
        while room > 0 {
            let burst = room.min(16 * mss);
            let (seq, end) = (self.streamer_nxt, self.streamer_nxt + burst);
            self.streamer_nxt = end;
            self.cut(seq, end, true);
            let queued = self.stream_end.since(end) as u32;
            self.sender.on_sent(self.now, seq, end, false, queued);
            room -= burst;
        }
        self.check();
    }

    /// Invariants that hold at all times.
    fn check(&mut self) {
        let s = &self.sender;
        assert!(s.pipe() <= s.in_flight());
        assert!(s.in_flight() == 0 || s.deadline().is_some(), "in flight without a deadline");
        assert!(s.cwnd() >= u32::from(s.mss()) || s.phase() == baton_tcp::snd::Phase::Recovery);
        self.max_cwnd = self.max_cwnd.max(s.cwnd());
    }

    fn receive(&mut self, seq: Seq, end: Seq, tsval: u32) {
        if seq.before_eq(self.last_ack_sent) && Seq(self.ts_recent).before(Seq(tsval)) {
            self.ts_recent = tsval;
        }
        let held = self.out_of_order.iter().find(|&&(s, e)| seq.after_eq(s) && end.before_eq(e)).copied();
        let mut dsack = None;
        if end.before_eq(self.rcv_nxt) || held.is_some() {
            dsack = Some((seq, end));
        } else {
            self.insert(seq.latest(self.rcv_nxt), end);
        }
        let had_gap = self.out_of_order.len() > 1;
        self.advance();
        let in_order = dsack.is_none() && !had_gap && self.out_of_order.is_empty();
        self.unacked_segments += 1;
        if !in_order || self.unacked_segments >= 2 {
            self.send_ack(dsack, held, Some((seq, end)));
        } else if self.delack_at.is_none() {
            let at = self.now.0 + 40_000_000;
            self.delack_at = Some(at);
            self.schedule(at, Event::DelayedAck);
        }
    }

    fn insert(&mut self, mut start: Seq, mut end: Seq) {
        self.out_of_order.retain(|&(s, e)| {
            let apart = e.before(start) || s.after(end);
            if !apart {
                start = start.earliest(s);
                end = end.latest(e);
            }
            apart
        });
        self.out_of_order.insert(0, (start, end));
    }

    fn advance(&mut self) {
        while let Some(i) = self.out_of_order.iter().position(|&(s, _)| s.before_eq(self.rcv_nxt)) {
            let (_, e) = self.out_of_order.remove(i);
            self.rcv_nxt = self.rcv_nxt.latest(e);
        }
    }

    fn send_ack(&mut self, dsack: Option<(Seq, Seq)>, held: Option<(Seq, Seq)>, newest: Option<(Seq, Seq)>) {
        self.unacked_segments = 0;
        self.delack_at = None;
        self.last_ack_sent = self.rcv_nxt;
        let mut sack = SackBlocks::new();
        let most = if self.timestamps { 3 } else { 4 };
        if self.sack {
            if let Some((s, e)) = dsack {
                sack.push(s, e);
            }
            if let Some((s, e)) = held {
                sack.push(s, e);
            }
            let newest = newest.map_or(Seq(0), |n| n.0);
            let mut blocks = self.out_of_order.clone();
            blocks.sort_by_key(|&(s, e)| !(newest.within(s, e)));
            for (s, e) in blocks {
                if sack.len() < most && held != Some((s, e)) {
                    sack.push(s, e);
                }
            }
        }
        if !self.rng.per_mille(self.path.ack_loss) {
            let at = self.now.0 + self.path.delay.0;
            self.schedule(at, Event::Ack { ack: self.rcv_nxt, sack, ecr: self.ts_recent });
        }
    }

    /// One step of time. False when all is acknowledged.
    pub fn step(&mut self) -> bool {
        self.pump();
        if self.sender.snd_una() == self.stream_end {
            return false;
        }
        let event_at = self.events.last_key_value().map(|(k, _)| k.0.0);
        let deadline = self.sender.deadline().map(|d| d.0);
        match (event_at, deadline) {
            (Some(at), d) if d.is_none_or(|d| at <= d) => {
                self.now = Instant(at.max(self.now.0));
                let Some((_, event)) = self.events.pop_last() else { return true };
                self.dispatch(event);
            }
            (_, Some(at)) => {
                self.now = Instant(at.max(self.now.0));
                match self.sender.on_deadline(self.now) {
                    Expired::Rto { .. } => {
                        self.rtos += 1;
                        self.cwnd_at_rto = Some(self.sender.cwnd());
                    }
                    Expired::Tlp => self.probes += 1,
                    Expired::Reorder | Expired::Idle => {}
                    Expired::None => panic!("a deadline passed and nothing was due"),
                }
            }
            (None, None) => panic!("stuck: nothing is to come"),
            (Some(_), None) => unreachable!(),
        }
        self.check();
        true
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Data { seq, end, tsval } => self.receive(seq, end, tsval),
            Event::DelayedAck => {
                if self.delack_at.is_some_and(|at| at <= self.now.0) {
                    self.send_ack(None, None, None);
                }
            }
            Event::Ack { ack, sack, ecr } => {
                let input = AckInput {
                    sack: &sack,
                    ts_ecr: self.timestamps.then_some(ecr),
                    ts_now: self.ts(),
                    ..ack_of(ack, self.now)
                };
                let out = self.sender.on_ack(self.now, &input);
                self.undone += u32::from(out.undone);
                self.recoveries += u32::from(out.recovery_entered);
            }
        }
    }

    /// Runs until the stream is acknowledged; panics after `limit` of virtual time.
    pub fn run(&mut self, limit: Duration) -> Duration {
        let start = self.now;
        while self.step() {
            assert!(
                self.now.since(start) < limit,
                "not done after {:?}: {} of {} acknowledged, {:?}",
                limit,
                self.sender.snd_una().since(self.first),
                self.stream_end.since(self.first),
                self.sender.info()
            );
        }
        assert_eq!(self.rcv_nxt, self.stream_end);
        self.now.since(start)
    }
}

/// A plain acknowledgment.
pub fn ack_of(ack: Seq, now: Instant) -> AckInput<'static> {
    static NO_BLOCKS: SackBlocks = SackBlocks::new();
    AckInput {
        ack,
        sack: &NO_BLOCKS,
        ts_ecr: None,
        ts_now: now.timestamp_ms().wrapping_add(77),
        ece: false,
        segments: 1,
        has_data: false,
        wnd_changed: false,
        snd_wnd: Window(RWND),
    }
}
