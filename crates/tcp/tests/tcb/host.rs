//! A model Streamer and consumer around a `Tcb`: just enough of an engine to let
//! two connections talk. Payload is only positions; a byte is right if it is
//! placed at its own sequence number, once.

use baton_tcp::challenge::ChallengeLimiter;
use baton_tcp::command::{Command, MAX_COMMANDS, Notice, TransmitContext};
use baton_tcp::config::Config;
use baton_tcp::handshake::Open;
use baton_tcp::manner::Manner;
use baton_tcp::segment::{Lengths, ParkId, Placement, Segment, SynOptions, Transmitted};
use baton_tcp::tcb::{Context, Tcb};
use baton_tcp::time::{Duration, Instant};
use baton_wire::seq::{Seq, Window, WindowScale};
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};
use std::collections::{HashMap, VecDeque};

pub struct Host {
    pub tcb: Option<Tcb>,
    pub config: Config,
    pub notices: Vec<Notice>,
    /// Segments on their way to the port.
    pub frames: Vec<Segment>,
    /// Bytes of the peer's stream that arrived in order.
    pub received: u64,
    limiter: ChallengeLimiter,
    open: Open,
    now: Instant,
    synchronized: bool,
    context: Option<TransmitContext>,
    snd_nxt: Seq,
    /// End of what the consumer posted to send.
    write_seq: Seq,
    fin: Fin,
    rcv_nxt: Seq,
    right_edge: Seq,
    posted: Seq,
    scale: WindowScale,
    ts_recent: Option<u32>,
    ranges: Vec<(Seq, Seq)>,
    parked: HashMap<u32, (Seq, u32)>,
    next_park: u32,
    buffer: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Fin {
    No,
    Wanted,
    SentAt(Seq),
}

impl Host {
    pub fn new(config: Config, open: Open, buffer: u32) -> Host {
        let limiter = ChallengeLimiter::new(config.challenge_acks_per_second, 3);
        Host {
            tcb: None,
            config,
            notices: Vec::new(),
            frames: Vec::new(),
            received: 0,
            limiter,
            open,
            now: Instant(0),
            synchronized: false,
            context: None,
            snd_nxt: open.iss + 1,
            write_seq: open.iss + 1,
            fin: Fin::No,
            rcv_nxt: Seq(0),
            right_edge: Seq(0),
            posted: Seq(0),
            scale: WindowScale::default(),
            ts_recent: None,
            ranges: Vec::new(),
            parked: HashMap::new(),
            next_park: 0,
            buffer,
        }
    }

    pub fn connect(&mut self, now: Instant) {
        self.now = now;
        let mut out = Vec::new();
        let mut cx = Context { now, config: &self.config, challenge: &mut self.limiter };
        self.tcb = Some(Tcb::connect(&mut cx, &self.open, &mut out));
        self.obey(out);
    }

    /// Posts bytes to send.
    pub fn post(&mut self, now: Instant, bytes: u32) {
        self.now = now;
        self.write_seq += bytes;
        self.transmit();
    }

    pub fn close(&mut self, now: Instant) {
        self.now = now;
        self.tell(|t, cx, out| t.shutdown(cx, out));
        self.transmit();
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.tcb.as_ref().and_then(Tcb::deadline)
    }

    pub fn expire(&mut self, now: Instant) {
        self.now = now;
        self.tell(|t, cx, out| t.on_deadline(cx, out));
        self.transmit();
    }

    /// The connection goes to another `Tcb`, which knows of it what a snapshot
    /// says; false if it cannot go now.
    pub fn change_hands(&mut self, now: Instant) -> bool {
        self.now = now;
        let mut snapshot = None;
        self.tell(|t, cx, out| snapshot = t.suspend(cx, out));
        let Some(mut snapshot) = snapshot else { return false };
        assert!(self.parked.is_empty());
        self.ranges.clear();
        snapshot.write_seq = self.write_seq + u32::from(self.fin != Fin::No);
        if let Fin::SentAt(at) = self.fin {
            snapshot.write_seq = at + 1;
        }
        assert_eq!(snapshot.check(), Ok(()));
        let mut out = Vec::new();
        let mut cx = Context { now, config: &self.config, challenge: &mut self.limiter };
        self.tcb = Some(Tcb::adopt(&mut cx, &snapshot, 1500, &mut out).expect("it was checked"));
        self.obey(out);
        let edge = self.posted;
        self.tell(|t, cx, out| t.on_posted(cx, edge, out));
        self.transmit();
        true
    }

    /// Everything parked was settled.
    pub fn assert_settled(&self) {
        assert!(self.parked.is_empty(), "{:?}", self.parked);
    }

