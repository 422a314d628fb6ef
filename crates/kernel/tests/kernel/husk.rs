//! The remains in the kernel of a connection that is away, and the calls that are refused.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use crate::common::{Pair, Wire, tcp_counter, wait_for};
use baton_kernel::{CaptureError, capture, make_husk, rebuild, release, restore};
use baton_policy::Refusal;
use baton_testkit::{need_root, run};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, send, socket_with};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// The number of TCP segments that our side has sent.
fn sent(wire: &Wire) -> u64 {
    wire.ours.enter(|| tcp_counter("OutSegs") + tcp_counter("RetransSegs") + tcp_counter("OutRsts"))
}

/// Another socket with the same addresses and ports.
fn twin(pair: &Pair) -> rustix::io::Result<()> {
    let (local, remote) = (pair.local(), pair.peer.local_addr().unwrap());
    let family = if local.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &local)?;
    rustix::net::connect(&socket, &remote)
}

fn refused(fd: impl AsFd) -> Refusal {
    match capture(fd) {
        Err(CaptureError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_husk_answers_nothing_that_steering_came_too_late_for() {
    need_root!();
    let wire = Wire::new(&[]);
    for ipv6 in [false, true] {
        let mut pair = Pair::new(&wire, ipv6);
        pair.exchange(1_000);
        let captured = wire.ours.enter(|| capture(&pair.ours)).unwrap();
        let before = sent(&wire);
        // Nothing keeps these segments from the socket.
        pair.back.write(&pair.peer, 3_000);
        make_husk(&pair.ours, &captured).unwrap();
        pair.back.write(&pair.peer, 3_000);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(sent(&wire), before, "data that nobody has was acknowledged");
        wire.ours.enter(|| restore(&pair.ours, &captured)).unwrap();
        pair.exchange(1_000);
        pair.close();
        assert_eq!(wire.resets(), 0);
    }
}

#[test]
fn a_husk_is_silent_and_keeps_its_place_until_it_is_closed() {
    need_root!();
    let wire = Wire::new(&[]);
    for ipv6 in [false, true] {
        let mut pair = Pair::new(&wire, ipv6);
        pair.exchange(1_000);
        rustix::net::sockopt::set_socket_keepalive(&pair.ours, true).unwrap();
        rustix::net::sockopt::set_tcp_keepidle(&pair.ours, Duration::from_secs(1)).unwrap();
        pair.leave_unread(1_000);
        pair.leave_unacked(&wire, 20_000);
        let captured = wire.ours.enter(|| capture(&pair.ours)).unwrap();
        make_husk(&pair.ours, &captured).unwrap();
        let before = sent(&wire);
        // Longer than a keepalive and a retransmission take.
        thread::sleep(Duration::from_millis(2_500));
        assert_eq!((&pair.ours).read(&mut [0]).unwrap_err().raw_os_error(), Some(1), "EPERM");
        assert_eq!((&pair.ours).write(b"x").unwrap_err().raw_os_error(), Some(22), "EINVAL");
        let listed = run(wire.ours.command("ss").args(["-tnH", "state", "established"]));
        assert!(listed.contains(&pair.local().port().to_string()), "{listed}");
        assert_eq!(wire.ours.enter(|| refused(&pair.ours)), Refusal::AlreadyAway);
        let twin = wire.ours.enter(|| twin(&pair)).unwrap_err();
        assert_eq!(twin, rustix::io::Errno::ADDRNOTAVAIL, "its addresses and ports are in use");
        drop(pair);
        assert_eq!(sent(&wire), before, "nothing was sent");
        wire.let_go();
    }
}

#[test]
fn a_capture_that_is_released_has_changed_nothing() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::new(&wire, false);
    rustix::net::sockopt::set_socket_reuseaddr(&pair.ours, true).unwrap();
    pair.exchange(1_000);
    pair.leave_unread(10_000);
    pair.fill_send_queue();
    let captured = wire.ours.enter(|| capture(&pair.ours)).unwrap();
    release(&pair.ours, &captured).unwrap();
    let again = wire.ours.enter(|| capture(&pair.ours)).unwrap();
    release(&pair.ours, &again).unwrap();
    assert_eq!((again.send_queue.len(), again.receive_queue.len()), (captured.send_queue.len(), 10_000));
    assert!(again.options.reuse_address);
    pair.exchange(10_000);
    pair.close();
    assert_eq!(wire.resets(), 0);
}

#[test]
fn a_connection_can_be_restored_on_another_descriptor() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::new(&wire, false);
    rustix::net::sockopt::set_tcp_nodelay(&pair.ours, true).unwrap();
    pair.exchange(1_000);
    pair.leave_unread(10_000);
    wire.hold();
    let captured = wire.ours.enter(|| capture(&pair.ours)).unwrap();
    make_husk(&pair.ours, &captured).unwrap();
    let other = wire.ours.enter(|| socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None));
    let other = TcpStream::from(other.unwrap());
    drop(std::mem::replace(&mut pair.ours, other));
    wire.ours.enter(|| rebuild(&pair.ours, &captured)).unwrap();
    wire.let_go();
    wire.ours.enter(|| baton_kernel::resume(&pair.ours, &captured)).unwrap();
    assert!(pair.ours.nodelay().unwrap());
    pair.exchange(10_000);
    pair.close();
    assert_eq!(wire.resets(), 0);
}

