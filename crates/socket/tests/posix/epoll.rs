//! epoll: level-triggered, edge-triggered, one-shot.

use crate::pair::{EVERYTHING, HUP, IN, OUT, Pair, RDHUP};
use baton_socket::posix::{Errno, Fd, Posix};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use std::net::Shutdown;

const EDGE: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;

fn watch(posix: &mut Posix, fd: Fd, events: u32) -> Fd {
    let epfd = posix.epoll_create(libc::EPOLL_CLOEXEC).unwrap();
    posix.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, events, fd as u64).unwrap();
    epfd
}

fn ready(posix: &mut Posix, epfd: Fd) -> Vec<u32> {
    posix.epoll_ready(epfd, 8).unwrap().into_iter().map(|(events, _)| events).collect()
}

#[test]
fn a_level_is_told_for_as_long_as_it_lasts() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let epfd = watch(&mut pair.b, server, IN | RDHUP);
    assert_eq!(ready(&mut pair.b, epfd), []);
    pair.a.send(client, b"12345", 0).unwrap();
    pair.steps(3);
    assert_eq!(ready(&mut pair.b, epfd), [IN]);
    pair.b.recv(server, &mut [0; 2], 0).unwrap();
    assert_eq!(ready(&mut pair.b, epfd), [IN]);
    assert_eq!(pair.b.poll_mask(epfd, IN), IN, "an instance can be polled itself");
    pair.b.recv(server, &mut [0; 8], 0).unwrap();
    assert_eq!(ready(&mut pair.b, epfd), []);
    assert_eq!(pair.b.poll_mask(epfd, IN), 0);
    pair.a.shutdown(client, Shutdown::Write).unwrap();
    pair.steps(3);
    assert_eq!(ready(&mut pair.b, epfd), [IN | RDHUP]);
    pair.b.shutdown(server, Shutdown::Write).unwrap();
    assert_eq!(ready(&mut pair.b, epfd), [IN | RDHUP | HUP]);
}

#[test]
fn an_edge_is_told_once() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let epfd = watch(&mut pair.b, server, IN | OUT | EDGE);
    assert_eq!(ready(&mut pair.b, epfd), [OUT], "initial readiness counts as an edge");
    assert_eq!(ready(&mut pair.b, epfd), []);
    pair.a.send(client, b"12345", 0).unwrap();
    pair.steps(3);
    assert_eq!(ready(&mut pair.b, epfd), [IN | OUT]);
    pair.b.recv(server, &mut [0; 2], 0).unwrap();
    assert_eq!(ready(&mut pair.b, epfd), [], "unread bytes that remain are no new edge");
    pair.a.send(client, b"6", 0).unwrap();
    pair.steps(3);
    assert_eq!(ready(&mut pair.b, epfd), [IN | OUT]);
    pair.b.epoll_ctl(epfd, EPOLL_CTL_MOD, server, IN | EDGE, 1).unwrap();
    assert_eq!(ready(&mut pair.b, epfd), [IN], "modifying a registration reports the readiness again");
}

#[test]
fn acknowledgments_are_no_edge_without_a_shortage_of_space() {
    let mut pair = Pair::new();
    let (client, _) = pair.connect();
    let epfd = watch(&mut pair.a, client, IN | OUT | EDGE);
    assert_eq!(ready(&mut pair.a, epfd), [OUT]);
    pair.a.send(client, b"12345", 0).unwrap();
    pair.steps(1000);
    assert_eq!(ready(&mut pair.a, epfd), []);
}

#[test]
fn new_space_is_an_edge_after_a_shortage() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let epfd = watch(&mut pair.a, client, OUT | EDGE);
    assert_eq!(ready(&mut pair.a, epfd), [OUT]);
    for _ in 0..200 {
        let _ = pair.a.send(client, &[0; 10_000], 0);
        pair.step();
    }
    ready(&mut pair.a, epfd);
    pair.steps(10);
    assert_eq!(ready(&mut pair.a, epfd), []);
    for _ in 0..200 {
        while pair.b.recv(server, &mut [0; 10_000], 0).is_ok_and(|count| count > 0) {}
        pair.steps(10);
    }
    assert_eq!(ready(&mut pair.a, epfd), [OUT]);
}

