//! Connections with one side closed can be moved too.

use std::net::Shutdown;
use std::thread::sleep;
use std::time::Duration;

use crate::common::{Pair, Wire, over_each_version, tcp_counter, wait_for};
use baton_tcp::state::State;
use baton_testkit::need_root;

/// Longer than an ACK is delayed.
fn settle() {
    sleep(Duration::from_millis(100));
}

#[test]
fn the_peer_has_closed() {
    need_root!();
    let wire = Wire::new(&[]);
    for ipv6 in [false, true] {
        for end_was_read in [false, true] {
            for busy in [false, true] {
                let mut pair = Pair::new(&wire, ipv6);
                pair.exchange(1_000);
                pair.leave_unread(5_000);
                pair.peer.shutdown(Shutdown::Write).unwrap();
                settle();
                if end_was_read {
                    pair.end_of_theirs();
                }
                if busy {
                    pair.fill_send_queue();
                }
                for _ in 0..2 {
                    let captured = wire.move_there_and_back(&pair.ours);
                    assert_eq!(captured.protocol.state, State::CloseWait);
                    assert_eq!(captured.protocol.unread_bytes() > 0, !end_was_read);
                }
                pair.end_of_theirs();
                wait_for("what we had written", || {
                    pair.out.read(&pair.peer).expect("we have not closed");
                    pair.out.read == pair.out.written
                });
                pair.finish_ours(3_000);
            }
        }
    }
    assert_eq!(wire.resets(), 0);
}

#[test]
fn we_have_closed_and_the_peer_knows() {
    need_root!();
    over_each_version(|wire, mut pair| {
        pair.out.write(&pair.ours, 3_000);
        pair.leave_unread(5_000);
        pair.ours.shutdown(Shutdown::Write).unwrap();
        settle();
        for _ in 0..2 {
            assert_eq!(wire.move_there_and_back(&pair.ours).protocol.state, State::FinWait2);
        }
        pair.end_of_ours();
        pair.finish_theirs(3_000);
    });
}

#[test]
fn we_have_closed_and_the_peer_has_not_said_that_it_knows() {
    need_root!();
    over_each_version(|wire, mut pair| {
        pair.leave_unread(5_000);
        wire.hold();
        pair.out.write(&pair.ours, 3_000);
        pair.ours.shutdown(Shutdown::Write).unwrap();
        settle();
        let captured = wire.move_there_and_back(&pair.ours);
        assert_eq!(captured.protocol.state, State::FinWait1);
        assert_eq!((captured.protocol.unacked_bytes(), captured.protocol.unsent_bytes()), (3_000, 0));
        pair.end_of_ours();
        pair.finish_theirs(3_000);
    });
}

#[test]
fn we_have_closed_behind_data_that_the_peer_has_no_room_for() {
    need_root!();
    over_each_version(|wire, mut pair| {
        pair.fill_send_queue();
        pair.ours.shutdown(Shutdown::Write).unwrap();
        settle();
        let mut last = None;
        for _ in 0..3 {
            let captured = wire.move_there_and_back(&pair.ours);
            assert_eq!(captured.protocol.state, State::FinWait1);
            assert!(captured.protocol.unsent_bytes() > 0, "{captured:?}");
            let write_seq = captured.protocol.write_seq;
            assert!(last.replace(write_seq).is_none_or(|seq| seq == write_seq), "there is exactly one FIN");
        }
        pair.end_of_ours();
        pair.finish_theirs(3_000);
    });
}

#[test]
fn a_receiving_side_that_the_program_shut_stays_shut() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::new(&wire, false);
    pair.exchange(1_000);
    pair.ours.shutdown(Shutdown::Read).unwrap();
    assert!(wire.move_there_and_back(&pair.ours).shut_read);
    assert!(wire.move_there_and_back(&pair.ours).shut_read);
    assert_eq!(pair.back.read(&pair.ours), None);
    pair.finish_ours(3_000);
}

#[test]
fn a_half_closed_connection_asks_for_the_acknowledgment_that_was_lost() {
    need_root!();
    over_each_version(|wire, mut pair| {
        pair.peer.shutdown(Shutdown::Write).unwrap();
        settle();
        pair.leave_unacked(wire, 5_000);
        let captured = wire.move_there_and_back(&pair.ours);
        assert_eq!((captured.protocol.state, captured.protocol.unacked_bytes()), (State::CloseWait, 5_000));
        let resent = || wire.ours.enter(|| tcp_counter("RetransSegs"));
        let before = resent();
        wait_for("the acknowledgment", || {
            let now = wire.ours.enter(|| {
                let now = baton_kernel::capture(&pair.ours).unwrap();
                baton_kernel::release(&pair.ours, &now).unwrap();
                now
            });
            now.protocol.unacked_bytes() == 0
        });
        // Otherwise a probe for a lost tail would have followed after a second, or a timeout.
        assert_eq!(resent(), before);
        pair.end_of_theirs();
        pair.finish_ours(0);
    });
}

#[test]
fn the_peer_has_closed_over_link_local_addresses() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::link_local(&wire);
    pair.exchange(1_000);
    pair.leave_unread(5_000);
    pair.peer.shutdown(Shutdown::Write).unwrap();
    settle();
    for _ in 0..2 {
        let captured = wire.move_there_and_back(&pair.ours);
        assert_eq!(captured.protocol.state, State::CloseWait);
        assert!(matches!(captured.local, std::net::SocketAddr::V6(local) if local.scope_id() != 0), "{captured:?}");
    }
    pair.end_of_theirs();
    pair.finish_ours(3_000);
    assert_eq!(wire.resets(), 0);
}
