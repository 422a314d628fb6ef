//! A pair between two threads, beside a Unix socket and TCP over loopback: a byte to and fro, and 64 KiB
//! writes one way.
//!
//! `cargo bench -p baton-pair`.

use baton_pair::{Bell, End, Layout, Link, Side};
use baton_testkit::rounds::{Effort, Rounds};
use std::hint::{black_box, spin_loop};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const AREA: u32 = 256 << 10;
const PIECE: usize = 64 << 10;
/// Looks in vain before a thread that looks sleeps: some 20 to 50 us.
const LOOKS: u32 = 2000;

fn main() {
    let effort = Effort::asked();
    to_and_fro(effort);
    bulk(effort);
}

/// How a thread waits for its peer.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    /// Look for a while, then sleep.
    Look,
    /// Sleep at once.
    Sleep,
}

/// One program: a link of one connection, and the thread that its bell wakes.
struct Program {
    link: Link,
    end: End,
    wait: Wait,
    peer: Option<Thread>,
}

impl Program {
    fn two(wait: Wait) -> (Program, Program) {
        let layout = Layout::new(1, AREA).expect("a layout that can be");
        let (x, y) = (Side::heap(layout), Side::heap(layout));
        let program = |ours, theirs| {
            let link = Link::new(ours, theirs).expect("sides of one layout");
            let end = link.begin(0, NonZeroU64::MIN).expect("a free slot");
            Program { link, end, wait, peer: None }
        };
        (program(x.clone(), y.clone()), program(y, x))
    }

    fn ring(&self, bell: Bell) {
        if bell.is_wanted() {
            self.peer.as_ref().expect("it runs").unpark();
        }
    }

    /// Waits until there is something: `look` says so, and `ask` as well, which also asks to be told.
    fn wait(&mut self, ask: impl Fn(&mut End) -> bool, look: impl Fn(&mut End) -> bool) {
        for _ in 0..if self.wait == Wait::Look { LOOKS } else { 0 } {
            if look(&mut self.end) {
                return;
            }
            spin_loop();
        }
        while !ask(&mut self.end) {
            if self.link.prepare_sleep() {
                thread::park();
            }
            self.link.news(|_| ());
        }
        self.end.stop_asking_for_data();
        self.end.stop_asking_for_room();
    }

    fn write_all(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (count, bell) = self.end.write(bytes).expect("a peer that keeps to the rules");
            self.ring(bell);
            bytes = &bytes[count..];
            if count == 0 {
                self.wait(|end| end.ask_for_room(1).expect("as above"), |end| end.room().expect("as above") > 0);
            }
        }
    }

    fn read_some(&mut self, bytes: &mut [u8]) -> usize {
        loop {
            let (count, bell) = self.end.read(bytes).expect("a peer that keeps to the rules");
            self.ring(bell);
            if count > 0 {
                return count;
            }
            self.wait(|end| end.ask_for_data(1).expect("as above"), |end| end.readable().expect("as above") > 0);
        }
    }
}

/// Runs `there` on another thread and times `here` on this one, after both know each other.
fn timed(wait: Wait, here: impl FnOnce(&mut Program), there: impl FnOnce(&mut Program) + Send) -> Duration {
    let (mut x, mut y) = Program::two(wait);
    y.peer = Some(thread::current());
    thread::scope(|scope| {
        let (ready, started) = channel();
        let other = scope.spawn(move || {
            ready.send(()).expect("it waits for this");
            there(&mut y);
        });
        x.peer = Some(other.thread().clone());
        started.recv().expect("the other thread runs");
        let start = Instant::now();
        here(&mut x);
        let took = start.elapsed();
        other.join().expect("it ends");
        took
    })
}

/// The same over two connected sockets.
fn timed_sockets<S: Send>(
    (mut x, mut y): (S, S),
    here: impl FnOnce(&mut S),
    there: impl FnOnce(&mut S) + Send,
) -> Duration {
    thread::scope(|scope| {
        let (ready, started) = channel();
        let other = scope.spawn(move || {
            ready.send(()).expect("it waits for this");
            there(&mut y);
        });
        started.recv().expect("the other thread runs");
        let start = Instant::now();
        here(&mut x);
        let took = start.elapsed();
        other.join().expect("it ends");
        took
    })
}

