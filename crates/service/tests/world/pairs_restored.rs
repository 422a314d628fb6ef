//! Ends that their programs take back as sockets, with the bytes that have come meanwhile.

use crate::common::kernels::wait_for;
use crate::pairs::{ends, enter, home, join};
use baton_client::{Place, Service, Stream};
use baton_ipc::message::Selector;
use baton_testkit::{LONG, need_program, need_root};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Reads numbers of four bytes, one after the other, at most so many and until the last one.
fn read_on(reader: &mut impl Read, next: &mut u32, count: u32) {
    for _ in 0..count {
        let mut number = [0; 4];
        reader.read_exact(&mut number).unwrap();
        if &number == b"last" {
            return;
        }
        assert_eq!(u32::from_ne_bytes(number), *next);
        *next += 1;
    }
}

fn restored(stream: Stream) -> TcpStream {
    stream.restore().map_err(|(_, error)| error).unwrap().into()
}

/// Hands an end over. That is refused while the other program is in a call each time.
fn adopted(service: &Service, mut socket: TcpStream) -> Stream {
    let begun = Instant::now();
    loop {
        match service.adopt(socket.into()) {
            Ok(stream) => return stream,
            Err(refused) => {
                assert!(begun.elapsed() < LONG, "{refused}");
                socket = refused.fd.expect("nothing is lost").into();
            }
        }
    }
}

#[test]
fn an_end_is_taken_back_whole_while_the_other_writes() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let mut ends = ends(world, address);
            let (stop, mut next) = (AtomicBool::new(false), 0);
            let [mut writer, stream] = join([&one, &other], ends);
            ends = thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut number = 0u32;
                    while !stop.load(Ordering::Relaxed) {
                        writer.write_all(&number.to_ne_bytes()).unwrap();
                        number += 1;
                        // The reader reads little each time.
                        thread::sleep(Duration::from_micros(10));
                    }
                    writer.write_all(b"last").unwrap();
                    writer
                });
                let mut reader = stream;
                for round in 0..60 {
                    wait_for("both ends are joined", || reader.place() == Place::Pair);
                    read_on(&mut reader, &mut next, 10);
                    // Every second time, the other program asks first.
                    if round % 2 == 0 {
                        one.bring_home(Selector::All).unwrap();
                    }
                    let mut socket = restored(reader);
                    read_on(&mut socket, &mut next, 10);
                    reader = adopted(&other, socket);
                }
                stop.store(true, Ordering::Relaxed);
                read_on(&mut reader, &mut next, u32::MAX);
                [restored(writer.join().unwrap()), restored(reader)]
            });
            let [writer, mut reader] = ends;
            (&writer).write_all(b"after").unwrap();
            let mut got = [0; 5];
            reader.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"after");
        }
    });
}

#[test]
fn both_ends_are_taken_back_one_after_the_other() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let [mut writer, reader] = ends(world, "127.0.0.1:0");
        // These come along, and the program of the other end never asks for them.
        writer.write_all(b"before").unwrap();
        let [mut writer, mut reader] = join([&one, &other], [writer, reader]);
        writer.write_all(b"unread").unwrap();
        let mut got = [0; 12];
        reader.read_exact(&mut got[..2]).unwrap();
        let mut writer = restored(writer);
        wait_for("it is home", || reader.place() == Place::Kernel);
        wait_for("the service has forgotten the other end", || one.list().unwrap().len() == 1);
        // The kernel would have reset it while the other end lives, so nothing may be put back now.
        let mut reader = restored(reader);
        reader.read_exact(&mut got[2..]).unwrap();
        assert_eq!(&got, b"beforeunread");
        writer.write_all(b"after").unwrap();
        reader.read_exact(&mut got[..5]).unwrap();
        assert_eq!(&got[..5], b"after");
    });
}

#[test]
fn both_ends_are_taken_back_at_once() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let mut sockets = ends(world, "127.0.0.1:0");
        for _ in 0..50 {
            let [first, second] = sockets;
            let mut streams = [adopted(&one, first), adopted(&other, second)];
            wait_for("both ends are joined", || streams.iter().all(|stream| stream.place() == Place::Pair));
            streams.iter_mut().for_each(|stream| stream.write_all(b"both").unwrap());
            home(&one, &streams);
            let [first, second] = streams;
            sockets = thread::scope(|scope| {
                [first, second].map(|stream| scope.spawn(|| take_back(stream))).map(|it| it.join().unwrap())
            });
        }
    });
}

/// Takes an end back, with its four bytes.
fn take_back(stream: Stream) -> TcpStream {
    let (mut socket, mut got) = (restored(stream), [0; 4]);
    socket.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"both");
    socket
}
