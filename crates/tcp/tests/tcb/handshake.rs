//! Opening: active, passive, both at once; what the SYNs say.

use crate::rig::*;
use baton_tcp::command::{CloseReason, Command, Notice, SynReply};
use baton_tcp::config::Config;
use baton_tcp::handshake::Open;
use baton_tcp::path::Path;
use baton_tcp::segment::SynOptions;
use baton_tcp::state::State;
use baton_tcp::tcb::Tcb;
use baton_tcp::time::Duration;
use baton_wire::seq::{Seq, WindowScale};
use baton_wire::tcp::Flags;

fn syn_of(commands: &[Command]) -> (Flags, Seq, Seq, u16, SynReply, Option<u32>) {
    match commands {
        [Command::Control { flags, seq, ack, wnd, syn: Some(syn), ts_ecr }] => {
            (*flags, *seq, *ack, *wnd, *syn, *ts_ecr)
        }
        other => panic!("one SYN: {other:?}"),
    }
}

// tests: MUST-14, MUST-65, MAY-3
#[test]
fn our_syn_offers_everything() {
    let rig = Rig::connecting(Config::default().with(|config| config.ecn = true));
    let (flags, seq, _, wnd, reply, ts_ecr) = syn_of(&rig.out);
    assert_eq!((flags, seq), (Flags::SYN | Flags::ECE | Flags::CWR, ISS));
    assert_eq!(
        reply,
        SynReply { mss: 1460, window_scale: Some(WindowScale::new(7)), sack_permitted: true, unsummed: false }
    );
    assert_eq!((wnd, ts_ecr), (0xffff, Some(0)));
}

// tests: MUST-14
#[test]
fn our_syn_ack_confirms_only_what_was_offered() {
    let (flags, seq, ack, _, reply, ts_ecr) = syn_of(&Rig::answering(Config::default()).out);
    assert_eq!((flags, seq, ack), (SYN_ACK, ISS, RCV));
    assert_eq!(reply, SynReply { mss: 1460, window_scale: None, sack_permitted: false, unsummed: false });
    assert_eq!(ts_ecr, None);
    let mut offer = syn(Flags::SYN | Flags::ECE | Flags::CWR, Seq(0));
    offer.syn = SynOptions { mss: Some(1400), window_scale: Some(20), sack_permitted: true, unsummed: false };
    offer.timestamps = ts(4_242, 0);
    let config = Config::default().with(|config| config.ecn = true);
    let mut rig = Rig::with(config, |cx, out| Tcb::accept(cx, &offer, &open(), out));
    let (flags, _, _, _, reply, ts_ecr) = syn_of(&rig.out);
    assert_eq!(flags, SYN_ACK | Flags::ECE);
    assert_eq!(
        reply,
        SynReply { mss: 1460, window_scale: Some(WindowScale::new(7)), sack_permitted: true, unsummed: false }
    );
    assert_eq!(ts_ecr, Some(4_242));
    let info = rig.info();
    assert_eq!(info.snd_wscale, Some(WindowScale::new(14)), "clamped (RFC 7323 §2.3)");
    assert_eq!(info.snd_mss, 1388);
}

// tests: MUST-15, MUST-16
#[test]
fn effective_mss_is_the_least_of_peer_path_and_options() {
    let rows = [
        (None, 1500, false, false, 536),
        (None, 1500, true, false, 1220),
        (Some(1460), 1500, false, false, 1460),
        (Some(1460), 1500, false, true, 1448),
        (Some(8960), 1500, false, false, 1460),
        (Some(536), 9000, false, false, 536),
        (Some(1), 9000, false, false, 48),
    ];
    for (mss, mtu, ipv6, timestamps, expected) in rows {
        let mut offer = syn(Flags::SYN, Seq(0));
        offer.syn.mss = mss;
        offer.timestamps = if timestamps { ts(1, 0) } else { None };
        let open = Open { path: Path { mtu, ipv6, on_link: false }, ..open() };
        let mut rig = Rig::with(Config::default(), |cx, out| Tcb::accept(cx, &offer, &open, out));
        assert_eq!(rig.info().snd_mss, expected, "{mss:?} {mtu} {ipv6} {timestamps}");
    }
}

#[test]
fn an_active_open_completes() {
    let mut rig = Rig::connecting(plain());
    rig.after(Duration::from_millis(30)).take();
    let out = rig.arrive(&syn(SYN_ACK, SND)).to_vec();
    let Some(Command::Synchronized(s)) = out.first() else { panic!("{out:?}") };
    assert_eq!((s.snd_nxt, s.rcv_nxt, s.ts_recent, s.sack), (SND, RCV, None, false));
    assert_eq!(rig.notices(), [Notice::Established]);
    assert_eq!(acks(&out), [RCV]);
    let t = transmit(&out).expect("a first transmit context");
    assert_eq!((t.snd_una, t.limit, t.mss, t.max_wnd), (SND, SND + 14_600, 1460, u32::from(WND)));
    assert_eq!(rig.info().sender.srtt, Duration::from_millis(30));
}

/// RFC 9293 §3.10.7.3, first and second.
#[test]
fn in_syn_sent_only_an_ack_of_our_syn_counts() {
    for ack in [ISS, ISS - 1, SND + 1] {
        let mut rig = Rig::connecting(plain());
        rig.take();
        assert_eq!(controls(rig.arrive(&syn(SYN_ACK, ack))), [(Flags::RST, ack, Seq(0))]);
        assert_eq!(rig.tcb.state(), State::SynSent);
        rig.take();
        assert!(rig.arrive(&seg(RST_ACK, Seq(0), ack, 0)).is_empty());
        assert_eq!(rig.tcb.state(), State::SynSent);
    }
    let mut rig = Rig::connecting(plain());
    rig.arrive(&seg(Flags::RST, Seq(0), Seq(0), 0));
    rig.arrive(&seg(Flags::ACK, Seq(0), SND, 0));
    assert_eq!(rig.tcb.state(), State::SynSent, "neither a reset without ACK nor an ACK without SYN");
}

