//! Urgent data, which only the kernel delivers, sends both ends of a pair home.

use crate::common::kernels::wait_for;
use crate::pairs::{ends, enter, join, talk};
use baton_client::Place;
use baton_policy::Reason;
use baton_testkit::{need_program, need_root};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn an_end_that_goes_home_sends_urgent_data_and_the_other_is_given_back() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        for (address, unread) in [("127.0.0.1:0", 0), ("[::1]:0", 0), ("127.0.0.1:0", 5000)] {
            let mut streams = join([&one, &other], ends(world, address));
            talk(&mut streams);
            streams[0].write_all(&vec![7; unread]).unwrap();
            let [first, mut second] = streams;
            let mut socket = TcpStream::from(first.restore().map_err(|(_, error)| error).unwrap());
            assert!(!second.is_given_back());
            assert_eq!(send(&socket, b"before!", SendFlags::OOB).unwrap(), 7);
            // Whatever is unread, the urgent byte is announced.
            wait_for("the announcement", || second.readiness().urgent);
            let mut got = vec![0; unread + 6];
            second.read_exact(&mut got).unwrap();
            assert!(got.ends_with(b"before") && got[..unread].iter().all(|byte| *byte == 7));
            wait_for("it is given back", || second.readiness().urgent && second.is_given_back());
            assert_eq!((second.place(), second.why_given_back()), (Place::Kernel, Some(Reason::UrgentData)));
            let mut theirs = TcpStream::from(second.take_back().unwrap());
            let (mut byte, oob) = ([0; 1], RecvFlags::OOB | RecvFlags::DONTWAIT);
            recv(&theirs, &mut byte, oob).unwrap();
            assert_eq!(&byte, b"!");
            assert!(recv(&theirs, &mut byte, oob).is_err());
            socket.write_all(b"after").unwrap();
            theirs.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut after = [0; 5];
            theirs.read_exact(&mut after).unwrap();
            assert_eq!(&after, b"after");
            wait_for("the service has nothing of it", || one.list().unwrap().is_empty());
        }
    });
}
