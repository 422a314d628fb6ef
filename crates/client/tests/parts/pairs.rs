//! Both ends of a connection on this machine: the test plays the broker and the other program.

use crate::played::{Played, play_at};
use baton_client::{Place, Service, Stream};
use baton_consumer::link::SharedSide;
use baton_ipc::message::{Incoming, Reply, Request};
use baton_pair::{End, Ending, Layout, Link};
use baton_testkit::wait_for;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

/// Bytes of a stream that a pair takes, though its program has set a small send buffer.
const BYTES: usize = 60_000;
/// The broker's number of the connection.
const ID: u64 = 7;
/// The broker's number of the link.
const LINK: u32 = 3;

/// The other program, with the program's bell.
struct Other {
    link: Link,
    /// The program's part of the link, for the broker.
    theirs: Link,
    bell: OwnedFd,
}

impl Other {
    /// Announces a link to the program.
    fn begin(broker: &Played) -> Other {
        let sides = [(); 2].map(|()| SharedSide::create(Layout::new(2, 256 << 10).unwrap()).unwrap());
        let bells = [(); 2].map(|()| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
        let [bell, theirs] = bells.each_ref().map(|bell| bell.try_clone().unwrap());
        let ours = sides[0].as_fd().try_clone_to_owned().unwrap();
        broker
            .say_with(Reply::Link { link: LINK, first: true }, vec![ours, sides[1].read_only().unwrap(), bell, theirs]);
        let link = Link::new(sides[1].side().clone(), sides[0].side().clone()).unwrap();
        let theirs = Link::new(sides[0].side().clone(), sides[1].side().clone()).unwrap();
        let [bell, _] = bells;
        Other { link, theirs, bell }
    }

    /// Joins the program's connection with this one's end.
    fn join(&self, broker: &Played, number: u64) -> End {
        broker.say(Reply::Prepare { id: ID });
        assert_eq!(broker.hear(), Request::Ready { id: ID, free: true });
        let number = NonZeroU64::new(number).unwrap();
        drop(self.theirs.begin(0, number).unwrap());
        let incoming = Incoming { seq: 0, id: ID, region: LINK, send: 0, unread: 0, shut: false, window: 0 };
        broker.say(Reply::Pair { incoming, first: true, slot: 0, number: number.get() });
        assert_eq!(broker.hear(), Request::Brought { id: ID, taken: true });
        self.link.begin(0, number).unwrap()
    }

    /// Reads what is there.
    fn read(&self, end: &mut End) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        let (count, bell) = end.read(&mut bytes).unwrap();
        if bell.is_wanted() {
            rustix::io::write(&self.bell, &1u64.to_ne_bytes()).unwrap();
        }
        bytes.truncate(count);
        bytes
    }
}

/// A program's connection that waits in the kernel for its other end, and the kernel's other end, both with small
/// buffers.
fn waiting(service: &Service, broker: &Played) -> (Stream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    set_socket_send_buffer_size(&ours, 4096).unwrap();
    let stream = thread::scope(|scope| {
        let adopting = scope.spawn(|| service.adopt(ours.into()));
        let Request::Offer { seq, .. } = broker.hear() else { panic!("expected Offer") };
        broker.say(Reply::Waits { seq, id: ID });
        adopting.join().unwrap().unwrap()
    });
    stream.set_nonblocking(true);
    (stream, listener.accept().unwrap().0)
}

/// Reads what the kernel has.
fn read_kernel(peer: &mut TcpStream) -> Vec<u8> {
    let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
    peer.set_nonblocking(true).unwrap();
    loop {
        match peer.read(&mut bytes) {
            Ok(0) => return all,
            Ok(count) => all.extend(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn bytes_that_the_kernel_had_no_room_for_are_the_first_of_the_next_pair() {
    play_at(|path, broker| {
        let service = Service::connect(path).unwrap();
        let (mut stream, mut peer) = waiting(&service, &broker);
        let other = Other::begin(&broker);
        let right: Vec<u8> = (0..BYTES + 5).map(|at| (at % 251) as u8).collect();
        let end = other.join(&broker, 1);
        assert_eq!(stream.write(&right[..BYTES]).unwrap(), BYTES);
        // The broker counted none of them, so they are written to the kernel.
        broker.say(Reply::Home { id: ID, rcv_pos: 0, tail_pos: 0, whole: false });
        wait_for("the way home", || stream.place() == Place::Kernel);
        drop(end);
        let mut end = other.join(&broker, 2);
        stream.write_all(&right[BYTES..]).unwrap();
        stream.shutdown().unwrap();
        let (mut home, mut joined) = (Vec::new(), Vec::new());
        wait_for("all bytes", || {
            home.extend(read_kernel(&mut peer));
            joined.extend(other.read(&mut end));
            home.len() + joined.len() == right.len()
        });
        assert!(!home.is_empty() && joined.len() > 5, "{} bytes through the kernel", home.len());
        assert!([home, joined].concat() == right);
        assert_eq!((end.readable(), end.peer_end()), (Ok(0), Ending::Finished));
    });
}

/// A program writes much, has a small send buffer from then on, and closes while the peer reads nothing.
#[test]
fn a_stream_is_closed_once_its_peer_has_made_room_for_the_last_bytes() {
    const MORE: usize = 250_000;
    play_at(|path, broker| {
        let service = Service::connect(path).unwrap();
        let (mut stream, mut peer) = waiting(&service, &broker);
        let other = Other::begin(&broker);
        let right: Vec<u8> = (0..MORE).map(|at| (at % 251) as u8).collect();
        stream.set_send_buffer(1 << 20).unwrap();
        let end = other.join(&broker, 1);
        assert_eq!(stream.write(&right).unwrap(), MORE);
        stream.set_send_buffer(1).unwrap();
        broker.say(Reply::Home { id: ID, rcv_pos: 0, tail_pos: 0, whole: false });
        wait_for("the way home", || stream.place() == Place::Kernel);
        drop(end);
        let mut end = other.join(&broker, 2);
        drop(stream);
        let (mut home, mut joined) = (Vec::new(), Vec::new());
        wait_for("all bytes", || {
            home.extend(read_kernel(&mut peer));
            joined.extend(other.read(&mut end));
            home.len() + joined.len() == MORE
        });
        assert!(joined.len() > 128 << 10, "{} bytes through the kernel", home.len());
        assert!([home, joined].concat() == right);
        wait_for("the end", || end.readable() == Ok(0) && end.peer_end() == Ending::Closed);
        assert_eq!(broker.hear(), Request::Close { id: ID });
    });
}
