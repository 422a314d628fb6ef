//! The cost of the kernel's part of a move: a connection over loopback, in a namespace of its own,
//! moves away and back.
//!
//! Each round is one move in each direction, so the raw figures contain the percentiles. The cost
//! of an engine and of steering is not included.
//! engine and steering add is not in here.

use baton_kernel::{Captured, capture, make_husk, rebuild, resume};
use baton_testkit::rounds::{Effort, Rounds};
use baton_testkit::{Netns, need_root};
use std::cell::RefCell;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The number of bytes that wait in the receive queue.
const LOADS: [usize; 3] = [0, 16 << 10, 48 << 10];

struct Subject {
    load: usize,
    ours: TcpStream,
    _peer: TcpStream,
    away: RefCell<Option<Captured>>,
}

impl Subject {
    fn new(load: usize) -> Subject {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(&vec![1; load]).unwrap();
        Subject { load, ours, _peer: peer, away: RefCell::new(None) }
    }

    fn hand_off(&self) -> Duration {
        let start = Instant::now();
        let captured = capture(&self.ours).unwrap();
        make_husk(&self.ours, &captured).unwrap();
        let took = start.elapsed();
        assert_eq!(captured.receive_queue.len(), self.load);
        *self.away.borrow_mut() = Some(captured);
        took
    }

    fn restore(&self) -> Duration {
        let captured = self.away.borrow_mut().take().expect("handed off before");
        let start = Instant::now();
        rebuild(&self.ours, &captured).unwrap();
        resume(&self.ours, &captured).unwrap();
        start.elapsed()
    }
}

fn percentiles(mut took: Vec<Duration>) -> String {
    took.sort();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_nanos() as f64 / 1000.0;
    format!("p50 {:.1} µs, p99 {:.1} µs", at(0.5), at(0.99))
}

fn main() {
    need_root!();
    let netns = Netns::new("moves");
    netns.enter(|| {
        let subjects = LOADS.map(Subject::new);
        let took: Vec<[RefCell<Vec<Duration>>; 2]> = LOADS.iter().map(|_| Default::default()).collect();
        let mut set = Rounds::new("the kernel's part of a move", 1);
        for (subject, took) in subjects.iter().zip(&took) {
            let words = format!("{} KiB unread", subject.load >> 10);
            set.add_timed(format!("handoff, {words}"), || {
                let time = subject.hand_off();
                took[0].borrow_mut().push(time);
                time
            });
            set.add_timed(format!("restore, {words}"), || {
                let time = subject.restore();
                took[1].borrow_mut().push(time);
                time
            });
        }
        set.run(Effort::asked().rounds(5_000));
        set.report();
        drop(set);
        for (subject, [away, back]) in subjects.iter().zip(took) {
            let (away, back) = (percentiles(away.into_inner()), percentiles(back.into_inner()));
            println!("  {:>3} KiB: handoff {away}; restore {back}", subject.load >> 10);
        }
    });
}
