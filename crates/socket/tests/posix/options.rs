//! Options: a value that was set is returned, and has its effect.

use crate::pair::{OUT, Pair, number, set};
use baton_socket::posix::Errno;
use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};

#[test]
fn numbers_come_back_as_they_were_set() {
    let mut pair = Pair::new();
    let (client, _) = pair.connect();
    let fresh = pair.a.socket(libc::AF_INET6, libc::SOCK_STREAM, 0).unwrap();
    for fd in [fresh, client] {
        for (level, name, default, value) in [
            (SOL_SOCKET, libc::SO_KEEPALIVE, 0, 1),
            (SOL_SOCKET, libc::SO_REUSEADDR, 0, 1),
            (IPPROTO_TCP, libc::TCP_NODELAY, 0, 1),
            (IPPROTO_TCP, libc::TCP_CORK, 0, 1),
            (IPPROTO_TCP, libc::TCP_QUICKACK, 1, 0),
            (IPPROTO_TCP, libc::TCP_KEEPIDLE, 7200, 30),
            (IPPROTO_TCP, libc::TCP_KEEPINTVL, 75, 5),
            (IPPROTO_TCP, libc::TCP_KEEPCNT, 9, 3),
            (IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 0, 1500),
            (IPPROTO_TCP, libc::TCP_LINGER2, 60, 9),
            (IPPROTO_IP, libc::IP_TOS, 0, 0xb8),
            (IPPROTO_IP, libc::IP_TTL, 64, 3),
        ] {
            assert_eq!(number(&mut pair.a, fd, level, name), default, "{level}/{name}");
            set(&mut pair.a, fd, level, name, value).unwrap();
            assert_eq!(number(&mut pair.a, fd, level, name), value, "{level}/{name}");
        }
    }
    for (name, wrong) in [(libc::TCP_KEEPCNT, 0), (libc::TCP_KEEPIDLE, 0), (libc::TCP_USER_TIMEOUT, -1)] {
        assert_eq!(set(&mut pair.a, fresh, IPPROTO_TCP, name, wrong), Err(Errno(libc::EINVAL)));
    }
    // A value set under one name is returned under the other.
    assert_eq!(number(&mut pair.a, fresh, IPPROTO_IPV6, libc::IPV6_TCLASS), 0xb8);
    set(&mut pair.a, fresh, IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, -1).unwrap();
    assert_eq!(number(&mut pair.a, fresh, IPPROTO_IP, libc::IP_TTL), 64);
    set(&mut pair.a, fresh, IPPROTO_IPV6, libc::IPV6_TCLASS, 0x2f).unwrap();
    assert_eq!(
        number(&mut pair.a, fresh, IPPROTO_IPV6, libc::IPV6_TCLASS),
        0x2c,
        "the program cannot set the ECN bits"
    );
    assert_eq!(pair.a.set_option(fresh, IPPROTO_IP, libc::IP_TTL, &[7]), Ok(()));
    for (name, wrong) in [(libc::IP_TTL, 0), (libc::IP_TTL, 256), (libc::IP_TOS, 256), (libc::IP_TOS, -1)] {
        assert_eq!(set(&mut pair.a, fresh, IPPROTO_IP, name, wrong), Err(Errno(libc::EINVAL)));
    }
    assert_eq!(set(&mut pair.a, client, IPPROTO_IPV6, libc::IPV6_TCLASS, 8), Err(Errno(libc::ENOPROTOOPT)));
    assert_eq!(set(&mut pair.a, fresh, IPPROTO_TCP, 9999, 1), Err(Errno(libc::ENOPROTOOPT)));
    assert_eq!(pair.a.option(fresh, 9999, 1), Err(Errno(libc::ENOPROTOOPT)));
    assert_eq!(pair.a.set_option(fresh, SOL_SOCKET, libc::SO_LINGER, &[1, 0, 0, 0]), Err(Errno(libc::EINVAL)));
}

#[test]
fn the_type_of_a_socket_can_be_queried() {
    let mut pair = Pair::new();
    let listener = pair.listen("[fd00::2]:7");
    assert_eq!(number(&mut pair.b, listener, SOL_SOCKET, libc::SO_ACCEPTCONN), 1);
    assert_eq!(number(&mut pair.b, listener, SOL_SOCKET, libc::SO_DOMAIN), libc::AF_INET6);
    assert_eq!(number(&mut pair.b, listener, SOL_SOCKET, libc::SO_TYPE), libc::SOCK_STREAM);
    assert_eq!(number(&mut pair.b, listener, SOL_SOCKET, libc::SO_PROTOCOL), libc::IPPROTO_TCP);
    assert_eq!(number(&mut pair.b, listener, SOL_SOCKET, libc::SO_RCVBUF), 64 << 10);
    assert_eq!(&pair.b.option(listener, IPPROTO_TCP, libc::TCP_CONGESTION).unwrap(), b"cubic\0\0\0\0\0\0\0\0\0\0\0");
    pair.b.set_option(listener, IPPROTO_TCP, libc::TCP_CONGESTION, b"cubic").unwrap();
    assert_eq!(pair.b.set_option(listener, IPPROTO_TCP, libc::TCP_CONGESTION, b"bbr\0"), Err(Errno(libc::ENOENT)));
}