#[test]
fn a_one_shot_fires_once_until_armed_again() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let epfd = watch(&mut pair.b, server, IN | ONESHOT);
    for _ in 0..2 {
        pair.a.send(client, b"12345", 0).unwrap();
        pair.steps(3);
    }
    assert_eq!(ready(&mut pair.b, epfd), [IN]);
    pair.a.send(client, b"12345", 0).unwrap();
    pair.steps(3);
    assert_eq!(ready(&mut pair.b, epfd), []);
    pair.b.epoll_ctl(epfd, EPOLL_CTL_MOD, server, IN | ONESHOT, 1).unwrap();
    assert_eq!(ready(&mut pair.b, epfd), [IN]);
}

#[test]
fn connections_and_connects_are_reported() {
    let mut pair = Pair::new();
    let listener = pair.listen("10.0.0.2:7");
    let at_b = watch(&mut pair.b, listener, IN);
    let client = pair.begin("10.0.0.2:7");
    let at_a = watch(&mut pair.a, client, OUT);
    let refused = pair.begin("10.0.0.2:9");
    pair.a.epoll_ctl(at_a, EPOLL_CTL_ADD, refused, OUT, 2).unwrap();
    assert_eq!(ready(&mut pair.a, at_a), []);
    pair.steps(20);
    assert_eq!(ready(&mut pair.b, at_b), [IN]);
    let mut told = pair.a.epoll_ready(at_a, 8).unwrap();
    told.sort_unstable_by_key(|(_, data)| *data);
    assert_eq!(told.len(), 2);
    assert_eq!(told[0], (OUT | libc::EPOLLERR as u32 | HUP, 2));
    assert_eq!(told[1], (OUT, client as u64));
    pair.b.accept(listener, 0).unwrap();
    assert_eq!(ready(&mut pair.b, at_b), []);
}

#[test]
fn closed_and_removed_descriptors_are_not_reported() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let epfd = watch(&mut pair.b, server, EVERYTHING);
    pair.b.epoll_ctl(epfd, EPOLL_CTL_DEL, server, 0, 0).unwrap();
    assert_eq!(pair.b.epoll_ctl(epfd, EPOLL_CTL_MOD, server, IN, 0), Err(Errno(libc::ENOENT)));
    assert_eq!(ready(&mut pair.b, epfd), []);
    pair.b.epoll_ctl(epfd, EPOLL_CTL_ADD, server, EVERYTHING, 0).unwrap();
    pair.b.close(server).unwrap();
    assert_eq!(ready(&mut pair.b, epfd), []);
    // A new socket with the same number is a different socket.
    assert_eq!(pair.b.socket(libc::AF_INET, libc::SOCK_STREAM, 0), Ok(server));
    assert_eq!(ready(&mut pair.b, epfd), []);
    pair.b.close(epfd).unwrap();
    assert_eq!(pair.b.epoll_ready(epfd, 8), Err(Errno(libc::EBADF)));
    pair.a.close(client).unwrap();
}

#[test]
fn a_descriptor_that_is_always_ready_starves_no_other() {
    let mut pair = Pair::new();
    let epfd = pair.a.epoll_create(0).unwrap();
    for data in 0..10 {
        let fd = pair.a.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        pair.a.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, OUT, data).unwrap();
    }
    let mut told: Vec<u64> = (0..5).flat_map(|_| pair.a.epoll_ready(epfd, 2).unwrap()).map(|(_, data)| data).collect();
    told.sort_unstable();
    assert_eq!(told, (0..10).collect::<Vec<_>>());
}
