//! How a connection tells the Streamer of losses: what the sender decides comes
//! out as commands, in the same call.

use crate::rig::{RCV, Rig, SND, plain, retransmits, seg, transmit};
use baton_tcp::time::Duration;
use baton_wire::tcp::Flags;

const MSS: u32 = 1460;

#[test]
fn three_duplicates_bring_a_repeat_and_no_new_data_before_it() {
    // tests: MUST-19
    let mut rig = Rig::established();
    rig.sent(10 * MSS);
    rig.after(Duration::from_millis(50));
    for n in 1..=2 {
        let out = rig.arrive(&seg(Flags::ACK, RCV, SND, 0)).to_vec();
        assert_eq!(retransmits(&out), []);
        // RFC 3042: a duplicate lets a new segment go.
        assert_eq!(transmit(&out).map(|t| t.limit), Some(SND + (10 + n) * MSS));
    }
    let out = rig.arrive(&seg(Flags::ACK, RCV, SND, 0)).to_vec();
    assert_eq!(retransmits(&out), [(SND, SND + MSS)]);
    assert!(transmit(&out).is_some_and(|t| !t.limit.after(SND + 10 * MSS)));
}

#[test]
fn what_repeats_leave_of_the_window_is_told_at_once() {
    let mut rig = Rig::established();
    rig.sent(2 * MSS);
    let out = rig.expire().to_vec();
    assert_eq!(retransmits(&out), [(SND, SND + MSS)]);
    rig.after(Duration::from_millis(50));
    let out = rig.arrive(&seg(Flags::ACK, RCV, SND + MSS, 0)).to_vec();
    assert_eq!(retransmits(&out), [(SND + MSS, SND + 2 * MSS)]);
    assert_eq!(transmit(&out).map(|t| t.limit), Some(SND + 3 * MSS), "cwnd is two segments, one is out");
}

#[test]
fn a_sack_hole_is_repeated_in_the_call_that_shows_it() {
    let mut rig = Rig::established_with(plain().with(|config| config.sack = true));
    // The peer did not offer SACK: no block is believed.
    rig.sent(10 * MSS);
    let mut ack = seg(Flags::ACK, RCV, SND, 0);
    ack.sack.push(SND + MSS, SND + 9 * MSS);
    assert_eq!(retransmits(rig.arrive(&ack)), []);

    let mut rig = sack_rig();
    rig.sent(10 * MSS);
    rig.after(Duration::from_millis(50));
    assert_eq!(retransmits(rig.arrive(&ack)), [(SND, SND + MSS)]);
    assert_eq!(rig.info().sender.sacked, 8 * MSS);
}

/// A connection whose peer sends SACK blocks.
fn sack_rig() -> Rig {
    let mut rig = Rig::connecting(plain().with(|config| config.sack = true));
    rig.after(Duration::from_millis(50));
    let mut syn = crate::rig::syn(crate::rig::SYN_ACK, SND);
    syn.syn.sack_permitted = true;
    rig.arrive(&syn);
    rig.out.clear();
    rig
}

#[test]
fn a_lost_tail_is_probed_before_it_times_out() {
    let mut rig = sack_rig();
    rig.sent(4 * MSS);
    let sent_at = rig.now;
    let out = rig.expire().to_vec();
    assert_eq!(rig.now.since(sent_at), Duration::from_millis(100), "twice the RTT of 50 ms");
    assert_eq!(retransmits(&out), [(SND + 3 * MSS, SND + 4 * MSS)]);
    assert_eq!(rig.info().sender.retransmits, 0);
}