#[test]
fn buffers_are_as_large_as_was_asked_for() {
    let mut pair = Pair::new();
    let listener = pair.listen("10.0.0.2:7");
    for (asked, holds) in [(1, 2048), (5000, 5120), (1 << 30, 64 << 10), (-1, 64 << 10), (4096, 4096)] {
        set(&mut pair.b, listener, SOL_SOCKET, libc::SO_RCVBUF, asked).unwrap();
        assert_eq!(number(&mut pair.b, listener, SOL_SOCKET, libc::SO_RCVBUF), holds);
        assert_eq!(number(&mut pair.b, listener, SOL_SOCKET, libc::SO_SNDBUF), 64 << 10);
    }
    let client = pair.begin("10.0.0.2:7");
    set(&mut pair.a, client, SOL_SOCKET, libc::SO_SNDBUF, 5000).unwrap();
    pair.steps(20);
    let (server, _) = pair.b.accept(listener, libc::SOCK_NONBLOCK).unwrap();
    assert_eq!(number(&mut pair.b, server, SOL_SOCKET, libc::SO_RCVBUF), 4096, "inherited");
    let (mut sent, mut read, mut buf) = (0, 0, vec![0; 100_000]);
    assert_eq!(pair.a.send(client, &buf, 0), Ok(5120));
    assert_eq!(pair.a.poll_mask(client, OUT), 0);
    sent += 5120;
    // More than the window that was promised before any buffer was posted.
    while read < 300_000 {
        sent += pair.a.send(client, &buf, 0).unwrap_or(0);
        pair.step();
        read += pair.b.recv(server, &mut buf, 0).unwrap_or(0);
    }
    for _ in 0..1000 {
        sent += pair.a.send(client, &buf, 0).unwrap_or(0);
        pair.step();
    }
    // Less than one segment may be missing, because a silly window is not used.
    let unread = pair.b.unread(server).unwrap();
    assert!((4096 - 1448..=4096).contains(&unread), "{unread}");
    assert_eq!(sent - read, unread + 5120, "bytes between the two programs");
    // More space takes effect at once.
    set(&mut pair.b, server, SOL_SOCKET, libc::SO_RCVBUF, 8192).unwrap();
    pair.steps(50);
    let unread = pair.b.unread(server).unwrap();
    assert!((8192 - 1448..=8192).contains(&unread), "{unread}");
}

#[test]
fn tcp_info_is_in_the_kernels_layout() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    pair.a.send(client, &[1; 5000], 0).unwrap();
    pair.steps(10);
    let info = pair.a.option(client, IPPROTO_TCP, libc::TCP_INFO).unwrap();
    let word = |at: usize| u32::from_ne_bytes(*info[at..].first_chunk().unwrap());
    // tcpi_state ESTABLISHED; tcpi_options timestamps, SACK and window scale.
    assert_eq!((info[0], info[5] & 7), (1, 7));
    // tcpi_snd_mss: 1500 less 40 of headers and 12 of timestamps.
    assert_eq!(word(16), 1448);
    // tcpi_rtt, tcpi_snd_cwnd, tcpi_unacked.
    assert!(word(68) > 0 && word(80) >= 10, "{info:?}");
    assert_eq!(word(24), 0);
    assert_eq!(number(&mut pair.a, client, IPPROTO_TCP, libc::TCP_MAXSEG), 1448);
    pair.b.close(server).unwrap();
    let fresh = pair.a.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
    assert_eq!(pair.a.option(fresh, IPPROTO_TCP, libc::TCP_INFO).unwrap()[0], 7, "TCP_CLOSE");
    assert_eq!(number(&mut pair.a, fresh, IPPROTO_TCP, libc::TCP_MAXSEG), 536);
}

