//! Targets for the decisions of `baton_tcp`: a connection, and a listener, under
//! arbitrary segments, reports, wishes and times.
//!
//! The laws: no panic; `snd_una` is not behind `snd_nxt`; the right edge of the
//! window never moves back; each parked payload is placed or dropped once, at its
//! own place and into room that was posted; the number of commands a call is
//! bounded; while something is in flight a timer runs; after its end a
//! connection is silent; what a connection says of itself to a successor is what
//! the successor would say.

use baton_tcp::challenge::ChallengeLimiter;
use baton_tcp::command::{Command, MAX_COMMANDS};
use baton_tcp::config::Config;
use baton_tcp::handshake::Open;
use baton_tcp::icmp::{IcmpError, IcmpKind};
use baton_tcp::info::Info;
use baton_tcp::isn::Key;
use baton_tcp::listen::{Arrival, Disposition, Listener};
use baton_tcp::options::{KeepAlive, SocketOption};
use baton_tcp::path::Path;
use baton_tcp::segment::{Lengths, ParkId, Placement, Segment, SynOptions, Transmitted};
use baton_tcp::snapshot::Snapshot;
use baton_tcp::state::State;
use baton_tcp::tcb::{Context, Tcb};
use baton_tcp::time::{Duration, Instant};
use baton_wire::addr::{Addr, Tuple};
use baton_wire::seq::Seq;
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};
use std::collections::HashMap;

/// A target's name, which is its corpus directory's too, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this module.
pub const TARGETS: &[Target] = &[("tcp_connection", connection), ("tcp_listener", listener)];

const ISS: Seq = Seq(0xffff_f000);
const IRS: Seq = Seq(900_000);
/// TSval of the peer's SYN.
const TS: u32 = 5_000;

/// Numbers out of bytes; zeros once they are used up.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// An offset: mostly none, one, or a few thousand; now and then anything.
    fn near(&mut self) -> i32 {
        match self.u8() {
            0..=99 => 0,
            100..=129 => 1,
            130..=159 => -1,
            160..=189 => i32::from(self.u8()),
            190..=239 => i32::from(self.u16() as i16) / 4,
            _ => i32::from_le_bytes([self.u8(), self.u8(), self.u8(), self.u8()]),
        }
    }

    fn length(&mut self) -> u32 {
        match self.u8() {
            0..=79 => 0,
            80..=119 => 1_460,
            120..=239 => u32::from(self.u16() % 3_000),
            _ => u32::from(self.u16()) * 2,
        }
    }

    fn flags(&mut self) -> Flags {
        match self.u8() {
            0..=99 => Flags::ACK,
            100..=129 => Flags::ACK | Flags::PSH,
            130..=169 => Flags::ACK | Flags::FIN,
            170..=189 => Flags::ACK | Flags::SYN,
            190..=199 => Flags::SYN,
            _ => Flags(self.u16() & 0x1ff),
        }
    }
}

fn at(base: Seq, offset: i32) -> Seq {
    Seq(base.0.wrapping_add_signed(offset))
}

fn segment(flags: Flags, seq: Seq, ack: Seq) -> Segment {
    Segment {
        seq,
        ack,
        flags,
        wnd: 50_000,
        urgent: 0,
        lengths: Lengths::single(0),
        timestamps: None,
        sack: SackBlocks::new(),
        syn: SynOptions::default(),
        ce: false,
    }
}

/// A connection with a memory: what is parked, what was promised.
struct Watch {
    tcb: Tcb,
    config: Config,
    limiter: ChallengeLimiter,
    now: Instant,
    out: Vec<Command>,
    /// First byte and length of what is parked.
    parked: HashMap<u32, (Seq, u32)>,
    next_park: u32,
    right_edge: Option<Seq>,
    room: u32,
    posted: Option<Seq>,
    shut: bool,
    fin_sent: bool,
    released: bool,
}

/// Steps at most: an input is not longer for being slower.
const MOST_STEPS: usize = 400;

