//! Pairs that stand still, and what a program can ask of its end.

use crate::common::kernels::wait_for;
use crate::pairs::{ends, enter, join, talk};
use baton_client::{Place, Stream};
use baton_testkit::{need_program, need_root};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;

/// States, as in `net/tcp_states.h`.
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;

/// Bytes of memory that the files of links have, of which this process has descriptors.
fn memory() -> u64 {
    let files = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let path = entry.unwrap().path();
        let name = fs::read_link(&path).ok()?;
        let file = fs::metadata(path).ok()?;
        name.to_string_lossy().contains("baton-pair").then(|| (file.ino(), file.blocks() * 512))
    });
    files.collect::<std::collections::BTreeMap<_, _>>().into_values().sum()
}

/// Writes until there is no room, and returns the number of bytes.
fn fill(stream: &mut Stream) -> usize {
    stream.set_nonblocking(true);
    let (piece, mut total) = (vec![7; 10_000], 0);
    loop {
        match stream.write(&piece) {
            Ok(count) => total += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    stream.set_nonblocking(false);
    total
}

fn take(stream: &mut Stream, mut count: usize) {
    let mut piece = vec![0; 65_536];
    while count > 0 {
        let most = count.min(piece.len());
        let got = stream.read(&mut piece[..most]).unwrap();
        assert!(got > 0 && piece[..got].iter().all(|byte| *byte == 7), "{count} to come");
        count -= got;
    }
}

#[test]
fn memory_of_pairs_that_stand_still_goes_back_to_the_system() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let mut streams = join([&one, &other], ends(world, "127.0.0.1:0"));
        let before = memory();
        let count = fill(&mut streams[0]);
        let during = memory();
        assert!(during >= before + count as u64 - 8192, "{before} and {during}, for {count}");
        take(&mut streams[1], count);
        wait_for("the memory goes back", || memory() <= before);
        talk(&mut streams);
        assert_eq!(streams.each_ref().map(|stream| stream.place()), [Place::Pair; 2]);
    });
}

#[test]
fn a_pair_whose_programs_both_wait_with_full_areas_goes_home() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let mut streams = join([&one, &other], ends(world, "127.0.0.1:0"));
        let mut written = streams.each_mut().map(fill);
        wait_for("the kernel takes more", || streams.iter().all(|stream| stream.place() == Place::Kernel));
        for (stream, written) in streams.iter_mut().zip(&mut written) {
            *written += fill(stream);
        }
        take(&mut streams[1], written[0]);
        take(&mut streams[0], written[1]);
        talk(&mut streams);
    });
}

#[test]
fn tcp_info_has_state_and_bytes_of_a_pair() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let mut streams = join([&one, &other], ends(world, "127.0.0.1:0"));
        let received = |info: &[u8]| u64::from_ne_bytes(info[128..136].try_into().unwrap());
        let before = streams[1].tcp_info().unwrap();
        streams[0].write_all(&[7; 5000]).unwrap();
        let info = streams[1].tcp_info().unwrap();
        assert_eq!((info[0], received(&info)), (ESTABLISHED, received(&before) + 5000));
        assert_eq!(info[68..76], [0; 8], "no round trip is measured");
        streams[0].shutdown().unwrap();
        assert_eq!(streams[1].tcp_info().unwrap()[0], CLOSE_WAIT);
        take(&mut streams[1], 5000);
    });
}

#[test]
fn a_send_buffer_that_was_set_bounds_a_pair() {
    need_root!();
    need_program!("clang");
    const SET: u32 = 16_384;
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        // Once set on the socket before it is joined, and once on the stream.
        for before in [true, false] {
            let ends = ends(world, "127.0.0.1:0");
            if before {
                rustix::net::sockopt::set_socket_send_buffer_size(&ends[0], SET as usize).unwrap();
            }
            let mut streams = join([&one, &other], ends);
            if !before {
                streams[0].set_send_buffer(SET).unwrap();
            }
            let written = fill(&mut streams[0]);
            assert_eq!(written, SET as usize + 65_536, "set before: {before}");
            take(&mut streams[1], written);
        }
    });
}