#[test]
fn tcp_info_tells_of_losses_as_the_kernel_does() {
    let mut pair = Pair::new();
    let (client, _) = pair.connect();
    let look = |pair: &mut Pair| {
        let info = pair.a.option(client, IPPROTO_TCP, libc::TCP_INFO).unwrap();
        let word = |at: usize| u32::from_ne_bytes(*info[at..].first_chunk().unwrap());
        // tcpi_ca_state, tcpi_lost, tcpi_retrans, tcpi_total_retrans, tcpi_notsent_bytes.
        (info[1], word(32), word(36), word(100), word(144))
    };
    assert_eq!(look(&mut pair), (0, 0, 0, 0, 0));
    let info = pair.a.option(client, IPPROTO_TCP, libc::TCP_INFO).unwrap();
    let word = |at: usize| u32::from_ne_bytes(*info[at..].first_chunk().unwrap());
    // tcpi_reordering, tcpi_min_rtt, tcpi_snd_wnd, tcpi_rcv_wnd.
    assert_eq!(word(88), 3);
    assert!((1..1000).contains(&word(148)) && word(228) > 0 && word(232) > 0, "{info:?}");
    // The first of 20 segments, of which ten may leave, is lost.
    pair.a.send(client, &[1; 20 * 1448], 0).unwrap();
    pair.lose();
    assert_eq!(look(&mut pair), (0, 0, 0, 0, 10 * 1448));
    pair.steps(2);
    let (state, lost, repeated, ..) = look(&mut pair);
    assert_eq!((state, lost, repeated), (3, 1, 1), "Recovery, with one segment lost and retransmitted");
    pair.steps(10);
    let (state, lost, repeated, total, waits) = look(&mut pair);
    assert_eq!((state, lost, repeated, total, waits), (0, 0, 0, 1, 0));
    // All frames are lost from here on: state Loss.
    pair.cut = true;
    pair.a.send(client, &[1; 1448], 0).unwrap();
    pair.steps(9000);
    let (state, lost, repeated, ..) = look(&mut pair);
    assert_eq!((state, lost, repeated), (4, 1, 1));
}

#[test]
fn accepted_sockets_inherit_from_their_listener() {
    let mut pair = Pair::new();
    let listener = pair.listen("10.0.0.2:7");
    set(&mut pair.b, listener, SOL_SOCKET, libc::SO_KEEPALIVE, 1).unwrap();
    set(&mut pair.b, listener, IPPROTO_TCP, libc::TCP_KEEPIDLE, 1).unwrap();
    set(&mut pair.b, listener, IPPROTO_TCP, libc::TCP_KEEPINTVL, 1).unwrap();
    set(&mut pair.b, listener, IPPROTO_TCP, libc::TCP_KEEPCNT, 2).unwrap();
    pair.begin("10.0.0.2:7");
    pair.steps(20);
    let (server, _) = pair.b.accept(listener, libc::SOCK_NONBLOCK).unwrap();
    assert_eq!(number(&mut pair.b, server, IPPROTO_TCP, libc::TCP_KEEPCNT), 2);
    // The option has its effect: a peer that answers no probe is given up after three seconds.
    pair.steps(3);
    pair.cut = true;
    pair.steps(50_000);
    assert_eq!(pair.b.recv(server, &mut [0; 4], 0), Err(Errno(libc::ETIMEDOUT)));
}

#[test]
fn a_corked_socket_keeps_a_short_segment_back() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    set(&mut pair.a, client, IPPROTO_TCP, libc::TCP_CORK, 1).unwrap();
    pair.steps(2);
    pair.a.send(client, b"short", 0).unwrap();
    pair.steps(20);
    assert_eq!(pair.b.recv(server, &mut [0; 8], 0), Err(Errno(libc::EAGAIN)));
    set(&mut pair.a, client, IPPROTO_TCP, libc::TCP_CORK, 0).unwrap();
    pair.steps(5);
    assert_eq!(pair.b.recv(server, &mut [0; 8], 0), Ok(5));
}

#[test]
fn nodelay_flushes_a_cork() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    set(&mut pair.a, client, IPPROTO_TCP, libc::TCP_CORK, 1).unwrap();
    pair.steps(2);
    pair.a.send(client, b"short", 0).unwrap();
    pair.steps(20);
    set(&mut pair.a, client, IPPROTO_TCP, libc::TCP_NODELAY, 1).unwrap();
    pair.steps(5);
    assert_eq!(pair.b.recv(server, &mut [0; 8], 0), Ok(5));
}

