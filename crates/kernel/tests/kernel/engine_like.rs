//! Changes that an engine may have made to a connection before the kernel gets it back, tested
//! without an engine: the connection's numbers and queues are advanced as an engine would have done
//! it.

use std::net::Shutdown;
use std::thread::sleep;
use std::time::Duration;

use crate::common::{Pair, Ramp, Wire, over_each_version, tcp_counter, wait_for};
use baton_kernel::{CaptureError, Captured, capture, make_husk, rebuild, release, resume};
use baton_policy::Refusal;
use baton_tcp::state::State;
use baton_testkit::need_root;
use rustix::net::sockopt::set_socket_recv_buffer_size;

/// Captures the connection, lets the `engine` change it, and restores it.
fn away(wire: &Wire, pair: &mut Pair, engine: impl FnOnce(&mut Pair, &mut Captured)) -> Captured {
    wire.hold();
    let mut captured = wire.ours.enter(|| capture(&pair.ours)).unwrap();
    make_husk(&pair.ours, &captured).unwrap();
    engine(pair, &mut captured);
    wire.ours.enter(|| rebuild(&pair.ours, &captured)).unwrap();
    wire.let_go();
    wire.ours.enter(|| resume(&pair.ours, &captured)).unwrap();
    captured
}

/// The engine receives what the peer sends, and the kernel does not.
fn receive(pair: &mut Pair, captured: &mut Captured, len: usize) {
    let from = pair.back.written;
    assert_eq!(pair.back.write(&pair.peer, len), len);
    captured.receive_queue.extend(Ramp::bytes(from, len));
    captured.protocol.rcv_nxt += len as u32;
}

/// The program writes to the engine, which sends some of it. All of that is lost.
fn write(pair: &mut Pair, captured: &mut Captured, sent: usize, unsent: usize) {
    captured.send_queue.extend(Ramp::bytes(pair.out.written, sent + unsent));
    pair.out.written += (sent + unsent) as u64;
    captured.protocol.snd_nxt += sent as u32;
    captured.protocol.write_seq += (sent + unsent) as u32;
}

#[test]
fn what_was_received_and_written_meanwhile_is_there() {
    need_root!();
    let wire = Wire::new(&[]);
    for ipv6 in [false, true] {
        for acknowledged in [false, true] {
            let mut pair = Pair::new(&wire, ipv6);
            pair.exchange(5_000);
            pair.leave_unread(1_000);
            away(&wire, &mut pair, |pair, captured| {
                receive(pair, captured, 9_000);
                write(pair, captured, 3_000, 4_000_000);
                let p = &mut captured.protocol;
                if acknowledged {
                    p.last_ack_sent = p.rcv_nxt;
                }
                p.right_edge = p.right_edge.latest(p.rcv_nxt);
                // The engine's clock has advanced, and the engine promised more than the kernel
                // had.
                let timestamps = p.timestamps.as_mut().expect("both kernels use timestamps");
                timestamps.tsval = timestamps.tsval.wrapping_add(12_345);
                p.right_edge += 400_000;
            });
            let again = wire.move_there_and_back(&pair.ours);
            assert!(again.protocol.rcv_wnd() >= 300_000, "the promise is kept: {again:?}");
            pair.exchange(600_000);
            pair.close();
        }
    }
    assert_eq!(wire.resets(), 0);
}

#[test]
fn the_peer_closed_while_the_engine_had_the_connection() {
    need_root!();
    over_each_version(|wire, mut pair| {
        away(wire, &mut pair, |pair, captured| {
            receive(pair, captured, 9_000);
            write(pair, captured, 0, 2_000);
            pair.peer.shutdown(Shutdown::Write).unwrap();
            let p = &mut captured.protocol;
            p.state = State::CloseWait;
            p.rcv_nxt += 1;
            p.right_edge = p.right_edge.latest(p.rcv_nxt);
        });
        pair.end_of_theirs();
        pair.finish_ours(1_000);
    });
}

#[test]
fn the_program_closed_while_the_engine_had_the_connection() {
    need_root!();
    let wire = Wire::new(&[]);
    for fin_sent in [false, true] {
        let mut pair = Pair::new(&wire, fin_sent);
        pair.exchange(5_000);
        away(&wire, &mut pair, |pair, captured| {
            let unsent = if fin_sent { 0 } else { 2_000 };
            write(pair, captured, 3_000, unsent);
            let p = &mut captured.protocol;
            p.state = State::FinWait1;
            p.write_seq += 1;
            if fin_sent {
                p.snd_nxt += 1;
            }
        });
        pair.end_of_ours();
        pair.finish_theirs(3_000);
    }
    assert_eq!(wire.resets(), 0);
}