fn loopback() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
    let x = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (y, _) = listener.accept().expect("it is connected");
    for stream in [&x, &y] {
        stream.set_nodelay(true).expect("an option of TCP");
    }
    (x, y)
}

fn sockets_to_and_fro<S: Read + Write + Send>(sockets: (S, S), times: usize) -> Duration {
    let answer = |stream: &mut S| {
        let mut byte = [0];
        for _ in 0..times {
            stream.read_exact(&mut byte).expect("a byte");
            stream.write_all(&byte).expect("room");
        }
    };
    let ask = |stream: &mut S| {
        let mut byte = [7];
        for _ in 0..times {
            stream.write_all(&byte).expect("room");
            stream.read_exact(&mut byte).expect("a byte");
        }
    };
    timed_sockets(sockets, ask, answer)
}

fn pair_to_and_fro(wait: Wait, times: usize) -> Duration {
    let answer = |program: &mut Program| {
        let mut byte = [0];
        for _ in 0..times {
            program.read_some(&mut byte);
            program.write_all(&byte);
        }
    };
    let ask = |program: &mut Program| {
        let mut byte = [7];
        for _ in 0..times {
            program.write_all(&byte);
            program.read_some(&mut byte);
        }
    };
    timed(wait, ask, answer)
}

fn to_and_fro(effort: Effort) {
    let times = effort.pick(20_000, 100);
    let mut set = Rounds::new("a byte to and fro between two threads", times);
    set.add_timed("TCP over loopback", || sockets_to_and_fro(loopback(), times));
    set.add_timed("Unix socket", || sockets_to_and_fro(UnixStream::pair().expect("two sockets"), times));
    set.add_timed("pair, both look, then sleep", || pair_to_and_fro(Wait::Look, times));
    set.add_timed("pair, both sleep at once", || pair_to_and_fro(Wait::Sleep, times));
    set.run(effort.rounds(15));
    set.report();
}

fn sockets_bulk<S: Read + Write + Send>(sockets: (S, S), pieces: usize) -> Duration {
    let take = |stream: &mut S| {
        let (mut bytes, mut left) = (vec![0; PIECE], pieces * PIECE);
        while left > 0 {
            left -= stream.read(&mut bytes).expect("bytes");
        }
        stream.write_all(&[1]).expect("room");
    };
    let give = |stream: &mut S| {
        let bytes = vec![7; PIECE];
        for _ in 0..pieces {
            stream.write_all(black_box(&bytes)).expect("room");
        }
        stream.read_exact(&mut [0]).expect("the end");
    };
    timed_sockets(sockets, give, take)
}

fn pair_bulk(wait: Wait, pieces: usize) -> Duration {
    let take = |program: &mut Program| {
        let (mut bytes, mut left) = (vec![0; PIECE], pieces * PIECE);
        while left > 0 {
            left -= program.read_some(&mut bytes);
        }
        program.write_all(&[1]);
    };
    let give = |program: &mut Program| {
        let bytes = vec![7; PIECE];
        for _ in 0..pieces {
            program.write_all(black_box(&bytes));
        }
        program.read_some(&mut [0]);
    };
    timed(wait, give, take)
}

fn bulk(effort: Effort) {
    let pieces = effort.pick(10_000, 20);
    let mut set = Rounds::new("64 KiB written, one way between two threads", pieces);
    let names = ["TCP over loopback", "Unix socket", "pair, both look, then sleep", "pair, both sleep at once"];
    set.add_timed(names[0], || sockets_bulk(loopback(), pieces));
    set.add_timed(names[1], || sockets_bulk(UnixStream::pair().expect("two sockets"), pieces));
    set.add_timed(names[2], || pair_bulk(Wait::Look, pieces));
    set.add_timed(names[3], || pair_bulk(Wait::Sleep, pieces));
    set.run(effort.rounds(9));
    set.report();
    for (name, ns) in names.iter().zip(set.medians()) {
        println!("  {name:<34} {:>9.1} Gb/s", PIECE as f64 * 8.0 / ns);
    }
}
