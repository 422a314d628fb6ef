//! Going without checksums (LA §4.2): who asks, who grants, and what brings them back.

use crate::rig::*;
use baton_tcp::command::Command;
use baton_tcp::config::Config;
use baton_tcp::handshake::Open;
use baton_tcp::isn::Key;
use baton_tcp::listen::{Arrival, Disposition, Listener};
use baton_tcp::manner::Manner;
use baton_tcp::path::Path;
use baton_tcp::tcb::Tcb;
use baton_tcp::time::Duration;
use baton_wire::addr::{Addr, Tuple};
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

fn wanting() -> Config {
    plain().with(|config| config.unsummed = true)
}

fn on_link(on_link: bool) -> Open {
    Open { path: Path { on_link, ..open().path }, ..open() }
}

/// The SYNs' word about it, among the commands.
fn said(commands: &[Command]) -> Vec<bool> {
    let syn = |c: &Command| if let Command::Control { syn: Some(syn), .. } = c { Some(syn.unsummed) } else { None };
    commands.iter().filter_map(syn).collect()
}

fn synchronized(commands: &[Command]) -> Option<bool> {
    commands.iter().find_map(|c| if let Command::Synchronized(s) = c { Some(s.unsummed) } else { None })
}

fn asking(flags: Flags, ack: Seq, unsummed: bool) -> baton_tcp::segment::Segment {
    let mut segment = syn(flags, ack);
    segment.syn.unsummed = unsummed;
    segment
}

/// An opener on the same link, to whom it was granted.
fn granted(config: Config) -> Rig {
    let mut rig = Rig::with(config, |cx, out| Tcb::connect(cx, &on_link(true), out));
    rig.after(Duration::from_millis(50));
    rig.arrive(&asking(SYN_ACK, SND, true));
    rig.after(Duration::from_secs(1)).take();
    rig
}

#[test]
fn both_have_to_want_it_and_no_router_may_be_between() {
    for row in 0..8 {
        let (ours, direct, theirs) = (row & 1 != 0, row & 2 != 0, row & 4 != 0);
        let config = plain().with(|config| config.unsummed = ours);
        let mut rig = Rig::with(config.clone(), |cx, out| Tcb::connect(cx, &on_link(direct), out));
        assert_eq!(said(&rig.take()), [ours && direct], "{row}");
        let out = rig.arrive(&asking(SYN_ACK, SND, theirs)).to_vec();
        assert_eq!(synchronized(&out), Some(row == 7), "{row}");
        assert_eq!(transmit(&out).map(|t| t.manner.has(Manner::SUMMED)), Some(row != 7), "{row}");

        let asked = asking(Flags::SYN, Seq(0), theirs);
        let mut rig = Rig::with(config, |cx, out| Tcb::accept(cx, &asked, &on_link(direct), out));
        assert_eq!(said(&rig.take()), [row == 7], "{row}");
        let out = rig.arrive(&seg(Flags::ACK, RCV, SND, 0)).to_vec();
        assert_eq!(synchronized(&out), Some(false), "only its segments tell that the opener heard of it");
        assert_eq!(transmit(&out).map(|t| t.manner.has(Manner::SUMMED)), Some(row != 7), "{row}");
    }
}

#[test]
fn a_third_syn_does_not_ask_and_a_late_grant_counts_for_nothing() {
    let mut rig = Rig::with(wanting(), |cx, out| Tcb::connect(cx, &on_link(true), out));
    rig.take();
    assert_eq!(said(rig.expire()), [true], "the first may have waited for the link");
    assert_eq!(said(rig.expire()), [false], "somebody may drop SYNs with options that he does not know");
    let out = rig.arrive(&asking(SYN_ACK, SND, true)).to_vec();
    assert_eq!((synchronized(&out), transmit(&out).map(|t| t.manner.has(Manner::SUMMED))), (Some(false), Some(true)));
}

#[test]
fn a_third_syn_ack_grants_nothing() {
    let asked = asking(Flags::SYN, Seq(0), true);
    let mut rig = Rig::with(wanting(), |cx, out| Tcb::accept(cx, &asked, &on_link(true), out));
    assert_eq!(said(&rig.take()), [true]);
    assert_eq!([said(rig.expire()), said(rig.expire())], [[true], [false]]);
}

#[test]
fn syns_that_cross_agree_on_nothing() {
    let mut rig = Rig::with(wanting(), |cx, out| Tcb::connect(cx, &on_link(true), out));
    rig.take();
    assert_eq!(said(rig.arrive(&asking(Flags::SYN, Seq(0), true))), [false]);
    let out = rig.arrive(&asking(SYN_ACK, SND, true)).to_vec();
    assert_eq!((synchronized(&out), transmit(&out).map(|t| t.manner.has(Manner::SUMMED))), (Some(false), Some(true)));
}

