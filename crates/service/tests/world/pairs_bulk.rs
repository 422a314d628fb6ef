//! Ends that are joined in the middle of a bulk transfer.

use crate::common::kernels::wait_for;
use crate::pairs::{ends, enter};
use baton_client::{Place, Stream};
use baton_testkit::{need_program, need_root};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;

/// More than a pair takes along, and than the kernel holds.
const MORE: usize = 20_000_003;

fn piece(from: usize) -> Vec<u8> {
    (from..from + 50_000).map(|at| (at % 251) as u8).collect()
}

/// Writes until the kernel takes no more, and returns the number of bytes.
fn fill(mut socket: &TcpStream) -> usize {
    socket.set_nonblocking(true).unwrap();
    let mut total = 0;
    loop {
        match socket.write(&piece(total)) {
            Ok(count) => total += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    socket.set_nonblocking(false).unwrap();
    assert!(total > 1 << 20, "the kernel takes {total} bytes only");
    total
}

fn write_on(stream: &mut Stream, from: usize) {
    let mut at = from;
    while at < from + MORE {
        let bytes = piece(at);
        let most = bytes.len().min(from + MORE - at);
        at += stream.write(&bytes[..most]).unwrap();
    }
}

fn read_all(stream: &mut impl Read, bytes: usize) {
    let (mut at, mut got) = (0, vec![0; 50_000]);
    while at < bytes {
        let most = got.len().min(bytes - at);
        let count = stream.read(&mut got[..most]).unwrap();
        assert!(count > 0 && got[..count] == piece(at)[..count], "at {at} of {bytes}");
        at += count;
    }
}

#[test]
fn a_program_that_wrote_much_stops_before_the_one_that_reads() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        for writer_first in [false, true] {
            let [writer, reader] = ends(world, "127.0.0.1:0");
            let before = fill(&writer);
            thread::scope(|scope| {
                let write = || {
                    let mut writer = other.adopt(writer.into()).unwrap();
                    write_on(&mut writer, before);
                    writer
                };
                let read = || {
                    let mut reader = one.adopt(reader.into()).unwrap();
                    read_all(&mut reader, before + MORE);
                    reader
                };
                let known = |count| wait_for("an end is known", || one.list().unwrap().len() == count);
                let (first, second) = if writer_first {
                    let writes = scope.spawn(write);
                    known(1);
                    (writes, scope.spawn(read))
                } else {
                    let reads = scope.spawn(read);
                    known(1);
                    (reads, scope.spawn(write))
                };
                let streams = [first.join().unwrap(), second.join().unwrap()];
                wait_for("both ends are joined", || streams.iter().all(|stream| stream.place() == Place::Pair));
            });
            wait_for("nothing is left", || one.list().unwrap().is_empty());
        }
    });
}

#[test]
fn a_program_that_wrote_much_goes_on_in_the_kernel_if_nobody_reads() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let [writer, reader] = ends(world, "127.0.0.1:0");
        let before = fill(&writer);
        let mut reader = one.adopt(reader.into()).unwrap();
        let Err(refused) = other.adopt(writer.into()) else { panic!("both are joined") };
        assert_eq!(refused.code, "too-much-queued");
        let mut writer = TcpStream::from(refused.fd.unwrap());
        read_all(&mut reader, before);
        writer.write_all(b"on").unwrap();
        let mut got = [0; 2];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"on");
    });
}
