//! Laws that hold whatever arrives, in whatever order.

use crate::rig::*;
use baton_tcp::command::Command;
use baton_tcp::config::Config;
use baton_tcp::handshake::Open;
use baton_tcp::icmp::{IcmpError, IcmpKind};
use baton_tcp::options::{KeepAlive, SocketOption};
use baton_tcp::segment::{Lengths, ParkId, Placement, Segment};
use baton_tcp::state::State;
use baton_tcp::tcb::Tcb;
use baton_tcp::time::Duration;
use baton_wire::seq::Seq;
use baton_wire::tcp::{Flags, SackBlocks};
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Op {
    /// Flags, offsets of SEG.SEQ from `rcv_nxt` and of SEG.ACK from `snd_nxt`,
    /// length, window, TSval offset, way it came, SACK block.
    Segment(u16, i32, i32, u32, u16, Option<i32>, u8, Option<(i32, u32)>),
    Sent(u32, bool),
    Posted(u32),
    Blocked(u32),
    Expire,
    Wait(u64),
    Shutdown,
    Release,
    Abort,
    Icmp(u8, i32, u16),
    Option(u8),
}

fn near() -> impl Strategy<Value = i32> {
    prop_oneof![4 => Just(0), 2 => Just(1), 2 => Just(-1), 4 => -5_000..5_000i32, 1 => any::<i32>()]
}

fn op() -> impl Strategy<Value = Op> {
    let flags = prop_oneof![6 => Just(0x10u16), 3 => Just(0x18), 3 => Just(0x11), 2 => Just(0x12), 1 => Just(2), 4 => 0..0x200u16];
    let length = prop_oneof![3 => Just(0u32), 3 => 1..3_000u32, 1 => Just(1_460), 1 => 0..80_000u32];
    let segment = (
        flags,
        near(),
        near(),
        length,
        any::<u16>(),
        prop::option::of(near()),
        0..3u8,
        prop::option::of((near(), 0..9_000u32)),
    )
        .prop_map(|(f, s, a, l, w, t, p, k)| Op::Segment(f, s, a, l, w, t, p, k));
    prop_oneof![
        12 => segment,
        4 => (1..4_000u32, prop::bool::weighted(0.1)).prop_map(|(l, f)| Op::Sent(l, f)),
        3 => (0..100_000u32).prop_map(Op::Posted),
        1 => (0..2_000u32).prop_map(Op::Blocked),
        4 => Just(Op::Expire),
        2 => (0..5_000u64).prop_map(Op::Wait),
        1 => Just(Op::Shutdown),
        1 => prop::sample::select(vec![Op::Release, Op::Abort]),
        1 => (0..6u8, near(), any::<u16>()).prop_map(|(k, s, m)| Op::Icmp(k, s, m)),
        1 => (0..8u8).prop_map(Op::Option),
    ]
}

/// The bench with a memory: what is parked, what was promised.
struct Watch {
    rig: Rig,
    /// First byte and length of what is parked.
    parked: HashMap<u32, (Seq, u32)>,
    next_park: u32,
    right_edge: Option<Seq>,
    room: u32,
    posted: Option<Seq>,
    fin_sent: bool,
    shut: bool,
    released: bool,
}