#[test]
fn a_cookie_grants_nothing() {
    let config = Config::default().with(|config| config.unsummed = true);
    let tuple =
        Tuple { local: Addr::v4([10, 0, 0, 1]), remote: Addr::v4([10, 0, 0, 2]), local_port: 80, remote_port: 4000 };
    let (key, path) = (Key([9; 16]), on_link(true).path);
    let now = Rig::connecting(plain()).now;
    let arrival = Arrival { now, config: &config, key: &key, tuple: &tuple, path };
    for timestamps in [None, ts(7, 0)] {
        let asked = baton_tcp::segment::Segment { timestamps, ..asking(Flags::SYN, Seq(0), true) };
        let mut listener = Listener::new(0);
        let Disposition::Cookie { reply, ts_val } = listener.handle_segment(&arrival, &asked) else {
            panic!("a cookie")
        };
        assert_eq!(said(&[reply]), [false]);
        let Command::Control { seq, .. } = reply else { panic!("{reply:?}") };
        let mut ack = seg(Flags::ACK, RCV, seq + 1, 0);
        ack.timestamps = timestamps.and(ts(8, ts_val));
        let Disposition::Established(cookie) = listener.handle_segment(&arrival, &ack) else { panic!("it came back") };
        let rig = Rig::with(config.clone(), |cx, out| Tcb::from_cookie(cx, &ack, &cookie, &on_link(true), out));
        assert_eq!(
            (synchronized(&rig.out), transmit(&rig.out).map(|t| t.manner.has(Manner::SUMMED))),
            (Some(false), Some(true))
        );
    }
}

#[test]
fn a_second_timeout_in_a_row_brings_checksums_back_for_good() {
    let mut rig = granted(wanting());
    rig.sent(1000);
    rig.take();
    assert_eq!(transmit(rig.expire()).map(|t| t.manner.has(Manner::SUMMED)), Some(false), "one loss proves nothing");
    let out = rig.expire().to_vec();
    assert_eq!(transmit(&out).map(|t| t.manner.has(Manner::SUMMED)), Some(true));
    let told = out.iter().position(|c| matches!(c, Command::Transmit(t) if t.manner.has(Manner::SUMMED)));
    let again = out.iter().position(|c| matches!(c, Command::Retransmit { .. }));
    assert!(told < again && again.is_some(), "{out:?}");
    rig.take();
    let out = rig.arrive(&seg(Flags::ACK, RCV, SND + 1000, 0)).to_vec();
    assert_eq!(transmit(&out).map(|t| t.manner.has(Manner::SUMMED)), Some(true));
}

#[test]
fn probes_that_nobody_answers_bring_checksums_back() {
    let mut rig = granted(wanting());
    let mut closed = seg(Flags::ACK, RCV, SND, 0);
    closed.wnd = 0;
    rig.arrive(&closed);
    rig.call(|t, cx, out| t.on_blocked(cx, 10_000, out));
    rig.take();
    let mut probes = 0;
    let told = loop {
        let out = rig.expire().to_vec();
        probes += controls(&out).len();
        if let Some(context) = transmit(&out) {
            assert!(matches!(out.last(), Some(Command::Control { .. })), "told before the probe: {out:?}");
            break context;
        }
    };
    assert!(told.manner.has(Manner::SUMMED));
    assert_eq!(probes, 3);
}

#[test]
fn a_silent_peer_is_asked_with_checksums_in_the_end() {
    use baton_tcp::options::{KeepAlive, SocketOption};
    let mut rig = granted(wanting());
    let keep = KeepAlive { idle: Duration::from_secs(10), interval: Duration::from_secs(1), probes: 5 };
    rig.call(|t, cx, out| t.set_option(cx, SocketOption::KeepAlive(Some(keep)), out));
    rig.take();
    let mut summed = Vec::new();
    while summed.len() < 5 {
        let out = rig.expire().to_vec();
        if !controls(&out).is_empty() {
            summed.push(transmit(&out).is_some_and(|t| t.manner.has(Manner::SUMMED)));
        }
    }
    assert_eq!(summed, [false, false, true, false, false], "told once, before the third");
}

#[test]
fn what_moves_to_another_stack_goes_with_checksums() {
    let mut rig = granted(wanting());
    let snapshot = rig.call(|t, cx, out| t.suspend(cx, out)).expect("it may leave");
    let rig = Rig::with(wanting(), |cx, out| Tcb::adopt(cx, &snapshot, 1500, out).expect("consistent"));
    assert_eq!(
        (synchronized(&rig.out), transmit(&rig.out).map(|t| t.manner.has(Manner::SUMMED))),
        (Some(false), Some(true))
    );
}
