//! LISTEN and SYN cookies.

use crate::rig::*;
use baton_tcp::command::Command;
use baton_tcp::config::Config;
use baton_tcp::cookie::TICK;
use baton_tcp::isn::Key;
use baton_tcp::listen::{Arrival, Disposition, Listener};
use baton_tcp::path::Path;
use baton_tcp::segment::Segment;
use baton_tcp::state::State;
use baton_tcp::tcb::Tcb;
use baton_tcp::time::{Duration, Instant};
use baton_wire::addr::{Addr, Tuple};
use baton_wire::seq::{Seq, WindowScale};
use baton_wire::tcp::Flags;

const KEY: Key = Key([9; 16]);
const PATH: Path = Path { mtu: 1500, ipv6: false, on_link: false };

fn tuple() -> Tuple {
    Tuple { local: Addr::v4([10, 0, 0, 1]), remote: Addr::v4([10, 0, 0, 2]), local_port: 80, remote_port: 4000 }
}

fn decide(listener: &mut Listener, now: Instant, config: &Config, seg: &Segment) -> Disposition {
    listener.handle_segment(&Arrival { now, config, key: &KEY, tuple: &tuple(), path: PATH }, seg)
}

/// RFC 9293 §3.10.7.2.
#[test]
fn what_a_listener_makes_of_a_segment() {
    let config = Config::default();
    let now = Instant(1 << 40);
    let mut listener = Listener::new(1);
    let mut decide = |s| decide(&mut listener, now, &config, &s);
    assert_eq!(decide(seg(Flags::RST, IRS, Seq(0), 0)), Disposition::Ignore);
    assert_eq!(decide(seg(Flags::SYN | Flags::RST, IRS, Seq(0), 0)), Disposition::Ignore);
    assert_eq!(decide(seg(Flags::NONE, IRS, Seq(0), 9)), Disposition::Ignore);
    assert_eq!(decide(syn(Flags::SYN | Flags::FIN, Seq(0))), Disposition::Ignore, "as Linux");
    for flags in [Flags::ACK, SYN_ACK] {
        let Disposition::Reset(reset) = decide(seg(flags, IRS, Seq(55), 0)) else { panic!("{flags:?}") };
        assert_eq!(controls(&[reset]), [(Flags::RST, Seq(55), Seq(0))]);
    }
    assert_eq!(decide(syn(Flags::SYN, Seq(0))), Disposition::Accept);
    assert!(matches!(decide(syn(Flags::SYN, Seq(0))), Disposition::Cookie { .. }), "the backlog is full");
}

#[test]
fn the_backlog_empties() {
    let config = Config::default();
    let mut listener = Listener::new(1);
    assert_eq!(decide(&mut listener, Instant(0), &config, &syn(Flags::SYN, Seq(0))), Disposition::Accept);
    assert_eq!(listener.half_open(), 1);
    listener.on_half_open_done();
    assert_eq!(decide(&mut listener, Instant(0), &config, &syn(Flags::SYN, Seq(0))), Disposition::Accept);
}

fn cookie(listener: &mut Listener, now: Instant, config: &Config, syn: &Segment) -> (Seq, Option<u32>) {
    let Disposition::Cookie { reply, ts_val } = decide(listener, now, config, syn) else { panic!("a cookie") };
    let Command::Control { flags, seq, ack, ts_ecr, .. } = reply else { panic!("{reply:?}") };
    assert_eq!((flags, ack, ts_ecr), (SYN_ACK, syn.seq + 1, syn.timestamps.map(|t| t.val)));
    (seq, ts_ecr.map(|_| ts_val))
}

fn answer(iss: Seq, ts_val: Option<u32>) -> Segment {
    let mut ack = seg(Flags::ACK, RCV, iss + 1, 0);
    ack.timestamps = ts_val.and_then(|val| ts(501, val));
    ack
}