#[test]
fn the_mss_that_was_asked_for_is_announced_and_kept() {
    let mut pair = Pair::new();
    for (value, answer) in
        [(87, Err(Errno(libc::EINVAL))), (32_768, Err(Errno(libc::EINVAL))), (0, Ok(())), (1000, Ok(()))]
    {
        let fresh = pair.a.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        assert_eq!(set(&mut pair.a, fresh, IPPROTO_TCP, libc::TCP_MAXSEG, value), answer, "{value}");
        let expected = if value == 1000 { 1000 } else { 536 };
        assert_eq!(number(&mut pair.a, fresh, IPPROTO_TCP, libc::TCP_MAXSEG), expected);
    }
    // On the accepting side: both ends respect it, less the space for timestamps.
    let listener = pair.b.socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap();
    set(&mut pair.b, listener, IPPROTO_TCP, libc::TCP_MAXSEG, 1000).unwrap();
    pair.b.bind(listener, "10.0.0.2:8".parse().unwrap()).unwrap();
    pair.b.listen(listener, 4).unwrap();
    let client = pair.begin("10.0.0.2:8");
    pair.steps(20);
    let (server, _) = pair.b.accept(listener, libc::SOCK_NONBLOCK).unwrap();
    assert_eq!(number(&mut pair.a, client, IPPROTO_TCP, libc::TCP_MAXSEG), 988);
    assert_eq!(number(&mut pair.b, server, IPPROTO_TCP, libc::TCP_MAXSEG), 988);
}

#[test]
fn packets_may_be_cut_if_the_socket_says_so() {
    let mut pair = Pair::new();
    let listener = pair.listen("10.0.0.2:7");
    for (kind, dont_fragment) in
        [(libc::IP_PMTUDISC_WANT, 0x40), (libc::IP_PMTUDISC_DO, 0x40), (libc::IP_PMTUDISC_DONT, 0)]
    {
        let fd = pair.a.socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap();
        assert_eq!(number(&mut pair.a, fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER), libc::IP_PMTUDISC_WANT);
        set(&mut pair.a, fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, kind).unwrap();
        assert_eq!(number(&mut pair.a, fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER), kind);
        assert_eq!(pair.a.connect(fd, "10.0.0.2:7".parse().unwrap()), Err(Errno(libc::EINPROGRESS)));
        pair.steps(20);
        pair.b.accept(listener, libc::SOCK_NONBLOCK).unwrap();
        pair.a.send(fd, b"data", 0).unwrap();
        let frame = pair.lose();
        // After 14 bytes of Ethernet header and 6 bytes of the IPv4 header.
        assert_eq!(frame[20], dont_fragment, "{kind}");
    }
    let fd = pair.a.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
    for kind in [libc::IP_PMTUDISC_PROBE, 6, -1] {
        let answer = set(&mut pair.a, fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, kind);
        assert_eq!(answer, Err(Errno(libc::EINVAL)));
    }
}

/// socket(7) and tcp(7) do not describe it. Linux's documentation of the sysctl `tcp_notsent_lowat`
/// does: a socket is writable while fewer bytes than that were never sent.
#[test]
fn few_bytes_wait_if_that_is_wanted() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    set(&mut pair.a, client, IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 4000).unwrap();
    assert_eq!(number(&mut pair.a, client, IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT), 4000);
    assert_eq!(pair.a.send(client, &[1; 10_000], 0), Ok(4000));
    assert_eq!(pair.a.send(client, &[1; 10_000], 0), Err(Errno(libc::EAGAIN)));
    assert_eq!(pair.a.poll_mask(client, OUT), 0);
    // Sent bytes count, even without acknowledgment.
    pair.cut = true;
    pair.step();
    assert_eq!(pair.a.poll_mask(client, OUT), OUT);
    assert_eq!(pair.a.send(client, &[1; 10_000], 0), Ok(4000));
    pair.cut = false;
    pair.steps(20_000);
    assert_eq!(pair.b.unread(server), Ok(8000));
    assert_eq!(pair.a.poll_mask(client, OUT), OUT);
}

#[test]
fn bytes_left_to_read_are_reported_on_request() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    assert_eq!(pair.b.inq(server), Ok(None));
    set(&mut pair.b, server, IPPROTO_TCP, libc::TCP_INQ, 1).unwrap();
    assert_eq!(set(&mut pair.b, server, IPPROTO_TCP, libc::TCP_INQ, 2), Err(Errno(libc::EINVAL)));
    assert_eq!(number(&mut pair.b, server, IPPROTO_TCP, libc::TCP_INQ), 1);
    pair.a.send(client, b"0123456789", 0).unwrap();
    pair.steps(5);
    pair.b.recv(server, &mut [0; 4], 0).unwrap();
    assert_eq!(pair.b.inq(server), Ok(Some(6)));
    pair.a.close(client).unwrap();
    pair.steps(5);
    pair.b.recv(server, &mut [0; 6], 0).unwrap();
    assert_eq!(pair.b.inq(server), Ok(Some(1)), "the end");
}
