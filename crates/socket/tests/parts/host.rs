//! Two hosts on an in-memory wire: every byte arrives once and in order; every way to end a
//! connection.

use crate::ramp;
use baton_consumer::consumer::{Conn, SocketEvent};
use baton_engine::frame_io::FrameIo;
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use baton_tcp::time::Instant;
use std::io::ErrorKind;

pub struct Pair<P = MemoryPort> {
    pub a: Host<P>,
    pub b: Host<P>,
    now: u64,
}

impl Pair {
    pub fn new(options: MemoryOptions) -> Pair {
        let (a, b) = MemoryPort::pair(options);
        Pair::over(a, b)
    }
}

impl<P: FrameIo> Pair<P> {
    /// Hosts on the two ends of a wire.
    pub fn over(a: P, b: P) -> Pair<P> {
        let host = |address: &str, port| {
            let mut config = HostConfig::new(address.parse().unwrap());
            config.consumer.stream_buffer = 64 << 10;
            config.engine.tcp.time_wait = baton_tcp::time::Duration::from_millis(100);
            Host::new(&config, port).unwrap()
        };
        Pair { a: host("10.0.0.1/24", a), b: host("10.0.0.2/24", b), now: 0 }
    }

    pub fn step(&mut self) {
        self.poll_a();
        self.poll_b();
    }

    /// Time passes, and `a` has its turn.
    pub fn poll_a(&mut self) {
        self.now += 50_000;
        self.a.poll(Instant(self.now)).unwrap();
    }

    pub fn poll_b(&mut self) {
        self.b.poll(Instant(self.now)).unwrap();
    }

    /// Connects `a` to a listener of `b`.
    pub fn connect(&mut self) -> (Conn, Conn) {
        self.b.listen("10.0.0.2:7".parse().unwrap(), 16).unwrap();
        self.step();
        self.open()
    }

    /// Connects `a` to the listener of `b` that is there.
    pub fn open(&mut self) -> (Conn, Conn) {
        self.a.connect("10.0.0.2:7".parse().unwrap(), None).unwrap();
        let (mut client, mut server) = (None, None);
        for _ in 0..100 {
            self.step();
            while let Some(event) = self.a.next_event() {
                if let SocketEvent::Opening { conn, .. } = event {
                    client = Some(conn);
                }
            }
            while let Some(event) = self.b.next_event() {
                if let SocketEvent::Accepted { conn, .. } = event {
                    server = Some(conn);
                }
            }
            if let (Some(client), Some(server)) = (client, server)
                && self.a.stream(client).unwrap().is_established()
            {
                return (client, server);
            }
        }
        panic!("no connection");
    }
}

fn write_ramp(host: &mut Host<MemoryPort>, conn: Conn, at: &mut u64, total: u64) {
    let chunk: Vec<u8> = (*at..total.min(*at + 10_000)).map(ramp).collect();
    match host.write(conn, &chunk) {
        Ok(count) => *at += count as u64,
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    }
}

fn read_ramp(host: &mut Host<MemoryPort>, conn: Conn, at: &mut u64) {
    let mut buf = [0; 7001];
    while let Ok(count @ 1..) = host.read(conn, &mut buf) {
        for byte in &buf[..count] {
            assert_eq!(*byte, ramp(*at), "at {at}");
            *at += 1;
        }
    }
}

fn both_ways(options: MemoryOptions) {
    const TOTAL: u64 = 3_000_000;
    let mut pair = Pair::new(options);
    let (client, server) = pair.connect();
    let (mut to_b, mut to_a, mut at_b, mut at_a) = (0, 0, 0, 0);
    for _ in 0..100_000 {
        write_ramp(&mut pair.a, client, &mut to_b, TOTAL);
        write_ramp(&mut pair.b, server, &mut to_a, TOTAL);
        pair.step();
        read_ramp(&mut pair.a, client, &mut at_a);
        read_ramp(&mut pair.b, server, &mut at_b);
        if (at_a, at_b) == (TOTAL, TOTAL) {
            return;
        }
    }
    panic!("stuck at {at_a} and {at_b}");
}