#[test]
fn a_cookie_brings_everything_back() {
    let config = Config::default();
    let now = Instant(0) + Duration::from_secs(5_000);
    let mut listener = Listener::new(0);
    let mut full = syn(Flags::SYN, Seq(0));
    full.syn.window_scale = Some(9);
    full.syn.sack_permitted = true;
    full.timestamps = ts(500, 0);
    let (iss, ts_val) = cookie(&mut listener, now, &config, &full);
    let later = now + Duration::from_millis(40);
    let back = answer(iss, ts_val);
    let Disposition::Established(decoded) = decide(&mut listener, later, &config, &back) else { panic!() };
    assert_eq!((decoded.iss, decoded.irs), (iss, IRS));
    let open = baton_tcp::handshake::Open { ts_offset: KEY.ts_offset(&tuple()), ..open() };
    let mut rig = Rig::with(config, |cx, out| {
        cx.now = later;
        Tcb::from_cookie(cx, &back, &decoded, &open, out)
    });
    assert!(matches!(rig.out[0], Command::Synchronized(s) if s.snd_nxt == iss + 1 && s.rcv_nxt == RCV && s.sack));
    let info = rig.info();
    assert_eq!(info.state, State::Established);
    assert_eq!((info.snd_wscale, info.sack, info.timestamps), (Some(WindowScale::new(9)), true, true));
    assert_eq!(info.snd_mss, 1460 - 12);
    assert_eq!(info.snd_wnd, u32::from(WND) << 9);
    assert!(ts_val.is_some_and(|val| Seq(val).before_eq(Seq(now.timestamp_ms().wrapping_add(open.ts_offset)))));
}

#[test]
fn without_timestamps_a_cookie_brings_the_mss_back() {
    let config = Config::default();
    for (mss, kept) in [(1460, 1460), (1459, 1452), (536, 536), (9_000, 8_940), (100, 216)] {
        let now = Instant(0) + Duration::from_secs(5_000);
        let mut listener = Listener::new(0);
        let mut offer = syn(Flags::SYN, Seq(0));
        offer.syn.mss = Some(mss);
        offer.syn.window_scale = Some(9);
        let (iss, _) = cookie(&mut listener, now, &config, &offer);
        let back = answer(iss, None);
        let Disposition::Established(decoded) = decide(&mut listener, now, &config, &back) else { panic!() };
        let jumbo = baton_tcp::handshake::Open { path: Path { mtu: 9_018, ipv6: false, on_link: false }, ..open() };
        let mut rig = Rig::with(config.clone(), |cx, out| Tcb::from_cookie(cx, &back, &decoded, &jumbo, out));
        assert_eq!((rig.info().snd_mss, rig.info().snd_wscale), (kept, None));
    }
}

#[test]
fn a_cookie_is_good_for_two_ticks_and_for_nothing_else() {
    let config = Config::default();
    let now = Instant(100 * TICK.0);
    let mut listener = Listener::new(0);
    let (iss, _) = cookie(&mut listener, now, &config, &syn(Flags::SYN, Seq(0)));
    let mut good = |at, s: &Segment| matches!(decide(&mut listener, at, &config, s), Disposition::Established(_));
    assert!(good(now, &answer(iss, None)));
    assert!(good(Instant(102 * TICK.0 - 1), &answer(iss, None)));
    assert!(!good(Instant(102 * TICK.0), &answer(iss, None)));
    assert!(!good(now, &answer(iss + 1, None)));
    assert!(!good(now, &seg(Flags::ACK, RCV + 1, iss + 1, 0)));
    assert!(!good(now, &seg(SYN_ACK, RCV, iss + 1, 0)));
    let mut idle = Listener::new(0);
    assert!(
        matches!(decide(&mut idle, now, &config, &answer(iss, None)), Disposition::Reset(_)),
        "who sent no cookie lately, takes none"
    );
}

/// The first data of a cookie's connection is repeated like any other.
#[test]
fn a_connection_from_a_cookie_retransmits() {
    let config = plain();
    let now = Instant(0) + Duration::from_secs(5_000);
    let mut listener = Listener::new(0);
    let (iss, _) = cookie(&mut listener, now, &config, &syn(Flags::SYN, Seq(0)));
    let back = answer(iss, None);
    let Disposition::Established(decoded) = decide(&mut listener, now, &config, &back) else { panic!() };
    let mut rig = Rig::with(config, |cx, out| Tcb::from_cookie(cx, &back, &decoded, &open(), out));
    rig.snd_nxt = iss + 1;
    rig.sent(100);
    rig.take();
    assert_eq!(retransmits(rig.expire()), [(iss + 1, iss + 101)]);
}
