//! Making, naming, using and ending connections.

use crate::pair::{ERR, EVERYTHING, HUP, IN, OUT, Pair, RDHUP, again, number, set};
use baton_socket::posix::{Errno, Side};
use std::net::Shutdown;

fn errno<T>(number: i32) -> Result<T, Errno> {
    Err(Errno(number))
}

#[test]
fn bytes_and_ends_pass_both_ways() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let mut buf = [0; 64];
    again(pair.b.recv(server, &mut buf, 0));
    assert_eq!(pair.a.poll_mask(client, EVERYTHING), OUT);
    assert_eq!(pair.a.send(client, b"question", libc::MSG_NOSIGNAL), Ok(8));
    pair.a.shutdown(client, Shutdown::Write).unwrap();
    assert_eq!(pair.a.send(client, b"more", 0), errno(libc::EPIPE));
    assert_eq!(pair.b.send(server, b"!", libc::MSG_OOB), errno(libc::EOPNOTSUPP), "urgent data cannot be sent");
    pair.steps(5);
    assert_eq!(pair.b.poll_mask(server, EVERYTHING), IN | OUT | RDHUP);
    assert_eq!(pair.b.recv(server, &mut buf[..3], libc::MSG_PEEK), Ok(3));
    assert_eq!(pair.b.recv(server, &mut buf, 0), Ok(8));
    assert_eq!(&buf[..8], b"question");
    assert_eq!(pair.b.recv(server, &mut buf, 0), Ok(0));
    assert_eq!(pair.b.send(server, b"answer", 0), Ok(6));
    pair.b.close(server).unwrap();
    pair.steps(5);
    assert_eq!(pair.a.recv(client, &mut buf, 0), Ok(6));
    assert_eq!(pair.a.recv(client, &mut buf, 0), Ok(0));
    assert_ne!(pair.a.poll_mask(client, EVERYTHING) & HUP, 0, "both directions have ended");
    pair.a.close(client).unwrap();
    assert_eq!(pair.a.close(client), errno(libc::EBADF));
}

#[test]
fn unread_bytes_can_be_counted_and_discarded() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    again(pair.b.discard(server, 10, 0));
    assert_eq!(pair.b.unread(server), Ok(0));
    pair.a.send(client, b"0123456789", 0).unwrap();
    assert_eq!(pair.a.unsent(client), Ok(10));
    pair.steps(5);
    assert_eq!((pair.a.unsent(client), pair.b.unread(server)), (Ok(0), Ok(10)));
    assert_eq!(pair.b.discard(server, 4, libc::MSG_TRUNC), Ok(4));
    assert_eq!(pair.b.discard(server, 100, libc::MSG_TRUNC | libc::MSG_PEEK), Ok(6));
    let mut buf = [0; 16];
    assert_eq!(pair.b.recv(server, &mut buf, 0), Ok(6));
    assert_eq!(&buf[..6], b"456789");
    again(pair.b.discard(server, 100, libc::MSG_PEEK));
    pair.a.close(client).unwrap();
    pair.steps(5);
    assert_eq!(pair.b.discard(server, 100, libc::MSG_PEEK), Ok(0));
    let listener = pair.listen("10.0.0.2:8");
    assert_eq!(pair.b.unread(listener), errno(libc::EINVAL));
    let epoll = pair.b.epoll_create(0).unwrap();
    assert_eq!(pair.b.unsent(epoll), errno(libc::ENOTTY));
}

#[test]
fn a_full_buffer_takes_no_more_until_there_is_room() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let chunk = [7; 10_000];
    let mut sent = 0;
    // The peer does not read: its buffer fills up, then ours.
    loop {
        match pair.a.send(client, &chunk, 0) {
            Ok(count) => sent += count,
            Err(error) => {
                assert_eq!(error, Errno(libc::EAGAIN));
                if sent > 100_000 {
                    break;
                }
            }
        }
        pair.steps(2);
    }
    assert_eq!(pair.a.poll_mask(client, OUT), 0);
    let (mut got, mut buf) = (0, [0; 10_000]);
    for _ in 0..1000 {
        if let Ok(count) = pair.b.recv(server, &mut buf, 0) {
            assert!(buf[..count].iter().all(|byte| *byte == 7));
            got += count;
        }
        pair.steps(10);
        if got == sent {
            break;
        }
    }
    assert_eq!(got, sent);
    assert_eq!(pair.a.poll_mask(client, OUT), OUT);
}