/// One connection, from its SYN to whatever end.
pub fn connection(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut watch = Watch::new(&mut bytes);
    watch.look();
    for _ in 0..MOST_STEPS {
        if bytes.0.is_empty() {
            break;
        }
        watch.step(&mut bytes);
        watch.look();
    }
    watch.call(|t, cx, out| t.abort(cx, out));
    watch.look();
    assert!(watch.parked.is_empty(), "each payload is settled in the end: {:?}", watch.parked);
}

impl Watch {
    fn new(bytes: &mut Bytes<'_>) -> Watch {
        let start = bytes.u8();
        let room = if bytes.flag() { u32::from(bytes.u16()) } else { 0 };
        let config = Config::default().with(|config| {
            config.ecn = start & 1 == 0;
            config.unposted_window = 20_000;
        });
        let path = Path { mtu: 1500, ipv6: start & 64 != 0, on_link: false };
        let open = Open { iss: ISS, path, rcv_space: room, ts_offset: 77 };
        let mut limiter = ChallengeLimiter::new(config.challenge_acks_per_second, 1);
        let now = Instant(0) + Duration::from_secs(1_000);
        let mut out = Vec::new();
        let mut cx = Context { now, config: &config, challenge: &mut limiter };
        let passive = start & 16 == 0;
        let mut peer = segment(Flags::SYN, IRS, Seq(0));
        peer.timestamps = (start & 2 == 0).then_some(Timestamps { val: TS, ecr: 0 });
        peer.syn = SynOptions {
            mss: Some(1460),
            window_scale: (start & 8 == 0).then_some(7),
            sack_permitted: start & 4 == 0,
            unsummed: false,
        };
        let mut tcb =
            if passive { Tcb::accept(&mut cx, &peer, &open, &mut out) } else { Tcb::connect(&mut cx, &open, &mut out) };
        if start & 32 == 0 {
            // Most runs begin with an open connection.
            let flags = if passive { Flags::ACK } else { Flags::SYN | Flags::ACK };
            let seq = if passive { IRS + 1 } else { IRS };
            let answer = Segment { timestamps: peer.timestamps, syn: peer.syn, ..segment(flags, seq, ISS + 1) };
            tcb.handle_segment(&mut cx, &answer, Placement::Empty, &mut out);
            assert_eq!(tcb.state(), State::Established);
        }
        Watch {
            tcb,
            config,
            limiter,
            now,
            out,
            parked: HashMap::new(),
            next_park: 0,
            right_edge: None,
            room,
            posted: None,
            shut: false,
            fin_sent: false,
            released: false,
        }
    }