    fn tell(&mut self, f: impl FnOnce(&mut Tcb, &mut Context<'_>, &mut Vec<Command>)) {
        let mut out = Vec::new();
        if let Some(tcb) = &mut self.tcb {
            let mut cx = Context { now: self.now, config: &self.config, challenge: &mut self.limiter };
            f(tcb, &mut cx, &mut out);
            assert!(out.len() <= MAX_COMMANDS);
        }
        self.obey(out);
    }

    fn obey(&mut self, commands: Vec<Command>) {
        let mut left: VecDeque<Command> = commands.into();
        while let Some(command) = left.pop_front() {
            match command {
                Command::Synchronized(s) => {
                    assert_eq!(s.snd_nxt, self.snd_nxt);
                    self.rcv_nxt = s.rcv_nxt;
                    if !self.synchronized {
                        self.right_edge = s.rcv_nxt;
                        self.posted = s.rcv_nxt + self.open.rcv_space;
                    }
                    self.synchronized = true;
                    self.scale = s.rcv_wscale;
                    self.ts_recent = s.ts_recent;
                }
                Command::Transmit(context) => self.context = Some(context),
                Command::Receive { right_edge, ts_recent } => {
                    assert!(right_edge.after_eq(self.right_edge), "the window was taken back");
                    self.right_edge = right_edge;
                    self.ts_recent = self.ts_recent.map(|_| ts_recent);
                }
                Command::Ack { ack, sack } => {
                    let mut s = self.segment(Flags::ACK, self.snd_nxt, 0);
                    s.ack = ack.latest(self.rcv_nxt);
                    s.sack = sack;
                    self.frames.push(s);
                }
                Command::Acks { first, step, count } => {
                    for n in (0..u32::from(count)).rev() {
                        left.push_front(Command::Ack { ack: first + step * n, sack: SackBlocks::EMPTY });
                    }
                }
                Command::Control { flags, seq, ack, wnd, syn, ts_ecr } => {
                    let mut s = self.segment(flags, seq, 0);
                    (s.ack, s.wnd) = (ack, wnd);
                    s.timestamps = ts_ecr.map(|ecr| Timestamps { val: self.ts_val(), ecr });
                    if let Some(syn) = syn {
                        s.syn = SynOptions {
                            mss: Some(syn.mss),
                            window_scale: syn.window_scale.map(WindowScale::shift),
                            sack_permitted: syn.sack_permitted,
                            unsummed: syn.unsummed,
                        };
                    }
                    self.frames.push(s);
                }
                Command::Retransmit { seq, end } => self.repeat(seq, end),
                Command::Place { park, seq, skip, len, rest } => {
                    let (start, held) = *self.parked.get(&park.0).expect("parked");
                    if !rest {
                        self.parked.remove(&park.0);
                    }
                    assert!(start + skip == seq && skip + len <= held && (seq + len).before_eq(self.posted));
                    self.place(seq, seq + len);
                }
                Command::Drop { park } => assert!(self.parked.remove(&park.0).is_some()),
                Command::PeerFin { seq } => {
                    assert_eq!(seq, self.rcv_nxt, "all before the FIN is here");
                    self.rcv_nxt += 1;
                }
                Command::Fin => self.fin = Fin::Wanted,
                Command::Notify(notice) => self.notices.push(notice),
                Command::Detach => {}
                Command::Release => self.tcb = None,
            }
        }
    }

    fn ts_val(&self) -> u32 {
        self.now.timestamp_ms().wrapping_add(self.open.ts_offset)
    }

    fn segment(&self, flags: Flags, seq: Seq, len: u32) -> Segment {
        let wnd = self.right_edge.since(self.rcv_nxt).max(0) as u32;
        Segment {
            seq,
            ack: self.rcv_nxt,
            flags,
            wnd: self.scale.field(Window(wnd)),
            urgent: 0,
            lengths: Lengths::single(len),
            timestamps: self.ts_recent.map(|ecr| Timestamps { val: self.ts_val(), ecr }),
            sack: SackBlocks::new(),
            syn: SynOptions::default(),
            ce: false,
        }
    }

    /// Sends what the transmit context allows.
    pub fn transmit(&mut self) {
        loop {
            let Some(context) = self.context.filter(|_| self.tcb.is_some()) else { return };
            let queued = self.write_seq.since(self.snd_nxt).max(0) as u32;
            let usable = context.limit.since(self.snd_nxt).max(0) as u32;
            let len = queued.min(usable).min(u32::from(context.mss));
            let idle = context.snd_una == self.snd_nxt;
            let all = len == queued && (idle || context.manner.has(Manner::NODELAY) || self.fin != Fin::No);
            let worth = len == u32::from(context.mss) || all || (idle && len >= context.max_wnd / 2);
            let fin = self.fin == Fin::Wanted && len == queued && usable > len;
            let sends = fin || (len > 0 && worth);
            if !sends {
                if idle && (queued > 0 || self.fin == Fin::Wanted) {
                    self.tell(|t, cx, out| t.on_blocked(cx, queued, out));
                }
                return;
            }
            self.send(self.snd_nxt, len, fin, false);
        }
    }

    fn send(&mut self, seq: Seq, len: u32, fin: bool, retransmit: bool) {
        let end = seq + len + u32::from(fin);
        let flags = if fin { Flags::ACK | Flags::FIN } else { Flags::ACK };
        let segment = self.segment(flags, seq, len);
        self.snd_nxt = self.snd_nxt.latest(end);
        if fin {
            self.fin = Fin::SentAt(end - 1);
        }
        let ack = segment.ack;
        self.frames.push(segment);
        let queued = self.write_seq.since(self.snd_nxt).max(0) as u32;
        let sent = Transmitted { seq, end, retransmit, fin, ack, queued };
        self.tell(|t, cx, out| t.on_transmitted(cx, &sent, out));
    }

    fn repeat(&mut self, mut seq: Seq, end: Seq) {
        let mss = self.context.map_or(536, |c| u32::from(c.mss));
        let data_end = match self.fin {
            Fin::SentAt(at) => end.earliest(at),
            _ => end.earliest(self.write_seq),
        };
        let fin = matches!(self.fin, Fin::SentAt(at) if end.after(at));
        while seq.before(data_end) {
            let len = (data_end.since(seq) as u32).min(mss);
            let last = seq + len == data_end;
            self.send(seq, len, fin && last, true);
            seq += len;
        }
        if fin && matches!(self.fin, Fin::SentAt(at) if seq == at) {
            self.send(seq, 0, true, true);
        }
    }

    /// Notes `[start, end)` as placed; returns how much of it was new.
    fn place(&mut self, start: Seq, end: Seq) -> u32 {
        let before = self.rcv_nxt;
        let start = start.latest(before);
        if !start.before(end) {
            return 0;
        }
        let mut fresh = 0;
        for offset in 0..end.since(start) as u32 {
            let at = start + offset;
            fresh += u32::from(!self.ranges.iter().any(|&(s, e)| at.within(s, e)));
        }
        self.ranges.push((start, end));
        while let Some(i) = self.ranges.iter().position(|&(s, _)| s.before_eq(self.rcv_nxt)) {
            let (_, e) = self.ranges.swap_remove(i);
            self.rcv_nxt = self.rcv_nxt.latest(e);
        }
        self.received += self.rcv_nxt.since(before) as u64;
        fresh
    }

    /// The consumer read all that is in order, and posts its buffer again.
    fn consume(&mut self) {
        let edge = self.rcv_nxt + self.buffer;
        if self.synchronized && edge.after(self.posted) {
            self.posted = edge;
            self.tell(|t, cx, out| t.on_posted(cx, edge, out));
        }
    }

    /// A segment from the port.
    pub fn receive(&mut self, now: Instant, seg: &Segment) {
        self.now = now;
        if self.tcb.is_none() {
            return self.receive_unconnected(seg);
        }
        let placement = self.validate(seg);
        self.tell(|t, cx, out| {
            t.handle_segment(cx, seg, placement, out);
        });
        self.consume();
        self.transmit();
    }

    fn receive_unconnected(&mut self, seg: &Segment) {
        if seg.flags == Flags::SYN && self.notices.is_empty() {
            let mut out = Vec::new();
            let mut cx = Context { now: self.now, config: &self.config, challenge: &mut self.limiter };
            self.tcb = Some(Tcb::accept(&mut cx, seg, &self.open, &mut out));
            self.obey(out);
        }
    }

    fn validate(&mut self, seg: &Segment) -> Placement {
        let len = seg.lengths.len;
        if len == 0 {
            return Placement::Empty;
        }
        let plain = seg.flags.without(Flags::PSH) == Flags::ACK;
        let timely = match (seg.timestamps, self.ts_recent) {
            (Some(t), Some(recent)) => Seq(t.val).after_eq(Seq(recent)),
            (None, None) => true,
            _ => false,
        };
        let inside = seg.end().before_eq(self.posted) && seg.seq.since(self.rcv_nxt) > -100_000;
        if self.synchronized && plain && timely && inside {
            let new_bytes = self.place(seg.seq, seg.end());
            return Placement::Placed { rcv_nxt: self.rcv_nxt, new_bytes };
        }
        self.next_park += 1;
        let start = if seg.flags.contains(Flags::SYN) { seg.seq + 1 } else { seg.seq };
        self.parked.insert(self.next_park, (start, len));
        Placement::Parked(ParkId(self.next_park))
    }

    pub fn quiet_for(&self, span: Duration, now: Instant) -> bool {
        self.deadline().is_none_or(|at| at.since(now) > span)
    }
}
