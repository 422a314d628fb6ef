//! A connection that is on its way home whole: the broker has a copy of its bytes, and the program goes on with
//! its stream.

use crate::played::{Played, play_at};
use baton_client::{Readiness, Service, Stream};
use baton_consumer::consumer::ConsumerConfig;
use baton_engine::region::Completion;
use baton_ipc::message::{Reply, Request, Sizes};
use baton_policy::Reason;
use baton_testkit::wait_for;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;

/// Sizes of a small consumer.
const SMALL: ConsumerConfig = ConsumerConfig::new(2, (4096, 4), (4096, 0));

/// Runs a program whose connection has "abc" to be read, and stands: the broker has a copy. The last argument is
/// the connection's peer.
fn standing(run: impl FnOnce(Stream, Played, TcpStream)) {
    play_at(|path, broker| {
        let service = Service::connect(path).unwrap();
        let (engine, completions) = broker.make_region(Sizes::of(&SMALL), SMALL.layout());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        let stream = thread::scope(|scope| {
            let adopting = scope.spawn(|| service.adopt(ours.into()));
            let Request::Offer { seq, .. } = broker.hear() else { panic!("expected Offer") };
            assert!(broker.bring_with(seq, 7, b"abc"));
            assert!(engine.complete(Completion::Adopted { qp: 0, token: 7 }));
            rustix::io::write(&completions, &1u64.to_ne_bytes()).unwrap();
            adopting.join().unwrap().unwrap()
        });
        stream.set_nonblocking(true);
        broker.say(Reply::Stand { id: 7, rcv_pos: 3, tail_pos: 0 });
        assert_eq!(broker.hear(), Request::LeftBehind { id: 7, unread: 3, unsent: 0 });
        assert!(matches!(stream.readiness(), Readiness { readable: false, writable: false, .. }));
        let mut bytes = [0; 8];
        assert_eq!((&stream).read(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(stream.peek(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!((&stream).write(b"lost").unwrap_err().kind(), ErrorKind::WouldBlock);
        let file = std::fs::File::open("Cargo.toml").unwrap();
        let sent = stream.send_file(file.as_fd(), 0, 4, false);
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::Unsupported, "the program reads and writes instead");
        run(stream, broker, peer);
    });
}

/// Reads until there is no more, or an error.
fn read_all(stream: &Stream) -> (Vec<u8>, ErrorKind) {
    let (mut all, mut bytes) = (Vec::new(), [0; 8]);
    loop {
        match (&mut &*stream).read(&mut bytes) {
            Ok(0) => panic!("the peer did not end"),
            Ok(count) => all.extend(&bytes[..count]),
            Err(error) => return (all, error.kind()),
        }
    }
}

#[test]
fn bytes_that_went_home_are_read_once() {
    standing(|stream, broker, mut peer| {
        broker.say(Reply::GivenBack { id: 7, code: Reason::Load.to_string() });
        broker.say(Reply::Home { id: 7, rcv_pos: 3, tail_pos: 0, whole: true });
        wait_for("the way home", || stream.is_given_back());
        assert_eq!(stream.why_given_back(), Some(Reason::Load));
        // The kernel has the bytes that the broker put there, and what came after them.
        peer.write_all(b"abcdef").unwrap();
        let mut read = Vec::new();
        wait_for("the bytes", || {
            read.extend(read_all(&stream).0);
            read.len() >= 6
        });
        assert_eq!(read, b"abcdef");
        (&stream).write_all(b"from the kernel").unwrap();
        let mut bytes = [0; 15];
        peer.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"from the kernel");
    });
}

#[test]
fn bytes_are_read_in_the_engine_if_the_connection_stays_there() {
    standing(|stream, broker, _peer| {
        let (code, text) = (Reason::KernelRefused.to_string(), "not now".to_owned());
        broker.say(Reply::Stays { seq: 0, id: 7, code, text });
        wait_for("its bytes", || stream.readiness().readable);
        assert_eq!(read_all(&stream), (b"abc".to_vec(), ErrorKind::WouldBlock));
    });
}

/// Nobody is left to bring it home or to go on with it: the program reads what had arrived, then a reset.
#[test]
fn it_ends_with_the_service() {
    standing(|stream, broker, _peer| {
        broker.end();
        wait_for("its end", || stream.readiness().ended);
        assert_eq!(read_all(&stream), (b"abc".to_vec(), ErrorKind::ConnectionReset));
    });
}
