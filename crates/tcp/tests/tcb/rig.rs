//! One `Tcb` on the bench: hand it segments and time, look at its commands.

use baton_tcp::challenge::ChallengeLimiter;
use baton_tcp::command::{Command, MAX_COMMANDS, Notice, TransmitContext};
use baton_tcp::config::Config;
use baton_tcp::handshake::Open;
use baton_tcp::path::Path;
use baton_tcp::segment::{Lengths, ParkId, Placement, Segment, SynOptions, Transmitted};
use baton_tcp::state::State;
use baton_tcp::tcb::{Context, Tcb};
use baton_tcp::time::{Duration, Instant};
use baton_wire::seq::Seq;
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};

pub const ISS: Seq = Seq(1_000);
pub const IRS: Seq = Seq(900_000);
/// First byte that we send, and that we expect.
pub const SND: Seq = Seq(1_001);
pub const RCV: Seq = Seq(900_001);
pub const SYN_ACK: Flags = Flags(0x12);
pub const FIN_ACK: Flags = Flags(0x11);
pub const RST_ACK: Flags = Flags(0x14);
/// Window field of the peer's segments; no scaling unless a test asks for it.
pub const WND: u16 = 50_000;

pub fn open() -> Open {
    Open { iss: ISS, path: Path { mtu: 1500, ipv6: false, on_link: false }, rcv_space: 1 << 16, ts_offset: 77 }
}

/// Options off, so that a test sees only what it is about.
pub fn plain() -> Config {
    Config::default().with(|config| {
        config.sack = false;
        config.timestamps = false;
        config.window_scaling = false;
    })
}

/// A segment of the peer without options.
pub fn seg(flags: Flags, seq: Seq, ack: Seq, len: u32) -> Segment {
    Segment {
        seq,
        ack,
        flags,
        wnd: WND,
        urgent: 0,
        lengths: Lengths::single(len),
        timestamps: None,
        sack: SackBlocks::new(),
        syn: SynOptions::default(),
        ce: false,
    }
}

pub fn syn(flags: Flags, ack: Seq) -> Segment {
    Segment { syn: SynOptions { mss: Some(1460), ..SynOptions::default() }, ..seg(flags, IRS, ack, 0) }
}

pub struct Rig {
    pub tcb: Tcb,
    pub config: Config,
    pub limiter: ChallengeLimiter,
    pub now: Instant,
    pub out: Vec<Command>,
    pub snd_nxt: Seq,
}