#[test]
fn a_refused_connect_is_told_once() {
    let mut pair = Pair::new();
    let fd = pair.begin("10.0.0.2:9");
    assert_eq!(pair.a.connect(fd, "10.0.0.2:9".parse().unwrap()), errno(libc::EALREADY));
    assert_eq!(pair.a.poll_mask(fd, EVERYTHING), 0);
    again(pair.a.send(fd, b"x", 0));
    pair.steps(20);
    assert_eq!(pair.a.poll_mask(fd, EVERYTHING), OUT | ERR | HUP);
    assert_eq!(number(&mut pair.a, fd, libc::SOL_SOCKET, libc::SO_ERROR), libc::ECONNREFUSED);
    assert_eq!(number(&mut pair.a, fd, libc::SOL_SOCKET, libc::SO_ERROR), 0);
    assert_eq!(pair.a.recv(fd, &mut [0; 4], 0), errno(libc::ENOTCONN));
    // The socket may try again.
    pair.listen("10.0.0.2:9");
    assert_eq!(pair.a.connect(fd, "10.0.0.2:9".parse().unwrap()), errno(libc::EINPROGRESS));
    pair.steps(20);
    assert_eq!(pair.a.connect(fd, "10.0.0.2:9".parse().unwrap()), Ok(()));
    assert_eq!(pair.a.connect(fd, "10.0.0.2:9".parse().unwrap()), errno(libc::EISCONN));
}

#[test]
fn an_attempt_that_cannot_start_fails_at_once() {
    let mut pair = Pair::new();
    let fd = pair.a.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
    assert_eq!(pair.a.connect(fd, "192.0.2.1:7".parse().unwrap()), errno(libc::ENETUNREACH));
    assert_eq!(pair.a.connect(fd, "[fd00::2]:7".parse().unwrap()), errno(libc::EAFNOSUPPORT));
    assert_eq!(pair.a.bind(fd, "10.0.0.9:7".parse().unwrap()), errno(libc::EADDRNOTAVAIL));
    assert_eq!(pair.a.send(fd, b"x", 0), errno(libc::ENOTCONN));
    assert_eq!(pair.a.shutdown(fd, Shutdown::Both), errno(libc::ENOTCONN));
    assert_eq!(pair.a.peer_name(fd), errno(libc::ENOTCONN));
    assert_eq!(pair.a.accept(fd, 0), errno(libc::EINVAL));
}

#[test]
fn a_reset_is_told_once_and_then_the_stream_has_ended() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    pair.b.set_option(server, libc::SOL_SOCKET, libc::SO_LINGER, &[1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    pair.b.close(server).unwrap();
    pair.steps(5);
    assert_eq!(pair.a.poll_mask(client, EVERYTHING), EVERYTHING);
    assert_eq!(pair.a.recv(client, &mut [0; 4], 0), errno(libc::ECONNRESET));
    assert_eq!(pair.a.recv(client, &mut [0; 4], 0), Ok(0));
    assert_eq!(pair.a.send(client, b"x", 0), errno(libc::EPIPE));
}

#[test]
fn names_are_shared_only_as_linux_shares_them() {
    let mut pair = Pair::new();
    let any = |port: u16| format!("0.0.0.0:{port}").parse().unwrap();
    let socket = |pair: &mut Pair| pair.b.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
    let (first, second, third) = (socket(&mut pair), socket(&mut pair), socket(&mut pair));
    pair.b.bind(first, "10.0.0.2:80".parse().unwrap()).unwrap();
    assert_eq!(pair.b.bind(first, any(81)), errno(libc::EINVAL), "the socket has a name already");
    assert_eq!(pair.b.bind(second, any(80)), errno(libc::EADDRINUSE));
    for fd in [first, second] {
        set(&mut pair.b, fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).unwrap();
    }
    pair.b.bind(second, any(80)).unwrap();
    pair.b.listen(first, 1).unwrap();
    set(&mut pair.b, third, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).unwrap();
    assert_eq!(pair.b.bind(third, any(80)), errno(libc::EADDRINUSE), "another socket listens");
    // A socket that names no port gets its own, known immediately.
    pair.b.bind(third, any(0)).unwrap();
    assert!(pair.b.local_name(third).unwrap().port() >= 32_768);
    pair.b.close(first).unwrap();
    pair.steps(2);
    pair.b.listen(second, 1).unwrap();
}

#[test]
fn an_ipv6_socket_serves_both_families_unless_told_not_to() {
    for v6only in [0, 1] {
        let mut pair = Pair::new();
        let listener = pair.b.socket(libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap();
        set(&mut pair.b, listener, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, v6only).unwrap();
        pair.b.bind(listener, "[::]:7".parse().unwrap()).unwrap();
        pair.b.listen(listener, 4).unwrap();
        pair.begin("[fd00::2]:7");
        pair.steps(20);
        let (fd, peer) = pair.b.accept(listener, 0).unwrap();
        assert_eq!(peer.ip().to_string(), "fd00::1");
        assert_eq!(pair.b.local_name(fd).unwrap().to_string(), "[fd00::2]:7");
        let v4 = pair.begin("10.0.0.2:7");
        pair.steps(20);
        match v6only {
            0 => assert_eq!(pair.b.accept(listener, 0).unwrap().1.ip().to_string(), "::ffff:10.0.0.1"),
            _ => {
                again(pair.b.accept(listener, 0));
                assert_eq!(pair.a.recv(v4, &mut [0; 4], 0), errno(libc::ECONNRESET));
            }
        }
    }
}

#[test]
fn a_connection_that_finds_the_accept_queue_full_is_reset() {
    let mut pair = Pair::new();
    let listener = pair.b.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
    pair.b.bind(listener, "10.0.0.2:7".parse().unwrap()).unwrap();
    pair.b.listen(listener, 1).unwrap();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let fd = pair.begin("10.0.0.2:7");
            pair.steps(20);
            fd
        })
        .collect();
    let reset = clients.iter().filter(|fd| pair.a.poll_mask(**fd, ERR) & ERR != 0).count();
    assert_eq!(reset, 2, "one more than the backlog waits, as in Linux");
    for _ in 0..2 {
        pair.b.accept(listener, 0).unwrap();
    }
}

