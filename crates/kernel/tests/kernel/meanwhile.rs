//! Acts of the peer while neither side has the connection, at each step of the move: the kernel
//! must not see it then, and must learn of it afterwards.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use crate::common::{Pair, Wire, wait_for};
use baton_kernel::socket_options::IntOption;
use baton_kernel::{capture, make_husk, rebuild, resume};
use baton_testkit::need_root;
use rustix::net::sockopt::set_socket_linger;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Deed {
    Data,
    Fin,
    Reset,
}

/// Moves the connection. The peer acts after `after` steps.
fn move_while(wire: &Wire, pair: &mut Pair, after: u32, deed: impl Fn(&mut Pair)) {
    let mut step = 0;
    let mut passed = |pair: &mut Pair| {
        step += 1;
        if step == after {
            deed(pair);
        }
    };
    wire.hold();
    passed(pair);
    let captured = wire.ours.enter(|| capture(&pair.ours)).unwrap();
    passed(pair);
    wire.ours.enter(|| make_husk(&pair.ours, &captured)).unwrap();
    passed(pair);
    wire.ours.enter(|| rebuild(&pair.ours, &captured)).unwrap();
    passed(pair);
    // From here on the kernel receives, in repair mode.
    wire.let_go();
    passed(pair);
    wire.ours.enter(|| resume(&pair.ours, &captured)).unwrap();
}

const STEPS: u32 = 5;

fn each_step(deed: Deed, check: impl Fn(Pair)) {
    let wire = Wire::new(&[]);
    for after in 1..=STEPS {
        for waiting in [false, true] {
            let ipv6 = after % 2 == 0;
            println!("{deed:?} after step {after}, data waiting: {waiting}, ipv6: {ipv6}");
            let mut pair = Pair::new(&wire, ipv6);
            pair.exchange(2_000);
            if waiting {
                pair.leave_unread(10_000);
                pair.out.write(&pair.ours, 10_000);
            }
            move_while(&wire, &mut pair, after, |pair| match deed {
                Deed::Data => assert_eq!(pair.back.write(&pair.peer, 30_000), 30_000),
                Deed::Fin => pair.peer.shutdown(std::net::Shutdown::Write).unwrap(),
                Deed::Reset => {
                    set_socket_linger(&pair.peer, Some(std::time::Duration::ZERO)).unwrap();
                    let stand_in = pair.ours.try_clone().unwrap();
                    drop(std::mem::replace(&mut pair.peer, stand_in));
                }
            });
            check(pair);
        }
    }
    if deed != Deed::Reset {
        assert_eq!(wire.resets(), 0);
    }
}

#[test]
fn data_that_came_meanwhile_is_sent_again() {
    need_root!();
    each_step(Deed::Data, |mut pair| {
        pair.exchange(10_000);
        pair.close();
    });
}

#[test]
fn a_fin_that_came_meanwhile_is_sent_again() {
    need_root!();
    each_step(Deed::Fin, |mut pair| {
        wait_for("the end of the peer's stream", || pair.back.read(&pair.ours).is_none());
        assert_eq!(pair.back.read, pair.back.written);
        pair.out.write(&pair.ours, 10_000);
        pair.ours.shutdown(std::net::Shutdown::Write).unwrap();
        wait_for("the end of our stream", || pair.out.read(&pair.peer).is_none());
        assert_eq!(pair.out.read, pair.out.written);
    });
}

#[test]
fn a_reset_that_came_meanwhile_is_learned_of() {
    need_root!();
    each_step(Deed::Reset, |pair| {
        let mut seen = None;
        wait_for("an error", || {
            let result = (&pair.ours).write(b"x").and_then(|_| (&pair.ours).read(&mut [0; 65536]));
            seen = result.err().map(|e| e.kind()).filter(|kind| *kind != ErrorKind::WouldBlock);
            seen.is_some()
        });
        assert!(matches!(seen, Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)), "{seen:?}");
    });
}

/// The time until a connection sends again, in ms, from `/proc/net/tcp`.
fn timer(local: SocketAddr) -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let port = format!(":{:04X}", local.port());
    let columns = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = columns.into_iter().find(|row| row[1].ends_with(&port)).expect("the connection is listed");
    let (kind, left) = row[5].split_once(':').unwrap();
    assert_eq!(kind, "01", "the retransmission timer is running: {row:?}");
    u64::from_str_radix(left, 16).unwrap() * 10
}

#[test]
fn what_was_lost_is_sent_again_soon() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::new(&wire, false);
    pair.exchange(2_000);
    pair.leave_unacked(&wire, 20_000);
    let captured = wire.ours.enter(|| {
        let captured = capture(&pair.ours).unwrap();
        make_husk(&pair.ours, &captured).unwrap();
        rebuild(&pair.ours, &captured).unwrap();
        resume(&pair.ours, &captured).unwrap();
        captured
    });
    // The timeout cannot be set before Linux 6.15.
    let longest = if captured.options.int(IntOption::TimeoutMax).is_some() { 1000 } else { 3000 };
    let left = wire.ours.enter(|| timer(pair.local()));
    assert!(left <= longest, "{left} ms");
    wire.let_go();
    wait_for("the peer's bytes", || {
        pair.out.read(&pair.peer);
        pair.out.read == pair.out.written
    });
    pair.close();
}

#[test]
fn room_that_the_peer_made_meanwhile_is_asked_for_each_time() {
    need_root!();
    let wire = Wire::new(&[]);
    // Segments that are old and carry no payload, such as a bare window probe, are answered once
    // per minute.
    let limit = "/proc/sys/net/ipv4/tcp_invalid_ratelimit";
    wire.peer.enter(|| std::fs::write(limit, "60000").unwrap());
    for ipv6 in [false, true] {
        let mut pair = Pair::new(&wire, ipv6);
        for _ in 0..3 {
            pair.fill_send_queue();
            wire.hold();
            let captured = wire.ours.enter(|| capture(&pair.ours)).unwrap();
            wire.ours.enter(|| make_husk(&pair.ours, &captured)).unwrap();
            // Its window opens, and nobody is told.
            while pair.out.read(&pair.peer).is_some_and(|count| count > 0) {}
            wire.ours.enter(|| rebuild(&pair.ours, &captured)).unwrap();
            wire.let_go();
            wire.ours.enter(|| resume(&pair.ours, &captured)).unwrap();
            wait_for("what was not sent", || {
                pair.out.read(&pair.peer);
                pair.out.read == pair.out.written
            });
        }
        pair.close();
    }
    assert_eq!(wire.resets(), 0);
}