// tests: RFC5961-3.2-4
#[test]
fn a_refusal_is_told() {
    let mut rig = Rig::connecting(plain());
    rig.take();
    rig.arrive(&seg(RST_ACK, Seq(0), SND, 0));
    assert_eq!(rig.take(), [Command::Notify(Notice::Closed(CloseReason::Refused)), Command::Detach, Command::Release]);
}

// tests: MUST-10
#[test]
fn both_open_at_once() {
    let mut rig = Rig::connecting(plain());
    rig.take();
    assert_eq!(controls(rig.arrive(&syn(Flags::SYN, Seq(0)))), [(SYN_ACK, ISS, RCV)]);
    rig.take();
    let out = rig.arrive(&syn(SYN_ACK, SND)).to_vec();
    assert_eq!(rig.tcb.state(), State::Established);
    assert!(matches!(out[0], Command::Synchronized(_)));
}

// tests: MUST-11
#[test]
fn syn_received_remembers_how_it_came_about() {
    // Passive: back to LISTEN, that is, gone without an error to anybody but a notice.
    let mut rig = Rig::answering(plain());
    rig.arrive(&seg(Flags::SYN, RCV + 7, Seq(0), 0));
    assert!(rig.tcb.is_closed());
    let mut rig = Rig::answering(plain());
    rig.arrive(&seg(Flags::RST, RCV, Seq(0), 0));
    assert_eq!(rig.notices(), [Notice::Closed(CloseReason::Reset)]);
    // Active: a SYN is challenged, a reset is a refusal.
    let active = || {
        let mut rig = Rig::connecting(plain());
        rig.arrive(&syn(Flags::SYN, Seq(0)));
        rig.after(Duration::from_millis(10)).take();
        rig
    };
    let mut rig = active();
    assert_eq!(controls(rig.arrive(&seg(Flags::SYN, RCV + 7, Seq(0), 0))), [(Flags::ACK, SND, RCV)]);
    assert_eq!(rig.tcb.state(), State::SynReceived);
    let mut rig = active();
    rig.arrive(&seg(Flags::RST, RCV, Seq(0), 0));
    assert_eq!(rig.notices(), [Notice::Closed(CloseReason::Refused)]);
}

#[test]
fn in_syn_received_a_wrong_ack_is_reset_and_a_repeated_syn_answered_again() {
    let mut rig = Rig::answering(plain());
    rig.take();
    assert_eq!(controls(rig.arrive(&seg(Flags::ACK, RCV, SND + 9, 0))), [(Flags::RST, SND + 9, Seq(0))]);
    rig.take();
    assert_eq!(controls(rig.arrive(&syn(Flags::SYN, Seq(0)))), [(SYN_ACK, ISS, RCV)]);
    assert_eq!(rig.tcb.state(), State::SynReceived);
}

// tests: MUST-22, MUST-23
#[test]
fn a_syn_is_repeated_for_three_minutes_and_more() {
    let mut rig = Rig::connecting(plain());
    let start = rig.now;
    let mut repeats = 0;
    while !rig.tcb.is_closed() {
        rig.take();
        repeats += controls(rig.expire()).iter().filter(|(f, s, _)| *f == Flags::SYN && *s == ISS).count();
    }
    assert_eq!(repeats, 7);
    assert!(rig.now.since(start) >= Duration::from_secs(180), "{:?}", rig.now.since(start));
    assert_eq!(rig.notices(), [Notice::Closed(CloseReason::TimedOut)]);
}

#[test]
fn a_syn_ack_is_repeated_and_then_forgotten() {
    let mut rig = Rig::answering(plain());
    rig.take();
    let mut repeats = 0;
    while !rig.tcb.is_closed() {
        repeats += controls(rig.expire()).iter().filter(|(f, ..)| *f == SYN_ACK).count();
    }
    assert_eq!(repeats, 5);
}

/// RFC 3168 §6.1.1.1.
#[test]
fn a_repeated_syn_asks_for_no_ecn() {
    let mut rig = Rig::connecting(plain().with(|config| config.ecn = true));
    rig.take();
    assert_eq!(controls(rig.expire()), [(Flags::SYN, ISS, Seq(0))]);
}

/// RFC 9293 §3.10.7.2 and §3.10.7.3: text that comes before the connection is open.
#[test]
fn text_beside_a_syn_waits_for_the_connection() {
    let mut rig = Rig::connecting(plain());
    rig.take();
    let mut early = syn(Flags::SYN, Seq(0));
    early.lengths = baton_tcp::segment::Lengths::single(100);
    let out = rig.parked(1, &early).to_vec();
    assert!(!out.iter().any(|c| matches!(c, Command::Place { .. } | Command::Drop { .. })), "{out:?}");
    rig.take();
    let out = rig.arrive(&seg(Flags::ACK, RCV + 100, SND, 0)).to_vec();
    assert_eq!(rig.tcb.state(), State::Established);
    let place = Command::Place { park: baton_tcp::segment::ParkId(1), seq: RCV, skip: 0, len: 100, rest: false };
    assert!(out.contains(&place), "{out:?}");
    assert_eq!(acks(&out), [RCV + 100]);
}