impl Rig {
    pub fn with(config: Config, make: impl FnOnce(&mut Context<'_>, &mut Vec<Command>) -> Tcb) -> Rig {
        let mut limiter = ChallengeLimiter::new(config.challenge_acks_per_second, 1);
        let now = Instant(0) + Duration::from_secs(1_000);
        let mut out = Vec::new();
        let tcb = make(&mut Context { now, config: &config, challenge: &mut limiter }, &mut out);
        Rig { tcb, config, limiter, now, out, snd_nxt: SND }
    }

    pub fn connecting(config: Config) -> Rig {
        Rig::with(config, |cx, out| Tcb::connect(cx, &open(), out))
    }

    pub fn answering(config: Config) -> Rig {
        Rig::with(config, |cx, out| Tcb::accept(cx, &syn(Flags::SYN, Seq(0)), &open(), out))
    }

    pub fn established() -> Rig {
        Rig::established_with(plain())
    }

    pub fn established_with(config: Config) -> Rig {
        let mut rig = Rig::connecting(config);
        rig.after(Duration::from_millis(50));
        rig.arrive(&syn(SYN_ACK, SND));
        assert_eq!(rig.tcb.state(), State::Established);
        rig.after(Duration::from_secs(10));
        rig.out.clear();
        rig
    }

    /// A rig in any state but CLOSED and LISTEN, by the shortest way.
    pub fn in_state(state: State) -> Rig {
        match state {
            State::SynSent => Rig::connecting(plain()),
            State::SynReceived => Rig::answering(plain()),
            State::Established => Rig::established(),
            State::FinWait1 => {
                let mut rig = Rig::established();
                rig.call(|t, cx, out| t.shutdown(cx, out));
                rig.sent_fin();
                rig
            }
            State::FinWait2 => {
                let mut rig = Rig::in_state(State::FinWait1);
                rig.arrive(&seg(Flags::ACK, RCV, SND + 1, 0));
                rig
            }
            State::CloseWait => {
                let mut rig = Rig::established();
                rig.arrive(&seg(FIN_ACK, RCV, SND, 0));
                rig
            }
            State::Closing => {
                let mut rig = Rig::in_state(State::FinWait1);
                rig.arrive(&seg(FIN_ACK, RCV, SND, 0));
                rig
            }
            State::LastAck => {
                let mut rig = Rig::in_state(State::CloseWait);
                rig.call(|t, cx, out| t.shutdown(cx, out));
                rig.sent_fin();
                rig
            }
            State::TimeWait => {
                let mut rig = Rig::in_state(State::FinWait2);
                rig.arrive(&seg(FIN_ACK, RCV, SND + 1, 0));
                rig
            }
            State::Closed | State::Listen => unreachable!("no Tcb has this state from the start"),
        }
        .rested(state)
    }

    fn rested(mut self, state: State) -> Rig {
        assert_eq!(self.tcb.state(), state);
        self.after(Duration::from_millis(600));
        self.out.clear();
        self
    }

    pub fn call<R>(&mut self, f: impl FnOnce(&mut Tcb, &mut Context<'_>, &mut Vec<Command>) -> R) -> R {
        let before = self.out.len();
        let mut cx = Context { now: self.now, config: &self.config, challenge: &mut self.limiter };
        let result = f(&mut self.tcb, &mut cx, &mut self.out);
        assert!(self.out.len() - before <= MAX_COMMANDS, "too many commands: {:?}", &self.out[before..]);
        result
    }

    pub fn after(&mut self, span: Duration) -> &mut Rig {
        self.now = self.now + span;
        self
    }

    /// A segment without payload, or whose payload found no place.
    pub fn arrive(&mut self, seg: &Segment) -> &[Command] {
        self.arrive_as(seg, Placement::Empty)
    }

    pub fn arrive_as(&mut self, seg: &Segment, placement: Placement) -> &[Command] {
        let before = self.out.len();
        self.call(|t, cx, out| t.handle_segment(cx, seg, placement, out));
        &self.out[before..]
    }

    pub fn parked(&mut self, id: u32, seg: &Segment) -> &[Command] {
        self.arrive_as(seg, Placement::Parked(ParkId(id)))
    }

    /// The Streamer placed all of it, and is at `rcv_nxt` now.
    pub fn placed(&mut self, seg: &Segment, rcv_nxt: Seq) -> &[Command] {
        self.arrive_as(seg, Placement::Placed { rcv_nxt, new_bytes: seg.lengths.len })
    }

    /// The Streamer sent `len` new bytes.
    pub fn sent(&mut self, len: u32) -> &[Command] {
        self.sent_range(self.snd_nxt, len, false)
    }

    pub fn sent_fin(&mut self) -> &[Command] {
        self.sent_range(self.snd_nxt, 1, true)
    }

    fn sent_range(&mut self, seq: Seq, len: u32, fin: bool) -> &[Command] {
        self.snd_nxt = seq + len;
        let ack = self.info().rcv_nxt;
        let t = Transmitted { seq, end: seq + len, retransmit: false, fin, ack, queued: 0 };
        let before = self.out.len();
        self.call(|tcb, cx, out| tcb.on_transmitted(cx, &t, out));
        &self.out[before..]
    }

    /// Goes on to the next deadline and runs it.
    pub fn expire(&mut self) -> &[Command] {
        let at = self.tcb.deadline().expect("something is to come");
        self.now = self.now.max(at);
        let before = self.out.len();
        self.call(|t, cx, out| t.on_deadline(cx, out));
        &self.out[before..]
    }

    pub fn info(&mut self) -> baton_tcp::info::Info {
        self.call(|t, cx, _| t.info(cx))
    }

    pub fn notices(&self) -> Vec<Notice> {
        self.out.iter().filter_map(|c| if let Command::Notify(n) = c { Some(*n) } else { None }).collect()
    }

    pub fn take(&mut self) -> Vec<Command> {
        core::mem::take(&mut self.out)
    }
}

/// Acknowledgment numbers of ACKs without data.
pub fn acks(commands: &[Command]) -> Vec<Seq> {
    commands.iter().filter_map(|c| if let Command::Ack { ack, .. } = c { Some(*ack) } else { None }).collect()
}

/// Flags, sequence and acknowledgment numbers of control segments.
pub fn controls(commands: &[Command]) -> Vec<(Flags, Seq, Seq)> {
    commands
        .iter()
        .filter_map(
            |c| if let Command::Control { flags, seq, ack, .. } = c { Some((*flags, *seq, *ack)) } else { None },
        )
        .collect()
}

pub fn transmit(commands: &[Command]) -> Option<TransmitContext> {
    commands.iter().rev().find_map(|c| if let Command::Transmit(t) = c { Some(*t) } else { None })
}

pub fn retransmits(commands: &[Command]) -> Vec<(Seq, Seq)> {
    commands
        .iter()
        .filter_map(|c| if let Command::Retransmit { seq, end } = c { Some((*seq, *end)) } else { None })
        .collect()
}

pub fn ts(val: u32, ecr: u32) -> Option<Timestamps> {
    Some(Timestamps { val, ecr })
}
