//! A connection that a program cannot take in, whose broker dies before it hears that.

use crate::played::play_at;
use baton_client::Service;
use baton_consumer::consumer::ConsumerConfig;
use baton_ipc::message::{Incoming, Reply, Request, Sizes};
use baton_ipc::queues::write_queues;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// Returns what the program reads of a connection that brings `unread` along and is not taken in, whose
/// broker dies, and whose successor rebuilds it as if the program had those bytes. The peer then sends
/// "world". The bytes come with a file, unless the program has no descriptor for it.
fn read_after(config: ConsumerConfig, with_file: bool, unread: &[u8]) -> io::Result<Vec<u8>> {
    let mut result = Ok(Vec::new());
    play_at(|path, broker| {
        let service = Service::connect(path).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        thread::scope(|scope| {
            let adopting = scope.spawn(|| service.adopt(socket.into()));
            let Request::Offer { seq, .. } = broker.hear() else { panic!("expected Offer") };
            broker.make_region(Sizes::of(&config), config.layout());
            let file = write_queues(&[], unread).unwrap();
            let incoming =
                Incoming { seq, id: 7, region: 1, send: 0, unread: unread.len() as u32, shut: false, window: 0 };
            let fds = file.into_iter().filter(|_| with_file).collect();
            broker.say_with(Reply::BringToEngine { incoming, order: Vec::new() }, fds);
            assert_eq!(broker.hear(), Request::Brought { id: 7, taken: false });
            broker.say(Reply::Restarted {});
            broker.say(Reply::Home { id: 7, rcv_pos: unread.len() as u64, tail_pos: 0, whole: false });
            let mut stream = adopting.join().unwrap().unwrap();
            peer.write_all(b"world").unwrap();
            drop(peer);
            let mut all = Vec::new();
            result = stream.read_to_end(&mut all).map(|_| all);
        });
    });
    result
}

const GOOD: ConsumerConfig = ConsumerConfig::new(2, (4096, 4), (4096, 0));

#[test]
fn bytes_without_a_buffer_are_read_before_those_of_the_kernel() {
    let unread = [b'x'; 5000];
    assert_eq!(read_after(GOOD, true, &unread).unwrap(), [&unread[..], b"world"].concat());
}

#[test]
fn bytes_for_memory_that_cannot_be_mapped_are_read_before_those_of_the_kernel() {
    let bad = ConsumerConfig::new(2, (0, 0), (0, 0));
    assert_eq!(read_after(bad, true, b"HELLO").unwrap(), b"HELLOworld");
}

#[test]
fn bytes_that_nobody_has_end_the_connection_with_an_error() {
    assert_eq!(read_after(GOOD, false, b"HELLO").unwrap_err().kind(), ErrorKind::ConnectionAborted);
}
