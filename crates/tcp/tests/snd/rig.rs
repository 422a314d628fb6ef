//! A sender under the hand of a test: segments of 1000 bytes numbered from 0, time
//! in milliseconds.

use crate::net::ack_of;
use baton_tcp::config::{Config, Congestion};
use baton_tcp::snd::{AckInput, AckOutcome, Expired, Sender};
use baton_tcp::time::{Duration, Instant};
use baton_wire::seq::{Seq, Window};
use baton_wire::tcp::SackBlocks;

pub const MSS: u32 = 1000;
const FIRST: Seq = Seq(0xffff_e000);
const NO_TIME: u64 = 1_000;

pub struct Rig {
    pub s: Sender,
    pub ms: u64,
    /// Echo this TSecr, in ms of the rig's clock.
    pub echo: Option<u64>,
    pub queued: u32,
}

pub fn reno() -> Config {
    Config::default().with(|config| config.congestion = Congestion::Reno)
}

pub fn seg(n: u32) -> Seq {
    FIRST + n * MSS
}

impl Rig {
    /// Established at 0 ms with an RTT of `rtt_ms`.
    pub fn new(config: &Config, sack: bool, rtt_ms: u64) -> Rig {
        let mut rig = Rig {
            s: Sender::new(config, FIRST - 1, MSS as u16, Instant::default()),
            ms: NO_TIME - rtt_ms,
            echo: None,
            queued: 1 << 20,
        };
        rig.s.set_sack(sack);
        rig.s.on_sent(rig.now(), FIRST - 1, FIRST, false, 0);
        rig.ms += rtt_ms;
        rig.ack(0);
        rig
    }

    pub fn now(&self) -> Instant {
        Instant(self.ms * 1_000_000)
    }

    /// Goes to `ms` after the handshake; no deadline is served.
    pub fn at(&mut self, ms: u64) -> &mut Rig {
        assert!(ms + NO_TIME >= self.ms);
        self.ms = ms + NO_TIME;
        self
    }

    /// Sends segments `from..to`, one report each.
    pub fn send(&mut self, from: u32, to: u32) -> &mut Rig {
        for n in from..to {
            self.s.on_sent(self.now(), seg(n), seg(n + 1), false, self.queued);
        }
        self
    }

    fn input<'a>(&self, ack: u32, sack: &'a SackBlocks) -> AckInput<'a> {
        AckInput { sack, ts_ecr: self.echo.map(|ms| (ms + NO_TIME) as u32 + 77), ..ack_of(seg(ack), self.now()) }
    }

    pub fn ack(&mut self, ack: u32) -> AckOutcome {
        let none = SackBlocks::new();
        self.s.on_ack(self.now(), &self.input(ack, &none))
    }

    /// An acknowledgment with SACK blocks of whole segments.
    pub fn sack(&mut self, ack: u32, blocks: &[(u32, u32)]) -> AckOutcome {
        let mut sack = SackBlocks::new();
        for &(from, to) in blocks {
            sack.push(seg(from), seg(to));
        }
        self.s.on_ack(self.now(), &self.input(ack, &sack))
    }

    pub fn ece(&mut self, ack: u32) -> AckOutcome {
        let none = SackBlocks::new();
        let input = AckInput { ece: true, ..self.input(ack, &none) };
        self.s.on_ack(self.now(), &input)
    }

    /// `acks` acknowledgments up to `ack` that came as one.
    pub fn run(&mut self, ack: u32, acks: u16) -> AckOutcome {
        let none = SackBlocks::new();
        let input = AckInput { segments: acks, ..self.input(ack, &none) };
        self.s.on_ack(self.now(), &input)
    }

    /// Repeats what the sender wants repeated, as segment numbers.
    pub fn repeats(&mut self) -> Vec<(u32, u32)> {
        let mut out = Vec::new();
        while let Some((seq, end)) = self.s.next_retransmit(self.now()) {
            self.s.on_sent(self.now(), seq, end, true, self.queued);
            out.push((seq.since(FIRST) as u32 / MSS, end.since(FIRST) as u32 / MSS));
            assert!(out.len() < 100);
        }
        out
    }

    /// Segment up to which new data may go.
    pub fn limit(&self) -> u32 {
        self.s.limit(Window(8 << 20)).since(FIRST) as u32 / MSS
    }

    /// Deadline in ms after the handshake.
    pub fn deadline(&self) -> Option<u64> {
        self.s.deadline().map(|d| d.0 / 1_000_000 - NO_TIME)
    }

    /// Goes to the deadline and serves it.
    pub fn expire(&mut self) -> Expired {
        let Some(at) = self.s.deadline() else { return Expired::None };
        self.ms = at.0.div_ceil(1_000_000).max(self.ms);
        self.s.on_deadline(self.now())
    }

    pub fn cwnd(&self) -> u32 {
        self.s.cwnd() / MSS
    }

    pub fn rto_ms(&self) -> u64 {
        self.s.rto().as_millis()
    }
}

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