impl Watch {
    fn look(&mut self) {
        for command in self.rig.take() {
            match command {
                Command::Place { park, seq, skip, len } => {
                    let (start, held) = self.parked.remove(&park.0).expect("settled once");
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
                Command::Release => {
                    assert!(!self.released, "released twice");
                    self.released = true;
                }
                Command::Fin => assert!(!core::mem::replace(&mut self.shut, true), "one FIN"),
                _ => assert!(!self.released, "a command after the end: {command:?}"),
            }
        }
        let info = self.rig.info();
        assert!(info.snd_una.before_eq(info.snd_nxt));
        assert_eq!(self.released, self.rig.tcb.is_closed());
        assert_eq!(info.parked as usize, self.parked.len());
        let live = !matches!(info.state, State::Closed | State::TimeWait);
        if live && info.snd_una != info.snd_nxt {
            assert!(self.rig.tcb.deadline().is_some(), "something in flight and no timer");
        }
        if info.state == State::TimeWait {
            assert!(self.rig.tcb.deadline().is_some(), "TIME-WAIT ends");
        }
    }

    fn segment(&mut self, op: &Op) -> (Segment, Placement) {
        let &Op::Segment(flags, seq, ack, len, wnd, val, way, block) = op else { unreachable!() };
        let info = self.rig.info();
        let mut sack = SackBlocks::new();
        if let Some((from, len)) = block {
            let start = Seq(info.snd_una.0.wrapping_add_signed(from));
            sack.push(start, start + len);
        }
        let mut s = seg(
            Flags(flags),
            Seq(info.rcv_nxt.0.wrapping_add_signed(seq)),
            Seq(info.snd_nxt.0.wrapping_add_signed(ack)),
            len,
        );
        s.wnd = wnd;
        s.sack = sack;
        s.urgent = wnd;
        s.ce = wnd & 7 == 0;
        s.timestamps = val.map(|v| ts_at(v).0).and_then(|v| ts(v, 77));
        s.syn.mss = (wnd & 1 == 0).then_some(wnd);
        let size = len.clamp(1, 1_460) as u16;
        s.lengths = Lengths { len, size, count: (len.div_ceil(u32::from(size))).max(1) as u16 };
        let plain = s.flags.without(Flags::PSH) == Flags::ACK && info.state.is_synchronized();
        let placement = match way {
            _ if len == 0 => Placement::Empty,
            0 => Placement::Empty,
            1 if plain => {
                // The Streamer places only what lies in the posted window.
                let room = self.posted.unwrap_or(info.rcv_nxt);
                let fits = s.end().before_eq(room)
                    && s.end().since(info.rcv_nxt) < 1 << 20
                    && s.seq.since(info.rcv_nxt) > -(1 << 20);
                if !fits {
                    self.park(&s)
                } else if s.seq.before_eq(info.rcv_nxt) {
                    let end = s.end().latest(info.rcv_nxt);
                    Placement::Placed { rcv_nxt: end, new_bytes: end.since(info.rcv_nxt) as u32 }
                } else {
                    Placement::Placed { rcv_nxt: info.rcv_nxt, new_bytes: len }
                }
            }
            _ => self.park(&s),
        };
        (s, placement)
    }

    fn park(&mut self, s: &Segment) -> Placement {
        self.next_park += 1;
        let start = if s.flags.contains(Flags::SYN) { s.seq + 1 } else { s.seq };
        self.parked.insert(self.next_park, (start, s.lengths.len));
        Placement::Parked(ParkId(self.next_park))
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Segment(..) => {
                let (s, placement) = self.segment(op);
                self.rig.arrive_as(&s, placement);
            }
            Op::Sent(len, fin) => {
                let info = self.rig.info();
                let may = info.state.is_synchronized() && info.state != State::TimeWait && !self.fin_sent;
                if may && (!self.shut || fin) {
                    self.rig.snd_nxt = info.snd_nxt;
                    let fin = fin && self.shut;
                    self.fin_sent = fin;
                    if fin {
                        self.rig.sent_fin()
                    } else {
                        self.rig.sent(len)
                    };
                }
            }
            Op::Posted(more) => {
                let info = self.rig.info();
                let edge = self.posted.unwrap_or(info.rcv_nxt).latest(info.rcv_nxt) + more;
                if info.state.is_synchronized() && edge.since(info.rcv_nxt) < 1 << 22 {
                    self.posted = Some(edge);
                    self.rig.call(|t, cx, out| t.on_posted(cx, edge, out));
                }
            }
            Op::Blocked(queued) => self.rig.call(|t, cx, out| t.on_blocked(cx, queued, out)),
            Op::Expire => {
                if self.rig.tcb.deadline().is_some() {
                    self.rig.expire();
                }
            }
            Op::Wait(ms) => {
                self.rig.after(Duration::from_millis(ms));
                self.rig.call(|t, cx, out| t.on_deadline(cx, out));
            }
            Op::Shutdown => self.rig.call(|t, cx, out| t.shutdown(cx, out)),
            Op::Release => self.rig.call(|t, cx, out| t.release(cx, out)),
            Op::Abort => self.rig.call(|t, cx, out| t.abort(cx, out)),
            Op::Icmp(kind, at, mtu) => {
                let seq = Seq(self.rig.info().snd_una.0.wrapping_add_signed(at));
                let kind = [
                    IcmpKind::TooBig { mtu },
                    IcmpKind::TooBig { mtu: 0 },
                    IcmpKind::PortUnreachable,
                    IcmpKind::HostUnreachable,
                    IcmpKind::NetworkUnreachable,
                    IcmpKind::TimeExceeded,
                ][usize::from(kind)];
                self.rig.call(|t, cx, out| t.on_icmp(cx, &IcmpError { seq, kind }, out));
            }
            Op::Option(which) => {
                let option = [
                    SocketOption::NoDelay(true),
                    SocketOption::Cork(true),
                    SocketOption::KeepAlive(Some(KeepAlive {
                        idle: Duration::from_millis(300),
                        ..KeepAlive::default()
                    })),
                    SocketOption::KeepAlive(None),
                    SocketOption::UserTimeout(Some(Duration::from_secs(3))),
                    SocketOption::UserTimeout(None),
                    SocketOption::QuickAck(true),
                    SocketOption::Linger2(Some(Duration::from_secs(1))),
                ][usize::from(which)];
                self.rig.call(|t, cx, out| t.set_option(cx, option, out));
            }
        }
    }
}