#[test]
fn what_contradicts_itself_is_not_rebuilt() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::new(&wire, false);
    pair.exchange(1_000);
    away(&wire, &mut pair, |pair, captured| {
        type Change = fn(&mut Captured);
        let changes: [Change; 4] = [
            |c| c.send_queue.push(1),
            |c| c.receive_queue.push(1),
            |c| c.protocol.snd_una += 1,
            |c| c.remote = "[::1]:1".parse().unwrap(),
        ];
        for change in changes {
            let mut damaged = captured.clone();
            change(&mut damaged);
            let result = wire.ours.enter(|| rebuild(&pair.ours, &damaged));
            assert!(matches!(result, Err(baton_kernel::RestoreError::Invalid(_))), "{result:?}");
        }
    });
    pair.exchange(1_000);
    pair.close();
    assert_eq!(wire.resets(), 0);
}

/// A peer that sees the window closed checks again when its timer expires. It is to learn at once
/// that there is room again.
#[test]
fn a_window_that_was_closed_is_open_at_once() {
    need_root!();
    let wire = Wire::new(&[]);
    let probes = || wire.peer.enter(|| tcp_counter("TCPWinProbe"));
    // The timer may expire at that very moment, but not every time.
    let at_once = (0..5).filter(|turn| {
        let mut pair = Pair::new(&wire, turn % 2 == 0);
        pair.exchange(5_000);
        set_socket_recv_buffer_size(&pair.ours, 60_000).unwrap();
        let mut quiet = 0;
        while quiet < 50 {
            quiet = if pair.back.write(&pair.peer, 60_000) == 0 { quiet + 1 } else { 0 };
            sleep(Duration::from_millis(1));
        }
        let mut before = 0;
        away(&wire, &mut pair, |pair, captured| {
            // The program reads everything.
            let p = &mut captured.protocol;
            assert!(p.rcv_wnd() < 1_448, "{p:?}");
            pair.back.read += captured.receive_queue.len() as u64;
            captured.receive_queue.clear();
            (p.copied_seq, p.last_ack_sent, p.right_edge) = (p.rcv_nxt, p.rcv_nxt, p.rcv_nxt);
            before = probes();
        });
        let known = pair.back.read;
        wait_for("what the peer had no room for", || {
            pair.back.read(&pair.ours).unwrap();
            pair.back.read > known
        });
        let asked = probes() > before;
        pair.exchange(100_000);
        pair.close();
        !asked
    });
    assert!(at_once.count() > 2);
    assert_eq!(wire.resets(), 0);
}

/// Without steering, the kernel keeps receiving and sending while the connection is read.
#[test]
fn a_capture_under_fire_is_right_or_refused() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::new(&wire, false);
    let (mut captures, mut refusals) = (0, 0);
    let peer = pair.peer.try_clone().unwrap();
    let mut back = Ramp::default();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let blast = scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                back.write(&peer, 7_000);
            }
        });
        for _ in 0..300 {
            let captured = wire.ours.enter(|| {
                let captured = capture(&pair.ours);
                if let Ok(captured) = &captured {
                    release(&pair.ours, captured).unwrap();
                }
                captured
            });
            match captured {
                Ok(captured) => {
                    captures += 1;
                    // The queue begins where the program stopped reading.
                    let wanted = Ramp::bytes(pair.back.read, captured.receive_queue.len());
                    assert!(captured.receive_queue == wanted, "{captured:?}");
                }
                Err(CaptureError::Refused(Refusal::Unsettled)) => refusals += 1,
                Err(e) => panic!("{e}"),
            }
            pair.back.written = u64::MAX;
            for _ in 0..4 {
                pair.back.read(&pair.ours).unwrap();
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        blast.join().unwrap();
    });
    println!("{captures} captures, {refusals} refusals");
    assert_eq!(captures + refusals, 300);
    pair.back.written = back.written;
    pair.exchange(10_000);
    pair.close();
    assert_eq!(wire.resets(), 0);
}