    fn call(&mut self, f: impl FnOnce(&mut Tcb, &mut Context<'_>, &mut Vec<Command>)) {
        let before = self.out.len();
        let mut cx = Context { now: self.now, config: &self.config, challenge: &mut self.limiter };
        f(&mut self.tcb, &mut cx, &mut self.out);
        assert!(self.out.len() - before <= MAX_COMMANDS, "too many commands: {:?}", &self.out[before..]);
    }

    fn info(&mut self) -> Info {
        let cx = Context { now: self.now, config: &self.config, challenge: &mut self.limiter };
        self.tcb.info(&cx)
    }

    /// Checks the laws on what came out since the last look.
    fn look(&mut self) {
        for command in std::mem::take(&mut self.out) {
            match command {
                Command::Place { park, seq, skip, len, rest } => {
                    let (start, held) = *self.parked.get(&park.0).expect("settled once");
                    assert!(!rest || self.posted == Some(seq + len), "a rest is left for want of room only");
                    if !rest {
                        self.parked.remove(&park.0);
                    }
                    assert_eq!(start + skip, seq, "each byte at its own place");
                    assert!(len > 0 && skip + len <= held);
                    assert!((seq + len).before_eq(self.posted.expect("room was posted")));
                    assert!(!self.released);
                }
                Command::Drop { park } => assert!(self.parked.remove(&park.0).is_some(), "settled once"),
                Command::Receive { right_edge, .. } => {
                    assert!(self.right_edge.is_none_or(|edge| right_edge.after_eq(edge)), "the edge moved back");
                    self.right_edge = Some(right_edge);
                }
                Command::Synchronized(s) => self.posted = (self.room > 0).then_some(s.rcv_nxt + self.room),
                Command::Release => assert!(!std::mem::replace(&mut self.released, true), "released twice"),
                Command::Fin => assert!(!std::mem::replace(&mut self.shut, true), "one FIN"),
                _ => assert!(!self.released, "a command after the end: {command:?}"),
            }
        }
        let info = self.info();
        assert!(info.snd_una.before_eq(info.snd_nxt));
        assert_eq!(self.released, self.tcb.is_closed());
        assert_eq!(info.parked as usize, self.parked.len());
        let live = !matches!(info.state, State::Closed | State::TimeWait);
        if live && info.snd_una != info.snd_nxt {
            assert!(self.tcb.deadline().is_some(), "something in flight and no timer");
        }
        assert!(info.state != State::TimeWait || self.tcb.deadline().is_some(), "TIME-WAIT ends");
        if let Some(snapshot) = self.snapshot() {
            let (mut again, _) = self.successor(&snapshot);
            std::mem::swap(&mut self.tcb, &mut again);
            // But for the ACK that was owed, and is on its way.
            let same = Snapshot { last_ack_sent: snapshot.rcv_nxt, ..snapshot };
            assert_eq!(self.snapshot(), Some(same));
            std::mem::swap(&mut self.tcb, &mut again);
        }
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let cx = Context { now: self.now, config: &self.config, challenge: &mut self.limiter };
        let snapshot = self.tcb.snapshot(&cx)?;
        assert_eq!(snapshot.check(), Ok(()), "{snapshot:?}");
        Some(snapshot)
    }

    /// The Tcb that takes over, and its first commands.
    fn successor(&mut self, snapshot: &Snapshot) -> (Tcb, Vec<Command>) {
        let mut out = Vec::new();
        let mut cx = Context { now: self.now, config: &self.config, challenge: &mut self.limiter };
        let tcb = Tcb::adopt(&mut cx, snapshot, 1500, &mut out).expect("it was checked");
        assert!(out.len() <= MAX_COMMANDS);
        if snapshot.rcv_nxt != snapshot.last_ack_sent {
            // The ACK that is owed goes out and changes nothing else.
            assert!(matches!(out.last(), Some(Command::Ack { ack, .. }) if *ack == snapshot.rcv_nxt));
        }
        (tcb, out)
    }

    /// The connection goes to a successor, which knows of no room.
    fn change_hands(&mut self) {
        let before = self.snapshot();
        let mut leaves = None;
        self.call(|t, cx, out| leaves = t.suspend(cx, out));
        self.look();
        assert_eq!(leaves.is_some(), before.is_some());
        let Some(snapshot) = before else { return };
        let (tcb, out) = self.successor(&snapshot);
        self.tcb = tcb;
        self.out.extend(out.into_iter().filter(|command| *command != Command::Fin));
        self.room = 0;
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.u8() % 32 {
            0..=13 => {
                let (s, placement) = self.arrival(bytes);
                self.call(|t, cx, out| {
                    t.handle_segment(cx, &s, placement, out);
                });
            }
            14..=17 => self.sent(bytes),
            18..=20 => self.post(bytes),
            21 => {
                let queued = u32::from(bytes.u16() % 2_000);
                self.call(|t, cx, out| t.on_blocked(cx, queued, out));
            }
            22..=25 => {
                if let Some(due) = self.tcb.deadline() {
                    self.now = self.now.max(due);
                    self.call(|t, cx, out| t.on_deadline(cx, out));
                }
            }
            26 | 27 => {
                self.now = self.now + Duration::from_millis(u64::from(bytes.u16() % 5_000));
                self.call(|t, cx, out| t.on_deadline(cx, out));
            }
            28 => self.call(|t, cx, out| t.shutdown(cx, out)),
            29 if bytes.u8() < 64 => self.call(|t, cx, out| t.release(cx, out)),
            29 => self.change_hands(),
            30 => self.icmp(bytes),
            _ => self.option(bytes),
        }
    }

    fn arrival(&mut self, bytes: &mut Bytes<'_>) -> (Segment, Placement) {
        let info = self.info();
        let flags = bytes.flags();
        let mut s = segment(flags, at(info.rcv_nxt, bytes.near()), at(info.snd_nxt, bytes.near()));
        let len = bytes.length();
        let size = len.clamp(1, 1_460) as u16;
        s.lengths = Lengths { len, size, count: len.div_ceil(u32::from(size)).max(1) as u16 };
        let extras = bytes.u8();
        if extras & 1 != 0 {
            s.wnd = bytes.u16();
        }
        if extras & 2 != 0 {
            let start = at(info.snd_una, bytes.near());
            s.sack.push(start, start + bytes.length());
        }
        if (extras & 4 != 0) != info.timestamps {
            s.timestamps = Some(Timestamps { val: at(Seq(TS), bytes.near()).0, ecr: 77 });
        }
        s.ce = extras & 8 != 0;
        s.urgent = if extras & 16 != 0 { bytes.u16() } else { 0 };
        s.syn.mss = (extras & 32 != 0).then(|| bytes.u16());
        let placement = if len == 0 { Placement::Empty } else { self.placement(&s, &info, bytes.u8()) };
        (s, placement)
    }

    /// The placement by a Streamer: it places only what is plain, lies in the room and was
    /// promised a place.
    fn placement(&mut self, s: &Segment, info: &Info, way: u8) -> Placement {
        let plain = s.flags.without(Flags::PSH) == Flags::ACK && info.state.is_synchronized();
        let room = self.posted.unwrap_or(info.rcv_nxt).earliest(info.rcv_nxt + info.rcv_wnd);
        let close = s.seq.since(info.rcv_nxt).unsigned_abs() < 1 << 20;
        if way < 16 {
            return Placement::Empty;
        }
        if way < 80 || !plain || !close || s.end().after(room) {
            self.next_park += 1;
            let start = if s.flags.contains(Flags::SYN) { s.seq + 1 } else { s.seq };
            self.parked.insert(self.next_park, (start, s.lengths.len));
            return Placement::Parked(ParkId(self.next_park));
        }
        if s.seq.after(info.rcv_nxt) {
            return Placement::Placed { rcv_nxt: info.rcv_nxt, new_bytes: s.lengths.len };
        }
        let rcv_nxt = s.end().latest(info.rcv_nxt);
        Placement::Placed { rcv_nxt, new_bytes: rcv_nxt.since(info.rcv_nxt) as u32 }
    }

    fn sent(&mut self, bytes: &mut Bytes<'_>) {
        let info = self.info();
        let may = info.state.is_synchronized() && info.state != State::TimeWait && !self.fin_sent;
        let fin = self.shut && bytes.flag();
        if !may || (self.shut && !fin) {
            return;
        }
        self.fin_sent = fin;
        let seq = info.snd_nxt;
        let end = seq + bytes.length() + 1;
        let sent = Transmitted { seq, end, retransmit: false, fin, ack: info.rcv_nxt, queued: u32::from(bytes.u8()) };
        self.call(|t, cx, out| t.on_transmitted(cx, &sent, out));
    }

    fn post(&mut self, bytes: &mut Bytes<'_>) {
        let info = self.info();
        let edge = self.posted.unwrap_or(info.rcv_nxt).latest(info.rcv_nxt) + bytes.length();
        if !info.state.is_synchronized() || edge.since(info.rcv_nxt) > 1 << 22 {
            return;
        }
        self.posted = Some(edge);
        if bytes.flag() {
            self.call(|t, cx, out| t.on_posted(cx, edge, out));
        } else {
            self.call(|t, cx, out| t.note_posted(cx, edge, out));
        }
    }

    fn icmp(&mut self, bytes: &mut Bytes<'_>) {
        let kind = match bytes.u8() % 6 {
            0 => IcmpKind::TooBig { mtu: bytes.u16() },
            1 => IcmpKind::PortUnreachable,
            2 => IcmpKind::HostUnreachable,
            3 => IcmpKind::NetworkUnreachable,
            4 => IcmpKind::TimeExceeded,
            _ => IcmpKind::ParameterProblem,
        };
        let error = IcmpError { seq: at(self.info().snd_una, bytes.near()), kind };
        self.call(|t, cx, out| t.on_icmp(cx, &error, out));
    }

    fn option(&mut self, bytes: &mut Bytes<'_>) {
        let option = match bytes.u8() % 8 {
            0 => SocketOption::NoDelay(bytes.flag()),
            1 => SocketOption::Cork(bytes.flag()),
            2 => {
                let idle = Duration::from_millis(u64::from(bytes.u16()));
                SocketOption::KeepAlive(Some(KeepAlive { idle, ..KeepAlive::default() }))
            }
            3 => SocketOption::KeepAlive(None),
            4 => SocketOption::UserTimeout(Some(Duration::from_millis(u64::from(bytes.u16())))),
            5 => SocketOption::UserTimeout(None),
            6 => SocketOption::QuickAck(bytes.flag()),
            _ => SocketOption::Linger2(Some(Duration::from_millis(u64::from(bytes.u16())))),
        };
        self.call(|t, cx, out| t.set_option(cx, option, out));
    }
}

/// A listener: half-open connections stay within the backlog, and no
/// acknowledgment is taken for a cookie's that the listener did not send.
pub fn listener(data: &[u8]) {
    let mut bytes = Bytes(data);
    let config = Config::default().with(|config| config.ecn = bytes.flag());
    let key = Key([bytes.u8(); 16]);
    let tuple =
        Tuple { local: Addr::v4([10, 0, 0, 1]), remote: Addr::v4([10, 0, 0, 2]), local_port: 80, remote_port: 4000 };
    let path = Path { mtu: bytes.u16(), ipv6: bytes.flag(), on_link: false };
    let backlog = u32::from(bytes.u8() % 4);
    let mut listener = Listener::new(backlog);
    let mut now = Instant(1 << 40);
    let mut cookies = Vec::new();
    while !bytes.0.is_empty() {
        let flags = bytes.flags();
        let last = cookies.last().copied().unwrap_or(Seq(0));
        let mut s = segment(flags, at(IRS, bytes.near()), at(last, bytes.near()) + 1);
        s.syn = SynOptions {
            mss: Some(bytes.u16()),
            window_scale: Some(bytes.u8()),
            sack_permitted: bytes.flag(),
            unsummed: false,
        };
        s.timestamps = bytes.flag().then(|| Timestamps { val: TS, ecr: u32::from(bytes.u16()) });
        let arrival = Arrival { now, config: &config, key: &key, tuple: &tuple, path };
        match listener.handle_segment(&arrival, &s) {
            Disposition::Accept => assert!(listener.half_open() <= backlog),
            Disposition::Cookie { reply: Command::Control { seq, .. }, .. } => cookies.push(seq),
            Disposition::Established(decoded) => {
                // 24 bits of hash: no input of a few kilobytes guesses them.
                assert!(cookies.contains(&decoded.iss), "a cookie that was never sent");
                establish(&config, now, &s, &decoded, path);
            }
            _ => {}
        }
        match bytes.u8() {
            0..=31 if listener.half_open() > 0 => listener.on_half_open_done(),
            32..=63 => now = now + Duration::from_secs(u64::from(bytes.u8())),
            _ => {}
        }
    }
}

fn establish(config: &Config, now: Instant, ack: &Segment, cookie: &baton_tcp::cookie::Decoded, path: Path) {
    let mut limiter = ChallengeLimiter::new(1, 1);
    let mut cx = Context { now, config, challenge: &mut limiter };
    let open = Open { iss: Seq(0), path, rcv_space: 0, ts_offset: 0 };
    let mut out = Vec::new();
    let mut tcb = Tcb::from_cookie(&mut cx, ack, cookie, &open, &mut out);
    assert_eq!(tcb.state(), State::Established);
    tcb.abort(&mut cx, &mut out);
    assert_eq!(out.last(), Some(&Command::Release));
}