#[test]
fn closing_a_listener_resets_waiting_connections_and_frees_the_port() {
    let mut pair = Pair::new();
    let listener = pair.listen("10.0.0.2:7");
    let client = pair.begin("10.0.0.2:7");
    pair.steps(20);
    assert_eq!(pair.b.poll_mask(listener, EVERYTHING), IN);
    pair.b.close(listener).unwrap();
    pair.steps(20);
    assert_eq!(pair.a.recv(client, &mut [0; 4], 0), errno(libc::ECONNRESET));
    pair.listen("10.0.0.2:7");
}

#[test]
fn blocking_calls_say_how_long_they_may_wait() {
    let mut pair = Pair::new();
    let fd = pair.a.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
    assert_eq!(pair.a.patience(fd, Side::Read), Ok(Some(u64::MAX)));
    let timeval: Vec<u8> = [2i64, 500_000].iter().flat_map(|word| word.to_ne_bytes()).collect();
    pair.a.set_option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeval).unwrap();
    assert_eq!(pair.a.patience(fd, Side::Read), Ok(Some(pair.a.now().0 + 2_500_000_000)));
    assert_eq!(pair.a.option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO).unwrap(), timeval);
    assert_eq!(pair.a.patience(fd, Side::Write), Ok(Some(u64::MAX)));
    pair.a.set_nonblocking(fd, true).unwrap();
    assert_eq!(pair.a.patience(fd, Side::Read), Ok(None));
}

#[test]
fn bare_ip_packets_need_no_neighbours() {
    let mut pair = Pair::with(|config| config.host.engine.interface.ethernet = false);
    let (client, server) = pair.connect();
    pair.a.send(client, b"ip", 0).unwrap();
    pair.steps(3);
    assert_eq!(pair.b.recv(server, &mut [0; 8], 0), Ok(2));
}

#[test]
fn descriptors_are_the_lowest_free_ones_and_bounded() {
    let mut pair = Pair::new();
    let make = |pair: &mut Pair| pair.a.socket(libc::AF_INET, libc::SOCK_STREAM, 0);
    let all: Vec<_> = (0..64).map(|_| make(&mut pair).unwrap()).collect();
    assert_eq!(all, (3..67).collect::<Vec<_>>());
    assert_eq!(make(&mut pair), errno(libc::EMFILE));
    pair.a.close(40).unwrap();
    pair.a.close(7).unwrap();
    assert_eq!(make(&mut pair), Ok(7));
    for wrong in [-1, 0, 2, 40, 67, i32::MIN, i32::MAX] {
        assert_eq!(pair.a.recv(wrong, &mut [0; 4], 0), errno(libc::EBADF), "{wrong}");
    }
}