#[test]
fn what_cannot_move_is_refused_and_left_alone() {
    need_root!();
    let wire = Wire::new(&[]);
    wire.ours.enter(|| {
        assert_eq!(refused(UdpSocket::bind("127.0.0.1:0").unwrap()), Refusal::NotTcp);
        assert_eq!(refused(std::os::unix::net::UnixStream::pair().unwrap().0), Refusal::NotTcp);
        assert_eq!(refused(TcpListener::bind("127.0.0.1:0").unwrap()), Refusal::NotConnected);
        let stream = |protocol| socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, protocol);
        assert_eq!(refused(stream(None).unwrap()), Refusal::NotConnected);
        match stream(Some(ipproto::MPTCP)) {
            Ok(multipath) => assert_eq!(refused(multipath), Refusal::Mptcp),
            Err(e) => baton_testkit::note_skip!("no MPTCP here: {e}"),
        }
        let opening = stream(None).unwrap();
        let nobody: std::net::SocketAddr = "10.66.0.99:9".parse().unwrap();
        let _ = rustix::net::connect(&opening, &nobody);
        assert_eq!(refused(opening), Refusal::State);
    });
}

#[test]
fn urgent_data_is_waited_for() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::new(&wire, false);
    pair.exchange(100);
    send(&pair.peer, b"!", SendFlags::OOB).unwrap();
    wait_for("the refusal", || wire.ours.enter(|| capture(&pair.ours)).is_err());
    assert_eq!(wire.ours.enter(|| refused(&pair.ours)), Refusal::Urgent);
    assert_eq!(rustix::net::recv(&pair.ours, &mut [0; 1], rustix::net::RecvFlags::OOB).unwrap().1, 1);
    // The mark itself still has to be passed.
    send(&pair.peer, b"x", SendFlags::empty()).unwrap();
    wait_for("the byte after it", || matches!((&pair.ours).read(&mut [0]), Ok(1)));
    wire.hold();
    wire.ours.enter(|| {
        let captured = capture(&pair.ours).unwrap();
        make_husk(&pair.ours, &captured).unwrap();
        restore(&pair.ours, &captured).unwrap();
    });
    wire.let_go();
    pair.exchange(1_000);
    pair.close();
}

#[test]
fn without_the_capability_it_is_refused() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::new(&wire, false);
    pair.exchange(100);
    wire.ours.enter(|| {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_ADMIN);
        // For this thread only, which ends here.
        set_capabilities(None, sets).unwrap();
        assert_eq!(refused(&pair.ours), Refusal::Permission);
    });
    pair.exchange(100);
    pair.close();
}