/// TSvals near the one that the SYN carried.
fn ts_at(offset: i32) -> Seq {
    Seq(5_000u32.wrapping_add_signed(offset))
}

fn watch(start: u8, room: u32) -> Watch {
    let config = Config { ecn: start & 1 == 0, unposted_window: 20_000, ..Config::default() };
    let open = Open { rcv_space: room, ..open() };
    let mut peer = syn(Flags::SYN, Seq(0));
    peer.timestamps = if start & 2 == 0 { ts(5_000, 0) } else { None };
    peer.syn.sack_permitted = start & 4 == 0;
    peer.syn.window_scale = (start & 8 == 0).then_some(7);
    let mut rig = if start & 16 == 0 {
        Rig::with(config, |cx, out| Tcb::accept(cx, &peer, &open, out))
    } else {
        Rig::with(config, |cx, out| Tcb::connect(cx, &open, out))
    };
    if start & 32 == 0 {
        // Most runs begin with an open connection.
        let mut answer = if start & 16 == 0 { seg(Flags::ACK, RCV, SND, 0) } else { syn(SYN_ACK, SND) };
        answer.timestamps = peer.timestamps;
        answer.syn = peer.syn;
        rig.arrive(&answer);
        assert_eq!(rig.tcb.state(), State::Established);
    }
    Watch {
        rig,
        parked: HashMap::new(),
        next_park: 0,
        right_edge: None,
        room,
        posted: None,
        fin_sent: false,
        shut: false,
        released: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_breaks_a_connection(start in 0..64u8, room in prop_oneof![Just(0u32), 1..100_000u32], ops in prop::collection::vec(op(), 1..60)) {
        let mut watch = watch(start, room);
        watch.look();
        for op in &ops {
            watch.run(op);
            watch.look();
        }
        watch.run(&Op::Abort);
        watch.look();
        prop_assert!(watch.parked.is_empty(), "each payload is settled in the end: {:?}", watch.parked);
    }
}