#[test]
fn bytes_arrive_once_and_in_order_both_ways() {
    both_ways(MemoryOptions::default());
}

#[test]
fn super_frames_carry_the_same_bytes() {
    both_ways(MemoryOptions::new().gso(true));
}

#[test]
fn jumbo_frames_carry_the_same_bytes() {
    both_ways(MemoryOptions::new().mtu(9000));
}

// tests: MUST-60
#[test]
fn a_half_closed_stream_still_carries_the_other_direction() {
    let mut pair = Pair::new(MemoryOptions::default());
    let (client, server) = pair.connect();
    pair.a.write(client, b"question").unwrap();
    pair.a.shutdown(client).unwrap();
    let mut buf = [0; 64];
    let mut question = Vec::new();
    for _ in 0..100 {
        pair.step();
        match pair.b.read(server, &mut buf) {
            Ok(0) => break,
            Ok(count) => question.extend_from_slice(&buf[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert_eq!(question, b"question");
    pair.b.write(server, b"answer").unwrap();
    pair.b.close(server);
    let mut answer = Vec::new();
    for _ in 0..100 {
        pair.step();
        match pair.a.read(client, &mut buf) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&buf[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert_eq!(answer, b"answer");
    pair.a.close(client);
    for _ in 0..10_000 {
        pair.step();
    }
    assert_eq!((pair.a.engine().tce().connections(), pair.b.engine().tce().connections()), (0, 0));
    assert!(pair.a.stream(client).is_none() && pair.b.stream(server).is_none());
}

#[test]
fn a_port_without_a_listener_refuses() {
    let mut pair = Pair::new(MemoryOptions::default());
    pair.a.connect("10.0.0.2:9".parse().unwrap(), None).unwrap();
    let mut conn = None;
    for _ in 0..100 {
        pair.step();
        while let Some(event) = pair.a.next_event() {
            match event {
                SocketEvent::Opening { conn: opening, .. } => conn = Some(opening),
                SocketEvent::Ready { conn } => {
                    let error = pair.a.error(conn).expect("an error");
                    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("no answer for {conn:?}");
}

#[test]
fn closing_with_unread_bytes_resets_the_peer() {
    let mut pair = Pair::new(MemoryOptions::default());
    let (client, server) = pair.connect();
    pair.a.write(client, b"data that is never read").unwrap();
    let mut nothing = [0; 0];
    pair.b.read(server, &mut nothing).unwrap();
    for _ in 0..10 {
        pair.step();
    }
    // The bytes are unread whether they wait for a buffer or are in it.
    pair.b.close(server);
    for _ in 0..10 {
        pair.step();
    }
    let error = pair.a.read(client, &mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_reset_is_not_numbered_before_the_data_sent_with_it() {
    for round in 0..4 {
        let mut pair = Pair::new(MemoryOptions::default());
        let (client, server) = pair.connect();
        // The delay varies, so the buffers are in place in some rounds and not in others.
        for _ in 0..round * 20 {
            pair.step();
        }
        let mut at = 0;
        write_ramp(&mut pair.a, client, &mut at, 25);
        pair.a.abort(client);
        let mut read = 0;
        for _ in 0..20 {
            pair.step();
            read_ramp(&mut pair.b, server, &mut read);
        }
        assert_eq!(read, 25, "round {round}");
        assert_eq!(pair.b.error(server).map(|error| error.kind()), Some(ErrorKind::ConnectionReset), "round {round}");
    }
}

#[test]
fn an_address_is_listened_on_once() {
    let mut pair = Pair::new(MemoryOptions::default());
    pair.b.listen("10.0.0.2:7".parse().unwrap(), 1).unwrap();
    pair.b.listen("10.0.0.2:7".parse().unwrap(), 1).unwrap();
    pair.step();
    pair.step();
    let mut failed = 0;
    while let Some(event) = pair.b.next_event() {
        if let SocketEvent::Failed { error, .. } = event {
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            failed += 1;
        }
    }
    assert_eq!(failed, 1);
}