// tests: MUST-56, MUST-47
#[test]
fn a_soft_error_is_told_once_and_ends_nothing() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    pair.a.send(client, b"lost", 0).unwrap();
    let frame = pair.lose();
    pair.a.input(&host_unreachable(&frame)).unwrap();
    pair.steps(1);
    // As in Linux: no POLLERR, and neither send nor recv fails because of it.
    assert_eq!(pair.a.poll_mask(client, EVERYTHING), OUT);
    again(pair.a.recv(client, &mut [0; 8], 0));
    assert_eq!(pair.a.send(client, b" and found", 0), Ok(10));
    assert_eq!(number(&mut pair.a, client, libc::SOL_SOCKET, libc::SO_ERROR), libc::EHOSTUNREACH);
    assert_eq!(number(&mut pair.a, client, libc::SOL_SOCKET, libc::SO_ERROR), 0);
    pair.steps(5000);
    let mut buf = [0; 32];
    assert_eq!(pair.b.recv(server, &mut buf, 0), Ok(14));
    assert_eq!(&buf[..14], b"lost and found");
    pair.b.send(server, b"yes", 0).unwrap();
    pair.steps(5);
    assert_eq!(pair.a.recv(client, &mut buf, 0), Ok(3));
    assert_eq!(number(&mut pair.a, client, libc::SOL_SOCKET, libc::SO_ERROR), 0);
}

/// Builds an ICMP "host unreachable" for a frame with an IPv4 packet, addressed to its sender.
fn host_unreachable(frame: &[u8]) -> Vec<u8> {
    let quote = &frame[14..14 + 28];
    let mut icmp = [&[3, 1, 0, 0, 0, 0, 0, 0], quote].concat();
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    let mut ip = [&[0x45, 0, 0, 56, 0, 1, 0, 0, 64, 1, 0, 0], &frame[30..34], &frame[26..30]].concat();
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    [&frame[6..12], &frame[..6], &frame[12..14], &ip, &icmp].concat()
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    (!baton_wire::checksum::fold(baton_wire::checksum::sum(bytes))).to_be_bytes()
}

/// send(2), `MSG_MORE`; tcp(7), `TCP_CORK`: bytes are held back for at most 200 milliseconds.
#[test]
fn more_is_waited_for() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let more = |pair: &mut Pair, len: usize| pair.a.send(client, &vec![1; len], libc::MSG_MORE).unwrap();
    assert_eq!(more(&mut pair, 10), 10);
    pair.steps(100);
    assert_eq!(pair.b.unread(server), Ok(0));
    assert_eq!(more(&mut pair, 20), 20);
    pair.a.send(client, &[1; 5], libc::MSG_EOR).unwrap();
    let frame = pair.lose();
    // The headers of Ethernet, IPv4 and TCP with timestamps have 66 bytes.
    assert_eq!(frame.len(), 66 + 35, "in one segment");
    pair.b.input(&frame).unwrap();
    pair.steps(5);
    assert_eq!(pair.b.discard(server, 100, 0), Ok(35));
    // Full segments are not held back.
    assert_eq!(more(&mut pair, 3 * 1448 + 7), 3 * 1448 + 7);
    pair.steps(20);
    assert_eq!(pair.b.discard(server, 100_000, 0), Ok(3 * 1448));
    // Bytes are not held back forever.
    pair.steps(1900);
    assert_eq!(pair.b.unread(server), Ok(0));
    let due = pair.a.next_deadline().expect("a deadline is pending");
    assert!(due.0 - pair.a.now().0 <= 200_000_000);
    pair.steps(200);
    assert_eq!(pair.b.discard(server, 100, 0), Ok(7));
    // Held-back bytes are sent before the FIN.
    more(&mut pair, 4);
    pair.a.shutdown(client, Shutdown::Write).unwrap();
    pair.steps(5);
    assert_eq!(pair.b.discard(server, 100, 0), Ok(4));
    assert_eq!(pair.b.recv(server, &mut [0; 4], 0), Ok(0));
}

#[test]
fn nodelay_and_uncorking_release_held_back_bytes() {
    for (name, value) in [(libc::TCP_NODELAY, 1), (libc::TCP_CORK, 0)] {
        let mut pair = Pair::new();
        let (client, server) = pair.connect();
        pair.a.send(client, b"some", libc::MSG_MORE).unwrap();
        pair.steps(10);
        set(&mut pair.a, client, libc::IPPROTO_TCP, name, value).unwrap();
        pair.steps(5);
        assert_eq!(pair.b.unread(server), Ok(4), "{name}");
    }
}
