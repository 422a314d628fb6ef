//! One end of a connection: the real `Tcb`, and a sender and receiver that know positions alone.
//!
//! ```text
//!   post, close ──> Peer ──frames──> wire        no byte is stored: a segment says where its
//!   segments ─────> Tcb ──commands──> Peer       payload lies, and `received` counts what is in order
//! ```
//!
//! `TCP_NODELAY` is set, as web servers do.

use baton_tcp::challenge::ChallengeLimiter;
use baton_tcp::command::{Command, Notice, TransmitContext};
use baton_tcp::config::{Config, Congestion};
use baton_tcp::handshake::Open;
use baton_tcp::path::Path;
use baton_tcp::segment::{Lengths, ParkId, Placement, Segment, SynOptions, Transmitted};
use baton_tcp::tcb::{Context, Tcb};
use baton_tcp::time::{Duration, Instant};
use baton_wire::seq::{Seq, Window, WindowScale};
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};

/// Payload of a socket's receive buffer, in bytes.
const BUFFER_BYTES: u32 = 64 * 1024;

/// MTU of the testbed's wire, and payload of a full segment with timestamps, in bytes.
pub const MTU: u16 = 1500;
/// See [`MTU`].
pub const MSS: u32 = 1448;

/// State that all connections of a machine share. The settings are those of FreeBSD 4.7, which CH (§4)
/// runs: NewReno without SACK, a retransmission timeout of 1 s at least, ACKs delayed by up to 100 ms.
pub struct Shared {
    config: Config,
    challenge: ChallengeLimiter,
}

impl Default for Shared {
    fn default() -> Shared {
        let config = Config::default().with(|config| {
            config.congestion = Congestion::Reno;
            config.sack = false;
            config.rto_min = Duration::from_secs(1);
            config.delayed_ack = Duration::from_millis(100);
        });
        let challenge = ChallengeLimiter::new(config.challenge_acks_per_second, 3);
        Shared { config, challenge }
    }
}

/// Where our FIN is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fin {
    No,
    Wanted,
    SentAt(Seq),
}

/// One end of a connection.
pub struct Peer {
    tcb: Option<Tcb>,
    /// Segments on their way out, in order.
    pub frames: Vec<Segment>,
    /// Bytes that arrived in order.
    pub received: u64,
    /// The handshake is complete.
    pub established: bool,
    /// The other end has closed.
    pub peer_closed: bool,
    open: Open,
    context: Option<TransmitContext>,
    snd_nxt: Seq,
    write_seq: Seq,
    fin: Fin,
    rcv_nxt: Seq,
    right_edge: Seq,
    posted: Seq,
    scale: WindowScale,
    ts_recent: Option<u32>,
    ranges: Vec<(Seq, Seq)>,
    parked: Vec<u32>,
    next_park: u32,
    synchronized: bool,
    commands: Vec<Command>,
}

impl Peer {
    /// An end that has not begun, with this initial sequence number.
    pub fn new(iss: u32) -> Peer {
        let open = Open {
            iss: Seq(iss),
            path: Path { mtu: MTU, ipv6: false, on_link: false },
            rcv_space: BUFFER_BYTES,
            ts_offset: iss.rotate_left(16),
        };
        Peer {
            tcb: None,
            frames: Vec::new(),
            received: 0,
            established: false,
            peer_closed: false,
            open,
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
            parked: Vec::new(),
            next_park: 0,
            synchronized: false,
            commands: Vec::new(),
        }
    }

    /// Opens actively.
    pub fn connect(&mut self, now: Instant, shared: &mut Shared) {
        let mut out = Vec::new();
        let mut cx = Context { now, config: &shared.config, challenge: &mut shared.challenge };
        self.tcb = Some(Tcb::connect(&mut cx, &self.open, &mut out));
        self.obey(now, shared, out);
    }

