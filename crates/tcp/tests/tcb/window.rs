//! Windows: ours, and the peer's.

use crate::rig::*;
use baton_tcp::command::Command;
use baton_tcp::options::SocketOption;
use baton_wire::seq::Seq;
use baton_wire::tcp::Flags;

fn edges(commands: &[Command]) -> Vec<Seq> {
    commands
        .iter()
        .filter_map(|c| if let Command::Receive { right_edge, .. } = c { Some(*right_edge) } else { None })
        .collect()
}

fn post(rig: &mut Rig, edge: Seq) -> Vec<Command> {
    rig.take();
    rig.call(|t, cx, out| t.on_posted(cx, edge, out));
    rig.take()
}

// tests: MUST-39, SHLD-14
#[test]
fn the_right_edge_moves_by_whole_segments() {
    let mut rig = Rig::established();
    let edge = RCV + (1 << 16);
    rig.placed(&seg(Flags::ACK, RCV, SND, 1 << 16), edge);
    assert_eq!(post(&mut rig, edge + 1), [], "one byte is not worth a window");
    assert_eq!(post(&mut rig, edge + 1_459), []);
    let out = post(&mut rig, edge + 1_460);
    assert_eq!(edges(&out), [edge + 1_460]);
    assert_eq!(acks(&out), [edge], "the peer was stopped: tell it");
    assert_eq!(edges(&post(&mut rig, edge + 100)), [], "and it never moves back");
}

#[test]
fn a_wide_window_is_not_announced_for_its_own_sake() {
    let mut rig = Rig::established();
    rig.placed(&seg(Flags::ACK, RCV, SND, 10_000), RCV + 10_000);
    let out = post(&mut rig, RCV + 10_000 + (1 << 16));
    assert_eq!((edges(&out), acks(&out)), (vec![RCV + 75_536], vec![]));
}

/// Room reported along with a segment that calls for no answer is announced all the same.
#[test]
fn a_window_that_opens_beside_an_acknowledgment_is_told() {
    let mut rig = Rig::established();
    let edge = RCV + (1 << 16);
    rig.placed(&seg(Flags::ACK, RCV, SND, 1 << 16), edge);
    rig.take();
    rig.call(|t, cx, out| t.note_posted(cx, edge + 30_000, out));
    rig.arrive(&seg(Flags::ACK, edge, SND, 0));
    assert_eq!(rig.tcb.deadline(), Some(rig.now));
    assert_eq!(acks(rig.expire()), [edge]);
    assert_eq!(rig.tcb.deadline(), None);
}

// tests: MUST-1, REC-1
#[test]
fn windows_are_unsigned_and_scaled() {
    let mut rig = Rig::connecting(plain().with(|config| config.window_scaling = true));
    let mut answer = syn(SYN_ACK, SND);
    answer.syn.window_scale = Some(14);
    answer.wnd = 0xffff;
    rig.arrive(&answer);
    assert_eq!(rig.info().snd_wnd, 0xffff, "that of a SYN is not scaled");
    let mut ack = seg(Flags::ACK, RCV, SND, 0);
    ack.wnd = 0xffff;
    rig.arrive(&ack);
    assert_eq!(rig.info().snd_wnd, 0xffff << 14);
}

#[test]
fn an_acknowledgment_is_told_even_if_the_limit_stays() {
    let mut rig = Rig::established();
    let mut ack = seg(Flags::ACK, RCV, SND, 0);
    ack.wnd = 2_000;
    rig.arrive(&ack);
    rig.sent(2_000);
    rig.take();
    ack.ack = SND + 1_000;
    ack.wnd = 1_000;
    assert_eq!(transmit(rig.arrive(&ack)).map(|t| (t.snd_una, t.limit)), Some((SND + 1_000, SND + 2_000)));
}

/// RFC 9293 §3.10.7.4 fifth: SND.WL1.
#[test]
fn an_old_segment_does_not_change_the_window() {
    let mut rig = Rig::established();
    rig.call(|t, cx, out| t.set_option(cx, SocketOption::QuickAck(false), out));
    rig.sent(10);
    rig.placed(&seg(Flags::ACK, RCV, SND, 100), RCV + 100);
    let mut new = seg(Flags::ACK, RCV + 100, SND, 0);
    new.wnd = 40_000;
    rig.arrive(&new);
    // Overtaken, but its acknowledgment counts.
    let mut old = seg(Flags::ACK, RCV + 50, SND + 10, 0);
    old.wnd = 10;
    rig.arrive(&old);
    assert_eq!(rig.info().snd_una, SND + 10);
    assert_eq!(rig.info().snd_wnd, 40_000);
    (new.wnd, new.ack) = (39_000, SND + 10);
    rig.arrive(&new);
    assert_eq!(rig.info().snd_wnd, 39_000, "the same sequence number counts");
}