    /// The program writes `bytes`.
    pub fn post(&mut self, now: Instant, shared: &mut Shared, bytes: u32) {
        self.write_seq += bytes;
        self.transmit(now, shared);
    }

    /// The program closes.
    pub fn close(&mut self, now: Instant, shared: &mut Shared) {
        self.tell(now, shared, |tcb, cx, out| tcb.shutdown(cx, out));
        self.tell(now, shared, |tcb, cx, out| tcb.release(cx, out));
        self.transmit(now, shared);
    }

    /// When a timer of the connection is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.tcb.as_ref().and_then(Tcb::deadline)
    }

    /// A timer is due.
    pub fn expire(&mut self, now: Instant, shared: &mut Shared) {
        self.tell(now, shared, |tcb, cx, out| tcb.on_deadline(cx, out));
        self.transmit(now, shared);
    }

    /// Nothing of the connection is left.
    pub fn is_gone(&self) -> bool {
        self.tcb.is_none()
    }

    /// Both directions are closed, TIME-WAIT included.
    pub fn is_done(&self) -> bool {
        self.tcb.as_ref().is_none_or(|tcb| tcb.state() == baton_tcp::state::State::TimeWait)
    }

    /// Bytes written and not yet acknowledged.
    pub fn unacknowledged(&self) -> u32 {
        self.context.map_or(0, |context| self.write_seq.since(context.snd_una).max(0) as u32)
    }

    /// Moves the connection to another machine, as a snapshot. Returns false if it cannot go now.
    pub fn change_hands(&mut self, now: Instant, shared: &mut Shared) -> bool {
        let mut snapshot = None;
        self.tell(now, shared, |tcb, cx, out| snapshot = tcb.suspend(cx, out));
        let Some(mut snapshot) = snapshot else { return false };
        self.ranges.clear();
        snapshot.write_seq = self.write_seq + u32::from(self.fin != Fin::No);
        let mut out = Vec::new();
        let mut cx = Context { now, config: &shared.config, challenge: &mut shared.challenge };
        let adopted = Tcb::adopt(&mut cx, &snapshot, MTU, &mut out);
        self.tcb = Some(adopted.expect("a snapshot of our own is consistent"));
        self.obey(now, shared, out);
        let edge = self.posted;
        self.tell(now, shared, |tcb, cx, out| tcb.on_posted(cx, edge, out));
        self.transmit(now, shared);
        true
    }

    /// A segment arrived.
    pub fn receive(&mut self, now: Instant, shared: &mut Shared, segment: &Segment) {
        if self.tcb.is_none() {
            return self.accept(now, shared, segment);
        }
        let placement = self.place_arrival(segment);
        self.tell(now, shared, |tcb, cx, out| {
            tcb.handle_segment(cx, segment, placement, out);
        });
        let edge = self.rcv_nxt + BUFFER_BYTES;
        if self.synchronized && edge.after(self.posted) {
            self.posted = edge;
            self.tell(now, shared, |tcb, cx, out| tcb.on_posted(cx, edge, out));
        }
        self.transmit(now, shared);
    }

    fn accept(&mut self, now: Instant, shared: &mut Shared, segment: &Segment) {
        if segment.flags == Flags::SYN && !self.established {
            let mut out = Vec::new();
            let mut cx = Context { now, config: &shared.config, challenge: &mut shared.challenge };
            self.tcb = Some(Tcb::accept(&mut cx, segment, &self.open, &mut out));
            self.obey(now, shared, out);
        }
    }

    fn tell(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        call: impl FnOnce(&mut Tcb, &mut Context<'_>, &mut Vec<Command>),
    ) {
        let Some(tcb) = &mut self.tcb else { return };
        let mut out = core::mem::take(&mut self.commands);
        let mut cx = Context { now, config: &shared.config, challenge: &mut shared.challenge };
        call(tcb, &mut cx, &mut out);
        self.obey(now, shared, out);
    }

    fn obey(&mut self, now: Instant, shared: &mut Shared, mut commands: Vec<Command>) {
        for command in commands.drain(..) {
            match command {
                Command::Synchronized(s) => {
                    self.rcv_nxt = s.rcv_nxt;
                    if !self.synchronized {
                        self.right_edge = s.rcv_nxt;
                        self.posted = s.rcv_nxt + BUFFER_BYTES;
                    }
                    self.synchronized = true;
                    self.established = true;
                    self.scale = s.rcv_wscale;
                    self.ts_recent = s.ts_recent;
                }
                Command::Transmit(context) => self.context = Some(context),
                Command::Receive { right_edge, ts_recent } => {
                    self.right_edge = right_edge;
                    self.ts_recent = self.ts_recent.map(|_| ts_recent);
                }
                Command::Ack { ack, sack } => self.push_ack(now, ack, sack),
                Command::Acks { first, step, count } => {
                    for n in 0..u32::from(count) {
                        self.push_ack(now, first + step * n, SackBlocks::EMPTY);
                    }
                }
                Command::Control { flags, seq, ack, wnd, syn, ts_ecr } => {
                    let mut segment = self.segment(now, flags, seq, 0);
                    (segment.ack, segment.wnd) = (ack, wnd);
                    segment.timestamps = ts_ecr.map(|ecr| Timestamps { val: self.ts_val(now), ecr });
                    if let Some(syn) = syn {
                        segment.syn = SynOptions {
                            mss: Some(syn.mss),
                            window_scale: syn.window_scale.map(WindowScale::shift),
                            sack_permitted: syn.sack_permitted,
                            // The testbed counts the cost of checksums: they are always there.
                            unsummed: false,
                        };
                    }
                    self.frames.push(segment);
                }
                Command::Retransmit { seq, end } => self.repeat(now, shared, seq, end),
                Command::Place { park, seq, skip: _, len, rest } => {
                    if !rest {
                        self.parked.retain(|&id| id != park.0);
                    }
                    self.place(seq, seq + len);
                }
                Command::Drop { park } => self.parked.retain(|&id| id != park.0),
                Command::PeerFin { seq } => self.rcv_nxt = seq + 1,
                Command::Fin => self.fin = Fin::Wanted,
                Command::Notify(Notice::PeerFin) => self.peer_closed = true,
                Command::Notify(_) | Command::Detach => {}
                Command::Release => self.tcb = None,
            }
        }
        self.commands = commands;
    }

    fn push_ack(&mut self, now: Instant, ack: Seq, sack: SackBlocks) {
        let mut segment = self.segment(now, Flags::ACK, self.snd_nxt, 0);
        segment.ack = ack.latest(self.rcv_nxt);
        segment.sack = sack;
        self.frames.push(segment);
    }

    fn ts_val(&self, now: Instant) -> u32 {
        now.timestamp_ms().wrapping_add(self.open.ts_offset)
    }

    fn segment(&self, now: Instant, flags: Flags, seq: Seq, len: u32) -> Segment {
        let wnd = self.right_edge.since(self.rcv_nxt).max(0) as u32;
        Segment {
            seq,
            ack: self.rcv_nxt,
            flags,
            wnd: self.scale.field(Window(wnd)),
            urgent: 0,
            lengths: Lengths::single(len),
            timestamps: self.ts_recent.map(|ecr| Timestamps { val: self.ts_val(now), ecr }),
            sack: SackBlocks::new(),
            syn: SynOptions::default(),
            ce: false,
        }
    }

    /// Sends what the transmit context allows.
    fn transmit(&mut self, now: Instant, shared: &mut Shared) {
        loop {
            let Some(context) = self.context.filter(|_| self.tcb.is_some()) else { return };
            let queued = self.write_seq.since(self.snd_nxt).max(0) as u32;
            let usable = context.limit.since(self.snd_nxt).max(0) as u32;
            let len = queued.min(usable).min(u32::from(context.mss));
            let full = len == u32::from(context.mss) || len == queued;
            let fin = self.fin == Fin::Wanted && len == queued && usable > len;
            if !fin && (len == 0 || !full) {
                let idle = context.snd_una == self.snd_nxt;
                if idle && (queued > 0 || self.fin == Fin::Wanted) {
                    self.tell(now, shared, |tcb, cx, out| tcb.on_blocked(cx, queued, out));
                }
                return;
            }
            self.send(now, shared, self.snd_nxt, len, fin, false);
        }
    }

    fn send(&mut self, now: Instant, shared: &mut Shared, seq: Seq, len: u32, fin: bool, retransmit: bool) {
        let end = seq + len + u32::from(fin);
        let flags = if fin { Flags::ACK | Flags::FIN } else { Flags::ACK };
        let segment = self.segment(now, flags, seq, len);
        self.snd_nxt = self.snd_nxt.latest(end);
        if fin {
            self.fin = Fin::SentAt(end - 1);
        }
        let ack = segment.ack;
        self.frames.push(segment);
        let queued = self.write_seq.since(self.snd_nxt).max(0) as u32;
        let sent = Transmitted { seq, end, retransmit, fin, ack, queued };
        self.tell(now, shared, |tcb, cx, out| tcb.on_transmitted(cx, &sent, out));
    }

    fn repeat(&mut self, now: Instant, shared: &mut Shared, mut seq: Seq, end: Seq) {
        let mss = self.context.map_or(536, |context| u32::from(context.mss));
        let fin_at = match self.fin {
            Fin::SentAt(at) if end.after(at) => Some(at),
            _ => None,
        };
        let data_end = end.earliest(fin_at.unwrap_or(self.write_seq));
        while seq.before(data_end) {
            let len = (data_end.since(seq) as u32).min(mss);
            seq += len;
            self.send(now, shared, seq - len, len, fin_at == Some(seq), true);
        }
        if fin_at == Some(seq) {
            self.send(now, shared, seq, 0, true, true);
        }
    }

    /// Notes `[start, end)` as received. Returns how much of it was new.
    fn place(&mut self, start: Seq, end: Seq) -> u32 {
        let before = self.rcv_nxt;
        let start = start.latest(before);
        if !start.before(end) {
            return 0;
        }
        let mut fresh = end.since(start) as u32;
        for &(s, e) in &self.ranges {
            let overlap = end.earliest(e).since(start.latest(s));
            fresh -= overlap.max(0) as u32;
        }
        let (mut merged_start, mut merged_end) = (start, end);
        self.ranges.retain(|&(s, e)| {
            let apart = e.before(merged_start) || s.after(merged_end);
            if !apart {
                (merged_start, merged_end) = (merged_start.earliest(s), merged_end.latest(e));
            }
            apart
        });
        if merged_start.before_eq(self.rcv_nxt) {
            self.rcv_nxt = merged_end;
        } else {
            self.ranges.push((merged_start, merged_end));
        }
        self.received += self.rcv_nxt.since(before) as u64;
        fresh
    }

    fn place_arrival(&mut self, segment: &Segment) -> Placement {
        let len = segment.lengths.len;
        if len == 0 {
            return Placement::Empty;
        }
        let plain = segment.flags.without(Flags::PSH) == Flags::ACK;
        let timely = match (segment.timestamps, self.ts_recent) {
            (Some(t), Some(recent)) => Seq(t.val).after_eq(Seq(recent)),
            (None, None) => true,
            _ => false,
        };
        let inside = segment.end().before_eq(self.posted) && segment.seq.since(self.rcv_nxt) > -100_000;
        if self.synchronized && plain && timely && inside {
            let new_bytes = self.place(segment.seq, segment.end());
            return Placement::Placed { rcv_nxt: self.rcv_nxt, new_bytes };
        }
        self.next_park += 1;
        self.parked.push(self.next_park);
        Placement::Parked(ParkId(self.next_park))
    }
}
